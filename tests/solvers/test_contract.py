"""What every solver keeps, whatever the problem, and what each claims beyond."""

import numpy as np
import pytest
import torch

from madamoo import MultiObjective, solvers
from madamoo.testing import check_solver

STEPS = 5


CLAIMS = {
    "ls": ["simplex", "equivariant", "loss_scale", "gram_scale"],
    "rlw": ["simplex", "loss_scale", "gram_scale", "local"],
    "uw": ["equivariant", "gram_scale", "local"],
    "dwa": ["simplex", "equivariant", "loss_scale", "gram_scale", "local"],
    "mgda": ["simplex", "equivariant", "loss_scale", "gram_scale", "local"],
    "cagrad": ["equivariant", "loss_scale", "gram_scale", "local"],
    "imtll": ["equivariant", "gram_scale", "local"],
    "imtlg": ["equivariant", "loss_scale", "gram_scale", "local"],
    "imtl": ["equivariant", "gram_scale", "local"],
    "pcgrad": ["loss_scale", "gram_scale", "local"],
    "gradnorm": ["simplex", "equivariant", "loss_scale", "gram_scale", "local"],
    "gradvac": ["loss_scale", "gram_scale", "local"],
    "graddrop": ["equivariant", "loss_scale", "gram_scale", "local"],
    "nashmtl": ["equivariant", "loss_scale", "local"],
    "alignedmtl": ["loss_scale"],
    "upgrad": ["equivariant", "loss_scale", "gram_scale"],
    "dualproj": ["equivariant", "loss_scale", "gram_scale"],
    "famo": ["simplex", "equivariant", "gram_scale", "local"],
    "dbmtl": ["equivariant", "gram_scale", "local"],
    "geometricmean": ["equivariant", "gram_scale", "local"],
    "tchebycheff": ["equivariant", "loss_scale", "gram_scale"],
    "smoothtchebycheff": ["equivariant", "gram_scale"],
    "paretomtl": ["equivariant", "loss_scale", "gram_scale"],
    "epo": ["simplex", "equivariant", "loss_scale", "gram_scale"],
    "ferero": ["equivariant", "loss_scale", "gram_scale"],
    "cosmos": ["equivariant", "gram_scale"],
    "rotograd": ["equivariant", "loss_scale", "gram_scale", "local"],
    "preference": ["simplex", "equivariant", "loss_scale", "gram_scale"],
    "lra": ["loss_scale", "gram_scale", "local"],
    "ntk": ["equivariant", "loss_scale", "gram_scale", "local"],
    "ntkpinnacle": ["equivariant", "loss_scale", "gram_scale", "local"],
}


def draw(count, seed=0):
    """Losses of several steps, and the preferences that come with them."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.1, 3.0, (STEPS, count)), rng.dirichlet(np.ones(count), STEPS)


def same_direction(J, a, b, rtol=1e-6):
    """d = J' lambda, up to rounding at the size of what is summed."""
    a, b = np.asarray(a), np.asarray(b)
    size = float(np.abs(a) @ np.linalg.norm(J, axis=1))
    return np.linalg.norm(J.T @ (a - b)) <= rtol * size + 1e-300


def test_every_solver_says_what_it_claims():
    assert set(solvers.available()) == set(CLAIMS), "give each solver a line in CLAIMS"


VARIANTS = {
    "pcgrad:order=fixed": ["loss_scale", "gram_scale", "local"],
    "gradvac:beta=0.5,order=fixed": ["loss_scale", "gram_scale", "local"],
    "nashmtl:max_norm=none": ["equivariant", "loss_scale", "local"],
    "nashmtl:update_every=3": ["equivariant", "loss_scale", "local"],
    "nashmtl:update_every=3,max_norm=none": ["equivariant", "loss_scale", "local"],
    "alignedmtl:scale=median": ["loss_scale"],
    "alignedmtl:scale=rmse": ["loss_scale"],
    "mgda:normalization=l2": ["simplex", "equivariant", "loss_scale", "gram_scale", "local"],
    "mgda:normalization=loss+": ["simplex", "equivariant", "loss_scale", "gram_scale", "local"],
    "preference:normalise=true": ["equivariant", "loss_scale"],
    "rlw:distribution=dirichlet": ["simplex", "loss_scale", "gram_scale", "local"],
    "smoothtchebycheff:mu=0.5,warmup=3": ["equivariant", "gram_scale"],
    "smoothtchebycheff:mu=0.5,warmup=3,log=true": ["equivariant", "gram_scale"],
    "lra:every=3": ["loss_scale", "gram_scale", "local"],
    "dwa:window=1": ["simplex", "equivariant", "loss_scale", "gram_scale", "local"],
    "paretomtl:search_steps=0": ["equivariant", "loss_scale", "gram_scale"],
}


@pytest.mark.parametrize("spec", [*CLAIMS, *VARIANTS])
def test_every_promise_is_kept(spec):
    make = type(solvers.get(spec)) if spec in CLAIMS else lambda: solvers.get(spec)
    check_solver(make, claims={**CLAIMS, **VARIANTS}[spec])


def test_every_kind_of_gradients(name, gradients, solve):
    """Finite weights for each kind, in each order, and at each scale; and the same ones where that is claimed."""
    for kind, J in gradients.items():
        order = np.random.default_rng(1).permutation(len(J))
        P = J[order]
        for dtype in (torch.float32, torch.float64):
            one, other = solvers.get(name), solvers.get(name)
            for losses, preference in zip(*draw(len(J)), strict=True):
                values, p = (torch.as_tensor(x, dtype=dtype) for x in (losses, preference))
                found = solve(one, values, J @ J.T, p)
                assert found.shape == (len(J),) and found.dtype == dtype and not found.requires_grad
                assert found.isfinite().all(), kind
                if "simplex" in CLAIMS[name]:
                    assert (found >= 0).all() and found.sum().item() == pytest.approx(1.0, abs=1e-6)
                if "equivariant" in CLAIMS[name] and dtype == torch.float64:
                    again = solve(other, losses[order], P @ P.T, torch.as_tensor(preference[order]))
                    assert same_direction(P, found[order], again), kind
    check_scales(name, gradients, solve)


def check_scales(name, gradients, solve):
    for kind in ("random", "two alike", "a zero", "opposite, not equal", "unlike sizes"):
        J = gradients[kind]
        for scale in (1e-12, 1e-3, 1e6):
            plain, scaled = solvers.get(name), solvers.get(name)
            for losses, preference in zip(*draw(len(J)), strict=True):
                preference = torch.as_tensor(preference)
                a = solve(plain, losses, J @ J.T, preference)
                by_loss = scale if "loss_scale" in CLAIMS[name] else 1.0
                by_gram = scale if "gram_scale" in CLAIMS[name] else 1.0
                b = solve(scaled, by_loss * losses, by_gram * (J @ J.T), preference)
                assert same_direction(J, a, b), (kind, scale)
                assert solve(solvers.get(name), scale * losses, scale * (J @ J.T), preference).isfinite().all()


def test_in_the_optimizer_nothing_of_the_solver_is_the_users(name):
    """A few steps on a real problem: finite weights, parameters that move, no parameter of the solver among them."""
    model = torch.nn.Linear(3, 4).double()
    before = model.weight.detach().clone()
    opt = MultiObjective(torch.optim.SGD(model.parameters(), lr=1e-2), solvers.get(name))
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for _ in range(3):
        opt.zero_grad()
        opt.backward([(model(x)[:, i] - i).square().mean() for i in range(4)])
        opt.step()
    assert opt.weights.isfinite().all() and model.weight.isfinite().all()
    assert not torch.equal(model.weight, before)
    assert {id(p) for g in opt.param_groups for p in g["params"]} == {id(p) for p in model.parameters()}


# -- the table of names ----------------------------------------------------------------------------------------------


def test_names():
    names = solvers.available()
    assert names == sorted(names) and {"ls", "rlw", "uw", "dwa", "mgda", "cagrad", "preference"} <= set(names)
    for name in names:
        solver = solvers.get(name)
        assert type(solver).__name__.lower() == name and type(solvers.get(name.upper())) is type(solver)
        assert getattr(solvers, type(solver).__name__) is type(solver) and type(solver).__name__ in solvers.__all__
    assert {type(solvers.get(name)).__name__ for name in names} == {
        name for name in solvers.__all__ if isinstance(getattr(solvers, name), type) and name != "Solver"
    }
