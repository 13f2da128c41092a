"""What every way to condition a network on a preference promises."""

import copy
import gc
import io
import pickle
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from madamoo import MAdam, PreferenceMetric, solvers
from madamoo.pareto._conditioned import Conditioned
from madamoo.pareto._palora import PaLoRA
from pareto.networks import METHODS, NETWORKS, A, Images, batch, make, mlp, stir

methods = pytest.mark.parametrize("method", METHODS)
networks = pytest.mark.parametrize("network", NETWORKS)


def equal_states(a, b):
    return list(a) == list(b) and all(torch.equal(a[key], b[key]) for key in a)


@methods
@networks
def test_the_users_model_stays_as_it_is(method, network):
    model = NETWORKS[network]()
    before, output = copy.deepcopy(model.state_dict()), model.eval()(batch(network))
    other = stir(METHODS[method](model))
    other(batch(network), preference=A).sum().backward()
    assert equal_states(model.state_dict(), before)
    assert torch.equal(model(batch(network)), output)
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert other.module is not model


@methods
def test_the_output_depends_on_the_preference(method):
    model, x = make(method, "mlp"), batch("mlp")
    outputs = [model(x, preference=[a, 1 - a]) for a in (0.0, 0.4, 0.6, 1.0)]
    assert all((u - v).abs().max() > 1e-4 for i, u in enumerate(outputs) for v in outputs[:i])


@methods
def test_contexts_nest_and_end_with_exceptions_too(method):
    model, x = make(method, "mlp"), batch("mlp")
    outer, inner = model(x, preference=[0.2, 0.8]), model(x, preference=[0.9, 0.1])
    with model.at([0.2, 0.8]):
        assert torch.equal(model(x), outer)
        with model.at([0.9, 0.1]):
            assert torch.equal(model(x), inner)
        assert torch.equal(model(x), outer)
        with pytest.raises(KeyError), model.at([0.9, 0.1]):
            raise KeyError
        assert torch.equal(model(x), outer)
        assert torch.equal(model(x, preference=[0.9, 0.1]), inner)
        with pytest.raises(ValueError, match="sum to 1"), model.at([0.9, 0.9]):
            pass
        with pytest.raises(RuntimeError):
            model(x[:, :1], preference=[0.9, 0.1])  # the network itself fails
        assert torch.equal(model(x), outer)
    with pytest.raises(ValueError, match=r"no preference is given: call model\(\.\.\., preference=a\)"):
        model(x)


@methods
def test_no_preference(method):
    with pytest.raises(ValueError, match="no preference is given"):
        make(method, "mlp")(batch("mlp"))


@methods
def test_without_a_preference_nothing_runs(method):
    model = METHODS[method](nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2)).double())
    with pytest.raises(ValueError, match="no preference is given"):
        model(batch("mlp"))
    assert model.module[0].num_batches_tracked == 0


@pytest.mark.parametrize(
    ("preference", "message"),
    [
        ([0.5, 0.3, 0.2], r"preference must be a vector of 2 numbers, one for each objective, got \[0.5, 0.3, 0.2\]"),
        ([1.0], "vector of 2 numbers"),
        (0.5, "vector of 2 numbers"),
        ([[0.5, 0.5]], "vector of 2 numbers"),
        ([float("nan"), 0.5], "finite"),
        ([float("inf"), 0.5], "finite"),
        ([1.5, -0.5], r"not negative, got \[1.5, -0.5\]"),
        ([0.5, 0.6], r"preference must sum to 1, got \[0.5, 0.6\], which sums to 1.1: divide it by its sum"),
        ([3.0, 1.0], "sums to 4"),
        ([0.5, 0.5002], "sum to 1"),
        ([0.0, 0.0], "sum to 1"),
    ],
)
def test_bad_preferences(preference, message):
    model, x = make("pamal", "mlp"), batch("mlp")
    with pytest.raises(ValueError, match=message):
        model(x, preference=preference)
    with pytest.raises(ValueError, match=message), model.at(preference):
        pass
    with pytest.raises(ValueError, match=message):
        model.export(preference)


def test_preferences_that_are_no_numbers():
    for preference in ["ab", ["a", "b"], {"a": 1.0}, [[0.5], [0.2, 0.3]], [None, 1.0]]:
        with pytest.raises((TypeError, ValueError), match=r"preference must be 2 numbers|vector of 2 numbers"):
            make("pamal", "mlp")(batch("mlp"), preference=preference)


@methods
def test_forms_of_a_preference(method):
    model, x = make(method, "mlp"), batch("mlp")
    expected = model(x, preference=[0.25, 0.75])
    read_only = np.array([0.25, 0.75])
    read_only.setflags(write=False)
    for form in (
        (0.25, 0.75),
        torch.tensor([0.25, 0.75]),
        torch.tensor([0.25, 0.75], dtype=torch.bfloat16),
        np.array([0.25, 0.75], dtype=np.float32),
        read_only,
        [torch.tensor(0.25), np.float64(0.75)],
    ):
        assert torch.equal(model(x, preference=form), expected)
    model(x, preference=[0, 1])
    model(x, preference=[0.50005, 0.5])  # within 1e-4


@methods
def test_a_preference_is_a_copy(method):
    """A sampler may write the next one over it, between forward and backward too."""
    model, x, a = make(method, "mlp"), batch("mlp"), torch.tensor(A, dtype=torch.float64)
    expected = model(x, preference=A)
    with model.at(a):
        a.fill_(torch.nan)
        output = model(x)
    assert torch.equal(output, expected)
    output.sum().backward()


@methods
@networks
def test_export(method, network):
    for training in [True, False]:
        user = NETWORKS[network]()
        if network == "images":
            user.trunk[1].running_mean += 0.5
        model = stir(METHODS[method](user))
        model.train(training)
        exported = model.export(A)
        x = batch(network)
        assert type(exported) is type(user) and exported.training is training
        assert not any(parametrize.is_parametrized(module) for module in exported.modules())
        assert [type(m) for m in exported.modules()] == [type(m) for m in user.modules()]
        assert [name for name, _ in exported.named_parameters()] == [name for name, _ in user.named_parameters()]
        assert all(isinstance(p, nn.Parameter) and p.is_leaf and p.requires_grad for p in exported.parameters())
        assert torch.allclose(exported(x), model(x, preference=A), rtol=0, atol=1e-14)
        if network == "images":  # the running statistics have moved alike, or not at all
            mine, own = exported.trunk[1], model.module.trunk[1]
            assert torch.allclose(mine.running_mean, own.running_mean) and mine.num_batches_tracked == int(training)
            assert torch.allclose(mine.running_var, own.running_var) and own.num_batches_tracked == int(training)
        assert not torch.allclose(exported(x), model(x, preference=[0.9, 0.1]))


@methods
def test_export_is_independent(method):
    model, x = make(method, "images"), batch("images")
    exported = model.export(A)
    stored = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    assert stored.isdisjoint(t.untyped_storage().data_ptr() for t in [*exported.parameters(), *exported.buffers()])
    output = model.eval()(x, preference=A)
    exported(x).sum().backward()
    torch.optim.SGD(exported.parameters(), lr=0.1).step()
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(model(x, preference=A), output)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None
    assert torch.equal(exported.eval()(x), pickle.loads(pickle.dumps(exported))(x))


@methods
def test_export_keeps_the_mode_of_each_layer_and_works_anywhere(method):
    model, x = make(method, "images"), batch("images")
    model.module.trunk[1].eval()
    expected = model(x, preference=A)
    with model.at([1.0, 0.0]), torch.no_grad():
        exported = model.export(A)
    assert exported.training and not exported.trunk[1].training
    assert all(p.requires_grad for p in exported.parameters())
    assert torch.allclose(exported(x), expected, rtol=0, atol=1e-14)
    with torch.inference_mode():
        exported = model.export(A)
    exported(x).sum().backward()
    assert all(p.grad is not None for p in exported.parameters())


@methods
def test_frozen_parameters_stay_frozen(method):
    user = mlp()
    user[2].bias.requires_grad_(False)
    model = METHODS[method](user)
    value = user[2].bias.clone()
    for p in model.parameters():
        if p.requires_grad:
            p.data.add_(0.1)
    assert torch.equal(model.module[2].bias, value)
    exported = model.export(A)
    assert torch.equal(exported[2].bias, value)
    assert [name for name, p in exported.named_parameters() if not p.requires_grad] == ["2.bias"]
    assert [name for name, _ in exported.named_parameters()] == [name for name, _ in user.named_parameters()]


@methods
@networks
def test_state_dict(method, network):
    model, x = make(method, network), batch(network)
    state = model.state_dict()
    with model.at(A):
        assert list(model.state_dict()) == list(state)
    torch.manual_seed(9)
    other = METHODS[method](NETWORKS[network]())
    assert not torch.equal(other(x, preference=A), model(x, preference=A))
    other = METHODS[method](NETWORKS[network]())
    other.load_state_dict(copy.deepcopy(model.state_dict()), strict=True)
    assert torch.equal(other(x, preference=A), model(x, preference=A))
    assert equal_states(other.state_dict(), model.state_dict())


def copies(model):
    yield copy.deepcopy(model)
    yield pickle.loads(pickle.dumps(model))
    file = io.BytesIO()
    torch.save(nn.ModuleDict({"inside": model}), file)
    file.seek(0)
    yield torch.load(file, weights_only=False)["inside"]
    yield copy.deepcopy(copy.deepcopy(model))
    yield copy.deepcopy(nn.Sequential(model))[0]


@methods
@networks
def test_copies(method, network):
    model, x = make(method, network).eval(), batch(network)
    expected = model(x, preference=A)
    with model.at([0.5, 0.5]):
        for other in copies(model):
            assert type(other) is type(model) and other.n_objectives == 2
            assert [name for name, _ in other.named_parameters()] == [name for name, _ in model.named_parameters()]
            assert equal_states(other.state_dict(), model.state_dict())
            assert {id(p) for p in other.parameters()}.isdisjoint(id(p) for p in model.parameters())
            with pytest.raises(ValueError, match="no preference"):  # the active preference is not copied
                other(x)
            with other.at(A):
                assert torch.equal(other(x), expected)
                assert torch.equal(model(x), model(x, preference=[0.5, 0.5]))
            assert torch.equal(other.export(A)(x), model.export(A)(x))
            stir(other.train())
            assert not torch.equal(other(x, preference=A), expected)
            assert torch.equal(model(x, preference=A), expected)
            other(x, preference=A).sum().backward()
            assert repr(other) == repr(model)


@methods
def test_an_optimizer_saved_with_the_model_still_trains_it(method):
    model, x = make(method, "mlp"), batch("mlp")
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    model, optimizer = pickle.loads(pickle.dumps((model, optimizer)))
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert trained == {id(p) for p in model.parameters() if p.requires_grad}
    before = model(x, preference=A)
    before.square().sum().backward()
    optimizer.step()
    assert model(x, preference=A).square().sum() < before.square().sum()


@methods
def test_dtype(method):
    for dtype in [torch.float32, torch.bfloat16]:
        model, x = make(method, "mlp"), batch("mlp")
        expected = model(x, preference=A)
        with model.at(A):
            model(x)
            model.to(dtype)
            output = model(x.to(dtype))
        assert output.dtype == dtype
        tolerance = 1e-5 if dtype == torch.float32 else 0.05
        torch.testing.assert_close(output.double(), expected, rtol=tolerance, atol=tolerance)
        output.sum().backward()
        assert all(p.dtype == dtype for p in [*model.parameters(), *model.export(A).parameters()])


@methods
def test_autocast(method):
    """The weights are made in full precision; only what the layers do with them is not."""
    model, x = make(method, "images").float(), batch("images").float()
    exported = model.export(A)
    exact = model(x, preference=A)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, expected = model(x, preference=A), exported(x)
    assert output.dtype == torch.bfloat16 and torch.equal(output, expected)
    assert not torch.equal(output.float(), exact)
    output.float().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize("method", METHODS)
def test_derivatives(method):
    """By finite differences, with respect to every parameter and the preference."""
    model, x = make(method, "mlp"), batch("mlp")
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    values = [model.get_parameter(name).detach().clone().requires_grad_() for name in names]
    a = torch.tensor(A, dtype=torch.float64, requires_grad=True)

    def output(a, *values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (x,), {"preference": a})

    assert torch.autograd.gradcheck(output, (a, *values))


@methods
def test_parameter_groups_are_what_is_trained(method):
    model = make(method, "mlp")
    groups = model.parameter_groups(lr=0.5)
    found = [p for group in groups for p in group["params"]]
    assert len(found) == len(set(found)) and set(found) == {p for p in model.parameters() if p.requires_grad}
    assert [group["lr"] for group in groups] == ([0.5, 1.0] if method == "palora" else [0.5])


@methods
def test_several_backward_passes(method):
    model, x = make(method, "mlp"), batch("mlp")
    params = [p for p in model.parameters() if p.requires_grad]
    output = model(x, preference=A)
    first, second = output[:, 0].sum(), output[:, 1].square().sum()
    with model.at([0.9, 0.1]):  # what holds later does not matter
        rows = [torch.autograd.grad(y, params, retain_graph=True) for y in (first, second, first)]
    for one, again in zip(rows[0], rows[2], strict=True):
        assert torch.equal(one, again)
    (first + second).backward(retain_graph=True)
    for p, one, two in zip(params, *rows[:2], strict=True):
        torch.testing.assert_close(p.grad, one + two)
    grads = [p.grad.clone() for p in params]
    (first + second).backward()
    for p, grad in zip(params, grads, strict=True):
        torch.testing.assert_close(p.grad, 2 * grad)
    assert len({p.grad.data_ptr() for p in params}) == len(params)


@methods
def test_several_preferences_in_one_graph(method):
    model, x = make(method, "mlp"), batch("mlp")
    params = [p for p in model.parameters() if p.requires_grad]
    outputs = [model(x, preference=a) for a in (A, [1.0, 0.0])]
    total = torch.autograd.grad(sum(y.sum() for y in outputs), params)
    alone = [torch.autograd.grad(model(x, preference=a).sum(), params) for a in (A, [1.0, 0.0])]
    for g, one, two in zip(total, *alone, strict=True):
        torch.testing.assert_close(g, one + two)


RAYS = torch.tensor([[1.0, 0.0], [0.75, 0.25], [0.5, 0.5], [0.25, 0.75], [0.0, 1.0]])


def losses_of(output, first, second):
    return [(output.mean(dim=1) - y).square().mean() for y in (first, second)]


def train(model, x, first, second, steps=400):
    """The losses at each ray before and after training with MAdam, ray after ray; every parameter takes part."""

    def table():
        with torch.no_grad():
            return torch.stack([torch.stack(losses_of(model(x, preference=ray), first, second)) for ray in RAYS])

    params = [p for p in model.parameters() if p.requires_grad]
    opt = MAdam(params, lr=1e-2, solver=solvers.Preference(), metric=PreferenceMetric("full", rampup=5))
    before, start = [p.detach().clone() for p in params], table()
    for step in range(steps):
        ray = RAYS[step % len(RAYS)]
        opt.zero_grad()
        with model.at(ray):
            opt.backward(losses_of(model(x), first, second), preference=ray)
        opt.step()
        assert torch.equal(opt.weights, ray.double())
        if step == 4:
            assert all(not torch.equal(p, q) for p, q in zip(params, before, strict=True))
    return start, table()


@pytest.mark.parametrize("method", METHODS)
def test_training_finds_the_front(method):
    """Objectives that want y and -y: at the preference a the best losses are (2 a_2)^2 and (2 a_1)^2 mean(y^2)."""
    x = batch("mlp")
    y = x.sum(dim=1)
    start, end = train(METHODS[method](mlp()), x, y, -y)
    assert (end[:, 0].diff() > 0).all() and (end[:, 1].diff() < 0).all()
    best = (2 * RAYS.flip(1)).square() * y.square().mean()
    assert ((RAYS * (end - best)).sum(dim=1) < 0.25 * (RAYS * start).sum(dim=1)).all()


@methods
def test_training_on_objectives_that_agree(method):
    x = batch("mlp")
    y = x.sum(dim=1)
    start, end = train(METHODS[method](mlp()), x, y, y, steps=150)
    assert (end < 0.5 * start).all()


@methods
def test_three_objectives(method):
    model, x = make(method, "images", objectives=3), batch("images")
    a = [0.2, 0.3, 0.5]
    torch.testing.assert_close(model.export(a)(x), model(x, preference=a))
    with pytest.raises(ValueError, match="vector of 3 numbers"):
        model(x, preference=A)


@methods
def test_a_model_in_evaluation_mode(method):
    model = METHODS[method](Images().eval())
    assert not model.training and not model.module.trunk[1].training and not model.export(A).training


@methods
def test_it_prints_without_a_preference(method):
    text = repr(make(method, "images"))
    assert "n_objectives=2" in text and "bias" in text


@methods
def test_a_model_that_is_one_layer(method):
    model = stir(METHODS[method](nn.Linear(3, 1).double()))
    exported, x = model.export(A), batch("mlp")
    assert type(exported) is nn.Linear
    torch.testing.assert_close(exported(x), model(x, preference=A))
    assert torch.equal(copy.deepcopy(model)(x, preference=A), model(x, preference=A))


@pytest.mark.parametrize("method", ["pamal", "palora"])
def test_caches_of_torch_do_not_outlive_a_preference(method):
    model, x = make(method, "mlp"), batch("mlp")
    expected = [model(x, preference=a) for a in (A, [1.0, 0.0])]
    with parametrize.cached():
        assert torch.equal(model(x, preference=A), expected[0])
        with model.at([1.0, 0.0]):
            assert torch.equal(model(x), expected[1])
            assert torch.equal(model(x, preference=A), expected[0])
            assert torch.equal(model(x), expected[1])


@methods
def test_no_trace_of_inference_mode(method):
    """What was computed for a preference without gradients is not used where they are wanted."""
    model, x = make(method, "mlp").float(), batch("mlp").float()
    for mode in (torch.no_grad(), torch.inference_mode()):
        a = torch.tensor(A, dtype=torch.float64, requires_grad=True)
        with model.at(a):
            with mode:
                model(x)
            model(x).sum().backward()
        assert a.grad is not None and a.grad.abs().min() > 0


class Recomputing(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp()

    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "phn"])
def test_recomputed_activations(method):
    """Outside the context the second forward has no preference and says so; inside it is as the first."""
    x = batch("mlp")
    plain, model = make(method, "mlp"), stir(METHODS[method](Recomputing()))
    with pytest.raises(ValueError, match=r"around backward\(\) too"):
        model(x, preference=A).sum().backward()
    model.zero_grad()
    with model.at(A):
        model(x).sum().backward()
    plain(x, preference=A).sum().backward()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


@methods
def test_arguments_go_through(method):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2).double()

        def forward(self, x, *, scale):
            return {"y": scale * self.layer(input=x)}

    model, x = stir(METHODS[method](Two())), batch("mlp")
    torch.testing.assert_close(model(x, preference=A, scale=3.0)["y"], 3 * model.export(A).layer(x))


@methods
def test_refuses_the_number_of_objectives(method):
    for count in [1, 0, -2, 2.0, True, "2", None]:
        with pytest.raises(ValueError, match="n_objectives must be an integer of at least 2"):
            METHODS[method](mlp(), count)


@methods
def test_refuses_models(method):
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got"):
        METHODS[method](lambda x: x)
    with pytest.raises(ValueError, match=r"model is not complete: 0.weight has no shape yet; call it on a batch"):
        METHODS[method](nn.Sequential(nn.LazyLinear(3)))
    with pytest.raises(ValueError, match="takes a preference already: 0 is a PaLoRA"):
        METHODS[method](nn.Sequential(PaLoRA(mlp())))
    with pytest.raises(ValueError, match=r"finds no layer|model has no"):
        METHODS[method](nn.Tanh())


def test_the_base_says_what_is_missing():
    with pytest.raises(NotImplementedError):
        Conditioned(mlp()).export(A)
