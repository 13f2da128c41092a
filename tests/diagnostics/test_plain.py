"""The diagnosis alone: a plain torch optimizer, and probe.backward in place of backward."""

import pytest
import torch

from diagnostics.oracle import Oracle, compare
from helpers import Net, inf_loss, same, same_params
from madamoo import diagnostics

INNERS = {
    "Adam": lambda net: torch.optim.Adam(net.parameters(), lr=1e-2),
    "fused": lambda net: torch.optim.Adam(net.parameters(), lr=1e-2, fused=True),
    "SGD": lambda net: torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9),
}
inners = pytest.mark.parametrize("inner", INNERS)
FORMS = {
    "tensor": lambda losses: 1.0 * torch.stack(losses),
    "stack": torch.stack,
    "list": list,
    "dict": lambda losses: dict(zip("abc", losses, strict=True)),
}
WEIGHTS = [0.2, 0.3, 0.5]


class Given:
    """What the oracle asks of an optimizer."""

    def __init__(self, weights):
        self.weights = torch.tensor(weights, dtype=torch.float64)


GIVEN = [*((form, w) for form in FORMS for w in (None, WEIGHTS, "tensor")), ("dict", "names")]


@pytest.mark.parametrize("form, weights", GIVEN)
def test_the_gradients_are_those_of_autograd_bit_for_bit(form, weights):
    for inner, dtype in (("Adam", torch.float64), ("fused", torch.float32), ("SGD", torch.float32)):
        nets = [Net(dtype=dtype), Net(dtype=dtype)]
        optimizers = [INNERS[inner](net) for net in nets]
        probe = diagnostics.attach(optimizers[1], every=2)
        vector = torch.tensor(WEIGHTS if weights is not None else [1 / 3] * 3, dtype=dtype)
        passed = {"tensor": vector, "names": dict(zip("abc", WEIGHTS, strict=True))}.get(str(weights), weights)
        for t in range(4):
            optimizers[0].zero_grad()
            (vector * torch.stack(nets[0].losses(t))).sum().backward()
            optimizers[1].zero_grad()
            probe.backward(FORMS[form](nets[1].losses(t)), passed)
            assert same([p.grad for p in nets[0].parameters()], [p.grad for p in nets[1].parameters()])
            for optimizer in optimizers:
                optimizer.step()
        assert same_params(*nets)
        assert [r["step"] for r in probe.rows] == [0, 2]


@pytest.mark.parametrize("inner, parts", [("Adam", 1), ("Adam", 3), ("fused", 1), ("SGD", 3)])
def test_rows_equal_brute_force(inner, parts):
    net = Net()
    optimizer = INNERS[inner](net)
    probe = diagnostics.attach(optimizer, every=3)
    oracle = Oracle(net, Given(WEIGHTS))
    for t in range(7):
        optimizer.zero_grad()
        for part in range(parts):
            probe.backward(net.losses(t, part, parts), WEIGHTS)
        oracle.look([net.losses(t, part, parts) for part in range(parts)])
        optimizer.step()
        assert probe.measured == (t % 3 == 0)
        if probe.measured:
            compare(probe.rows[-1], oracle.row(adam=inner != "SGD"))
    assert len(probe.rows) == 3


def test_a_closure():
    nets = [Net(), Net()]
    optimizers = [INNERS["Adam"](net) for net in nets]
    probe = diagnostics.attach(optimizers[1], every=2)
    for t in range(4):

        def closure(t=t):
            optimizers[0].zero_grad()
            loss = (torch.full((3,), 1 / 3, dtype=torch.float64) * torch.stack(nets[0].losses(t))).sum()
            loss.backward()
            return loss

        def probed(t=t):
            optimizers[1].zero_grad()
            losses = nets[1].losses(t)
            probe.backward(losses)
            return sum(losses)

        optimizers[0].step(closure)
        optimizers[1].step(probed)
    assert same_params(*nets)
    assert [r["step"] for r in probe.rows] == [0, 2]
    assert all(value < 0 for value in probe.rows[0]["predicted"].values())


@pytest.mark.parametrize("inner, set_to_none", [("Adam", True), ("fused", False), ("SGD", True), ("SGD", False)])
def test_a_step_that_is_discarded_leaves_no_row(inner, set_to_none):
    """Whether another backward comes before the next step, or none."""
    rows = []
    for discard in (False, True):
        net = Net()
        optimizer = INNERS[inner](net)
        probe = diagnostics.attach(optimizer, every=2)
        for t in range(4):
            if discard:
                probe.backward(net.losses(50 + t))
            optimizer.zero_grad(set_to_none)
            if t == 2:
                optimizer.step()  # a step without gradients
            probe.backward(net.losses(t))
            optimizer.step()
            optimizer.zero_grad(set_to_none)
        rows.append([{k: v for k, v in row.items() if k != "seconds"} for row in probe.rows])
    assert [row["step"] for row in rows[0]] == [0, 3, 4]
    assert same(*rows)


@inners
def test_a_scaler_that_skips_some_steps(inner):
    """The fused optimizer is called all the same, and skips by itself."""
    nets = [Net(dtype=torch.float32), Net(dtype=torch.float32)]
    probes = []
    for probed, net in enumerate(nets):
        optimizer, scaler = INNERS[inner](net), torch.amp.GradScaler("cpu", init_scale=2.0**12)
        if probed:
            probes.append(diagnostics.attach(optimizer, every=2))
        for t in range(6):
            losses = inf_loss(net.losses(t)) if t in (0, 3) else net.losses(t)
            optimizer.zero_grad()
            if probed:
                probes[0].backward(losses, scaler=scaler)
            else:
                scaler.scale((torch.full((3,), 1 / 3) * torch.stack(losses)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert same_params(*nets)
    (probe,) = probes
    assert [r["step"] for r in probe.rows] == [0, 2]
    assert all(r["losses"]["1"] is not None for r in probe.rows)


def test_an_objective_that_the_batch_lacks():
    nets = [Net(), Net()]
    optimizers = [INNERS["Adam"](net) for net in nets]
    probe = diagnostics.attach(optimizers[1], every=1, objectives=["a", "b", "c"])
    a, _, c = nets[0].losses(0)
    (torch.tensor([0.2, 0.5], dtype=torch.float64) * torch.stack([a, c])).sum().backward()
    a, _, c = nets[1].losses(0)
    probe.backward({"c": c, "a": a, "b": None}, WEIGHTS)
    assert same([p.grad for p in nets[0].parameters()], [p.grad for p in nets[1].parameters()])
    optimizers[1].step()
    assert probe.rows[0]["weights"] == {"a": 0.2, "b": None, "c": 0.5}
    optimizers[1].zero_grad()
    probe.backward(dict(zip("abc", nets[1].losses(1), strict=True)))
    optimizers[1].step()
    assert probe.rows[1]["losses"]["b"] is not None


def test_a_run_that_diverges_is_recorded_with_none_and_goes_on_as_torch_does():
    net = Net()
    optimizer = INNERS["Adam"](net)
    probe = diagnostics.attach(optimizer, every=1)
    probe.backward(inf_loss(net.losses(0)))
    optimizer.step()
    assert probe.rows[0]["losses"]["1"] is None
    assert probe.rows[0]["effects"]["adam"]["0"] is None
    assert bool(torch.isnan(net.trunk[0].weight).any())


@pytest.mark.parametrize(
    "weights, match",
    [([1.0], "3 entries"), ({"a": 1.0}, "must name the objectives"), (torch.ones(3, 1), "3 entries")],
)
def test_weights_that_do_not_fit(weights, match):
    net = Net()
    probe = diagnostics.attach(INNERS["Adam"](net))
    with pytest.raises(ValueError, match=match):
        probe.backward(net.losses(0), weights)
    assert all(p.grad is None for p in net.parameters())


def test_micro_batches_must_agree_on_the_weights():
    net = Net()
    optimizer = INNERS["Adam"](net)
    probe = diagnostics.attach(optimizer)
    probe.backward(net.losses(0), WEIGHTS)
    with pytest.raises(ValueError, match="same in every micro-batch"):
        probe.backward(net.losses(1))
    optimizer.step()
    assert len(probe.rows) == 1


def test_the_graph_is_kept_on_request_only():
    net = Net()
    probe = diagnostics.attach(INNERS["Adam"](net))
    losses = net.losses(0)
    probe.backward(losses, retain_graph=True)
    probe.backward(losses)
    with pytest.raises(RuntimeError, match="second time"):
        probe.backward(losses)
