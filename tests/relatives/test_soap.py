"""SOAP against a dense version in numpy, another implementation, Adam, and rotations of the problem."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from helpers import same
from madamoo import MultiObjective, PreferenceMetric
from madamoo.metric import EigenBasis
from madamoo.relatives import SOAP


def gradients(shape, steps, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scale = torch.logspace(0, -2, shape[-1], dtype=torch.float64)
    found = [torch.randn(shape, generator=generator, dtype=torch.float64) * scale + 0.1 for _ in range(steps)]
    return [g.to(dtype) for g in found]


def run(make, start, given):
    """The parameter after each of the given gradients."""
    param = nn.Parameter(start.clone())
    opt = make([param])
    found = []
    for g in given:
        param.grad = g.clone()
        opt.step()
        found.append(param.detach().clone())
    return found


def dense(start, given, lr, betas, shampoo_beta, refresh, decay, eps=1e-8, longest=10**9, sides="both"):
    """On flattened matrices, by one large rotation Q_L x Q_R; all in numpy."""
    w, first = start.numpy().reshape(len(start), -1).copy(), given[0].numpy().reshape(len(start), -1)
    rows, columns = w.shape
    use = [1 < size <= longest for size in (rows, columns)]
    if sides == "shorter" and all(use):
        use = [rows < columns, rows >= columns]
    factors = [(1 - shampoo_beta) * first @ first.T, (1 - shampoo_beta) * first.T @ first]
    bases = [np.linalg.eigh(f)[1][:, ::-1] if u else np.eye(len(f)) for f, u in zip(factors, use, strict=True)]
    m, v, found = np.zeros(w.size), np.zeros((rows, columns)), [start.clone()]
    for t, g in enumerate(given[1:], 1):
        g = g.numpy().reshape(rows, columns)
        rotation = np.kron(bases[0], bases[1])  # of a matrix written row by row
        m = betas[0] * m + (1 - betas[0]) * g.ravel()
        v = betas[1] * v + (1 - betas[1]) * (rotation.T @ g.ravel()).reshape(rows, columns) ** 2
        step = (rotation.T @ m) / (1 - betas[0] ** t)
        step = step / (np.sqrt(v.ravel() / (1 - betas[1] ** t)) + eps)
        w = w * (1 - lr * decay) - lr * (rotation @ step).reshape(rows, columns)
        factors = [shampoo_beta * f + (1 - shampoo_beta) * x for f, x in zip(factors, (g @ g.T, g.T @ g), strict=True)]
        for side in range(2):
            if use[side] and t % refresh == 0:
                basis = bases[side]
                eigenvalues = [basis[:, k] @ factors[side] @ basis[:, k] for k in range(len(basis))]
                order = np.argsort(eigenvalues)[::-1]
                v = np.take(v, order, axis=side)
                bases[side] = np.linalg.qr(factors[side] @ basis[:, order])[0]
        found.append(torch.from_numpy(w.copy()).reshape(start.shape))
    return found


@pytest.mark.parametrize(
    "shape, options",
    [
        ((4, 4), {}),
        ((3, 3), {"refresh": 1, "shampoo_beta": 0.8}),
        ((3, 4), {"refresh": 3, "max_precond_dim": 3}),
        ((5, 3), {"refresh": 2, "max_precond_dim": 4, "weight_decay": 0.3}),
        ((4, 2, 1, 2), {"refresh": 2}),
        ((2, 2), {"betas": (0.0, 0.9)}),
        ((3, 4), {"refresh": 3, "sides": "shorter"}),
        ((5, 3), {"refresh": 2, "sides": "shorter"}),
        ((3, 3), {"refresh": 2, "sides": "shorter"}),
    ],
)
def test_it_equals_the_dense_version(shape, options):
    """One-sided where asked for or too long; convolutions as matrices. Of full rank: a null space has no one basis."""
    given, start = gradients(shape, 12), torch.ones(shape, dtype=torch.float64)
    found = run(lambda params: SOAP(params, lr=0.1, **options), start, given)
    betas = options.get("betas", (0.95, 0.95))
    expected = dense(
        start,
        given,
        0.1,
        betas,
        options.get("shampoo_beta", betas[1]),
        options.get("refresh", 10),
        options.get("weight_decay", 0.0),
        longest=options.get("max_precond_dim", 10**9),
        sides=options.get("sides", "both"),
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert torch.equal(found[0], start), "the first gradient makes the basis alone"


def test_it_rotates_the_sides_that_the_metric_rotates():
    """But for a single row or column, whose long side is not the shorter one for the metric."""
    for m, n, longest, sides in itertools.product((1, 2, 3, 5), (1, 2, 3, 5), (1, 2, 3, 9), ("both", "shorter")):
        param = nn.Parameter(torch.ones(m, n))
        param.grad = torch.ones(m, n)
        opt = SOAP([param], max_precond_dim=longest, sides=sides)
        opt.step()
        found = tuple(side in opt.state[param] for side in ("left", "right"))
        one = EigenBasis(longest=longest, sides="both" if 1 in (m, n) else sides)
        assert found == one.turned((m, n)), (m, n, longest, sides)


def test_it_equals_another_implementation():
    """pytorch-optimizer's, whose QR is in float32."""
    other = pytest.importorskip("pytorch_optimizer")
    given, start = gradients((5, 5), 25), torch.zeros(5, 5, dtype=torch.float64)
    betas = (0.9, 0.97)
    found = run(lambda params: SOAP(params, lr=0.1, betas=betas, eps=0.0, refresh=4), start, given)
    expected = run(
        lambda params: other.SOAP(params, lr=0.1, betas=betas, eps=0.0, precondition_frequency=4, weight_decay=0.0),
        start,
        given,
    )
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape, options", [((4, 3), {"max_precond_dim": 1}), ((7,), {}), ((), {}), ((1, 1), {})])
def test_without_a_basis_it_is_adamw(shape, options):
    given = [torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(t)) for t in range(8)]
    start = torch.ones(shape, dtype=torch.float64)
    shared = {"lr": 0.1, "betas": (0.9, 0.99), "weight_decay": 0.2}
    found = run(lambda params: SOAP(params, **shared, **options), start, given)
    expected = run(lambda params: torch.optim.AdamW(params, **shared), start, given)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_a_rotated_problem_has_the_rotated_solution():
    """Adam's has not."""
    generator = torch.Generator().manual_seed(1)
    u, v = (torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64)).Q for _ in range(2))
    x, y = (torch.randn(40, 5, generator=generator, dtype=torch.float64) for _ in range(2))

    def train(make, left, right):
        w = nn.Parameter(left @ torch.eye(5, dtype=torch.float64) @ right.T)
        opt = make([w])
        for t in range(30):
            inputs, targets = x[t % 4 :: 4] @ right.T, y[t % 4 :: 4] @ left.T
            opt.zero_grad()
            (inputs @ w.T - targets).square().mean().backward()
            opt.step()
        return left.T @ w.detach() @ right

    one = torch.eye(5, dtype=torch.float64)
    for make, invariant in (
        (lambda p: SOAP(p, lr=0.05, refresh=3), True),
        (lambda p: torch.optim.Adam(p, 0.05), False),
    ):
        plain, rotated = train(make, one, one), train(make, u, v)
        assert torch.allclose(plain, rotated, rtol=1e-8, atol=1e-8) == invariant
        assert not torch.allclose(plain, one, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_resumed_it_goes_on_as_if_nothing_had_happened(tmp_path, dtype):
    def build():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 1)).to(
                dtype
            )
        return net, SOAP(net.parameters(), lr=0.01, refresh=2)

    def steps(net, opt, times):
        for t in times:
            x = torch.randn(6, 2, 3, 3, generator=torch.Generator().manual_seed(t)).to(dtype)
            opt.zero_grad()
            net(x).square().mean().backward()
            opt.step()

    net, opt = build()
    steps(net, opt, range(5))
    torch.save([net.state_dict(), opt.state_dict()], tmp_path / "file.pt")
    clones = [copy.deepcopy((net, opt)), pickle.loads(pickle.dumps((net, opt)))]
    steps(net, opt, range(5, 9))
    fresh, again = build()
    weights, state = torch.load(tmp_path / "file.pt", weights_only=True)
    fresh.load_state_dict(weights)
    again.load_state_dict(state)
    for other, its in [(fresh, again), *clones]:
        steps(other, its, range(5, 9))
        assert same([list(net.parameters()), opt.state_dict()], [list(other.parameters()), its.state_dict()])
    tensors = [v for s in opt.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    assert {t.dtype for t in tensors} == {torch.promote_types(dtype, torch.float32)}


def test_a_first_gradient_of_low_rank_and_a_zero_one_do_no_harm():
    start = torch.ones(6, 4)
    column, row = torch.randn(6, 1, generator=torch.Generator().manual_seed(0)), torch.ones(1, 4)
    given = [torch.zeros(6, 4), torch.zeros(6, 4), *(column @ row for _ in range(20))]
    found = run(lambda params: SOAP(params, lr=0.1, refresh=2), start, given)
    assert all(bool(w.isfinite().all()) for w in found)
    moved = (found[-1] - start).norm() / (0.1 * 20 * start.numel() ** 0.5)
    assert 0.01 < moved < 2.0


def test_empty_matrices_do_no_harm():
    for shape in ((0, 5), (5, 0)):
        assert run(lambda params: SOAP(params, lr=0.1), torch.ones(shape), [torch.ones(shape)] * 3)[-1].shape == shape


def test_gradients_whose_squares_underflow_do_no_harm():
    """Of such a Gram matrix in float32, LAPACK finds no eigenvectors, or NaN."""
    generator = torch.Generator().manual_seed(1)
    left, right = torch.randn(288, 3, generator=generator), torch.randn(3, 16, generator=generator)
    given = [*(left @ right * 1e-23 for _ in range(5)), *(left @ right for _ in range(5))]
    found = run(lambda params: SOAP(params, lr=0.1, refresh=2), torch.ones(288, 16), given)
    assert all(bool(w.isfinite().all()) for w in found)


def test_behind_a_metric_and_with_a_closure():
    net = nn.Linear(3, 2, dtype=torch.float64)
    for param in net.parameters():
        nn.init.ones_(param)
    x, y = torch.randn(2, 30, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    opt = MultiObjective(SOAP(net.parameters(), lr=0.05), "uw", PreferenceMetric("full", rampup=5))

    def closure():
        opt.zero_grad()
        losses = [(net(x)[:, i] - y[:, i]).square().mean() for i in range(2)]
        opt.backward(losses)
        return float(sum(losses).detach())

    values = [opt.step(closure) for _ in range(60)]
    assert values[-1] < 0.5 * values[0]


@pytest.mark.parametrize(
    "options, said",
    [
        ({"lr": -1.0}, "lr must be zero or positive and finite, got -1.0"),
        ({"betas": (0.9, 1.0)}, r"betas\[1\] must be at least 0 and below 1, got 1.0"),
        ({"shampoo_beta": 2.0}, "shampoo_beta must be at least 0 and below 1, got 2.0"),
        ({"refresh": 0}, "refresh must be an integer, at least 1, got 0"),
        ({"max_precond_dim": 0}, "max_precond_dim must be an integer, at least 1, got 0"),
        ({"sides": "left"}, "sides must be one of 'both', 'shorter', got 'left'"),
    ],
)
def test_wrong_options_are_named(options, said):
    with pytest.raises(ValueError, match=said):
        SOAP([nn.Parameter(torch.ones(2, 2))], **options)


def test_sparse_gradients_are_refused():
    table = nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(TypeError, match="SOAP takes real, dense gradients"):
        SOAP(table.parameters()).step()
