"""What every gradient-balancing solver keeps to: finite weights, symmetries, state, and a way to the Pareto set."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from gram_matrices import angle, edge_cases, gradients, solve
from madamoo import MultiObjective, PreferenceMetric
from madamoo.solvers._alignedmtl import AlignedMTL
from madamoo.solvers._dualproj import DualProj
from madamoo.solvers._gradvac import GradVac
from madamoo.solvers._imtl import IMTL
from madamoo.solvers._imtlg import IMTLG
from madamoo.solvers._nashmtl import NashMTL
from madamoo.solvers._pcgrad import PCGrad
from madamoo.solvers._upgrad import UPGrad

MAKERS = {
    "pcgrad": PCGrad,
    "pcgrad_fixed": lambda: PCGrad("fixed"),
    "gradvac": GradVac,
    "gradvac_fixed": lambda: GradVac(0.5, "fixed"),
    "imtlg": IMTLG,
    "imtl": IMTL,
    "nashmtl": NashMTL,
    "nashmtl_free": lambda: NashMTL(None),
    "nashmtl_every_3": lambda: NashMTL(update_every=3),
    "alignedmtl": AlignedMTL,
    "alignedmtl_median": lambda: AlignedMTL(scale="median"),
    "alignedmtl_rmse": lambda: AlignedMTL(scale="rmse"),
    "upgrad": UPGrad,
    "dualproj": DualProj,
}
EVERY = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def some(names):
    return pytest.mark.parametrize("make", [MAKERS[name] for name in names], ids=names)


def batches(count, steps=6):
    generator = torch.Generator().manual_seed(count)
    for _ in range(steps):
        rows = torch.randn(count, 2 * count, generator=generator, dtype=torch.float64)
        yield torch.rand(count, generator=generator, dtype=torch.float64) + 0.1, rows @ rows.T


@EVERY
def test_finite_on_every_gram_matrix(make):
    for count, dtype in ((1, torch.float64), (2, torch.float32), (7, torch.float64), (40, torch.float32)):
        for gram in edge_cases(count):
            if dtype == torch.float32 and not torch.isfinite(gram.float()).all():
                continue
            losses = torch.rand(count, dtype=dtype, requires_grad=True)
            solver = make()
            for _ in range(2):
                weights = solver.solve(losses, gram.to(dtype))
                assert weights.shape == (count,) and weights.dtype == dtype and not weights.requires_grad
                assert torch.isfinite(weights).all()
                # As the step d is in proportion, so are its parts.
                d = weights.double() @ gram @ weights.double()
                assert torch.isfinite(d)


@EVERY
def test_a_common_factor_does_not_change_the_direction(make):
    for count, factor in itertools.product((2, 5, 12), (1e-15, 1e-6, 1e6, 1e15)):
        J = gradients("plain", count)
        assert angle(solve(make(), factor * J) @ J, solve(make(), J) @ J) < 1e-9


@some(["imtlg", "imtl", "nashmtl", "nashmtl_free"])
def test_the_lengths_of_the_gradients_do_not_matter_to_the_impartial(make):
    for count in (2, 5, 12):
        J = gradients("plain", count)
        factors = 10 ** np.random.default_rng(count).uniform(-4, 4, (count, 1))
        assert angle(solve(make(), factors * J) @ (factors * J), solve(make(), J) @ J) < 1e-9


@some(["nashmtl", "nashmtl_free", "alignedmtl", "upgrad", "imtlg"])
def test_orthogonal_gradients_are_all_descended(make):
    J = np.diag([1.0, 2.0, 5.0])
    assert (J @ (solve(make(), J) @ J) > 0).all()


@some(["pcgrad", "pcgrad_fixed", "gradvac", "gradvac_fixed"])
def test_without_conflict_the_weights_are_one(make):
    J = np.abs(gradients("plain", 5))
    np.testing.assert_array_equal(solve(make(), J), np.ones(5))


@pytest.mark.parametrize("make", [PCGrad, GradVac])
def test_the_seed_decides_the_order(make):
    def run(seed):
        solver = make(seed=seed)
        return torch.stack([solver.solve(losses, gram) for losses, gram in batches(6)])

    torch.manual_seed(1)
    first = run(3)
    torch.manual_seed(2)
    assert torch.equal(first, run(3))
    assert not torch.equal(first, run(4))


@some(["alignedmtl", "alignedmtl_median", "alignedmtl_rmse", "upgrad", "dualproj"])
def test_given_weights_combine(make):
    J = gradients("plain", 4)
    solver = make()
    equal, doubled = type(solver)([0.25] * 4), type(solver)(torch.tensor([0.5, 0.5, 0.5, 0.5]))
    if hasattr(solver, "scale"):
        equal.scale = doubled.scale = solver.scale
    np.testing.assert_allclose(solve(equal, J), solve(solver, J), rtol=1e-12)
    np.testing.assert_allclose(solve(doubled, J), 2 * solve(solver, J), rtol=1e-12)
    with pytest.raises(ValueError, match="weights must be finite and not negative"):
        type(solver)([1.0, -1.0])
    with pytest.raises(ValueError, match="set up for 4 objectives, got 3"):
        solve(equal, J[:3])
    with pytest.raises(ValueError, match="weights must have 3 entries, one per objective, got"):
        solve(type(solver)([0.25] * 4), J[:3])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: PCGrad("reversed"), "order must be one of 'random', 'fixed', got 'reversed'"),
        (lambda: GradVac(order="reversed"), "order must be one of"),
        (lambda: GradVac(1.0), "beta must be at least 0 and below 1, got 1.0"),
        (lambda: NashMTL(0.0), "max_norm must be positive"),
        (lambda: NashMTL(update_every=0), "update_every must be an integer, at least 1, got 0"),
        (lambda: AlignedMTL(scale="max"), "scale must be one of 'min', 'median', 'rmse', got 'max'"),
    ],
)
def test_wrong_options_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# -- training --------------------------------------------------------------------------------------------------------

SIZE = 6


def quadratics(count):
    """l_i = (x - c_i)' A_i (x - c_i) / 2: the Pareto set is where the hull of the gradients holds zero."""
    generator = torch.Generator().manual_seed(0)
    c = torch.randn(count, SIZE, generator=generator, dtype=torch.float64)
    B = torch.randn(count, SIZE, SIZE, generator=generator, dtype=torch.float64)
    return c, torch.eye(SIZE, dtype=torch.float64) + 0.3 * B @ B.mT / SIZE


def train(solver, count, metric, steps=150):
    c, A = quadratics(count)
    x = torch.nn.Parameter(torch.full((SIZE,), 2.0, dtype=torch.float64))
    inner = torch.optim.Adam([x], lr=0.2)
    opt = MultiObjective(inner, solver, metric)
    schedule = torch.optim.lr_scheduler.LambdaLR(inner, lambda t: (1 - t / steps) ** 2)
    history = []
    for _ in range(steps):
        losses = 0.5 * torch.einsum("ci,cij,cj->c", x - c, A, x - c)
        history.append(losses.detach().numpy())
        opt.zero_grad()
        opt.backward(losses)
        opt.step()
        schedule.step()
    J = torch.einsum("cij,cj->ci", A, (x - c).detach()).numpy()
    return np.array(history), J, opt.weights.numpy()


def distance_to_pareto(J):
    """Length of the shortest vector in the hull of the gradients."""
    w, _ = nnls(np.vstack([J.T, 1e4 * np.ones(len(J))]), np.r_[np.zeros(J.shape[1]), 1e4])
    return np.linalg.norm(w @ J)


@some(["pcgrad", "gradvac", "nashmtl", "alignedmtl", "upgrad", "dualproj", "imtlg", "imtl"])
@pytest.mark.parametrize("count, metric", [(2, "metric"), (5, None)])
def test_ends_at_the_pareto_set(make, count, metric):
    metric = None if metric is None else PreferenceMetric(rampup=5)
    history, J, weights = train(make(), count, metric)
    assert (history[-1] < 0.5 * history[0]).all()
    if make in (IMTLG, IMTL) and count > 2:
        # Weights of both signs may cancel elsewhere, too: equal projections are all that is promised.
        assert np.ptp(units_projections(J, weights)) < 0.05 * np.linalg.norm(J)
        return
    assert distance_to_pareto(J) < 0.02 * np.linalg.norm(J, axis=1).mean()


def units_projections(J, weights):
    return J @ (weights @ J) / np.linalg.norm(J, axis=1)
