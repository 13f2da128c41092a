"""What every solver keeps, whatever the problem, and what each promises beyond."""

import io
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from madamoo import MultiObjective, solvers

KINDS = [
    "random",
    "agreeing",
    "one",
    "two alike",
    "all alike",
    "a zero",
    "all zero",
    "opposite",
    "opposite, not equal",
    "forty",
    "forty, rank five",
    "rank two",
    "ill-conditioned",
    "unlike sizes",
]
STEPS = 5


@dataclass(frozen=True)
class Promise:
    """What a solver says of its weights. A new solver gets a line in the table below."""

    simplex: bool = False
    """They are not negative and sum to 1."""
    equivariant: bool = False
    """Renaming the objectives renames them, and nothing else."""
    loss_scale: bool = False
    """They stay when all losses are multiplied by one number."""
    gram_scale: bool = False
    """They stay when all gradients are multiplied by one number."""
    local: bool = False
    """For a batch that lacks objectives they are those of a solver that knows the others only."""


PROMISES = {
    "ls": Promise(simplex=True, equivariant=True, loss_scale=True, gram_scale=True),
    "rlw": Promise(simplex=True, loss_scale=True, gram_scale=True, local=True),
    "uw": Promise(equivariant=True, gram_scale=True, local=True),
    "dwa": Promise(simplex=True, equivariant=True, loss_scale=True, gram_scale=True, local=True),
    "mgda": Promise(simplex=True, equivariant=True, loss_scale=True, gram_scale=True, local=True),
    "cagrad": Promise(equivariant=True, loss_scale=True, gram_scale=True, local=True),
    "imtll": Promise(equivariant=True, gram_scale=True, local=True),
    "imtlg": Promise(equivariant=True, loss_scale=True, gram_scale=True, local=True),
    "imtl": Promise(equivariant=True, gram_scale=True, local=True),
    "pcgrad": Promise(loss_scale=True, gram_scale=True, local=True),
    "gradnorm": Promise(simplex=True, equivariant=True, loss_scale=True, gram_scale=True, local=True),
    "gradvac": Promise(loss_scale=True, gram_scale=True, local=True),
    "graddrop": Promise(equivariant=True, loss_scale=True, gram_scale=True, local=True),
    "nashmtl": Promise(equivariant=True, loss_scale=True, local=True),
    "alignedmtl": Promise(loss_scale=True),
    "upgrad": Promise(equivariant=True, loss_scale=True, gram_scale=True),
    "dualproj": Promise(equivariant=True, loss_scale=True, gram_scale=True),
    "famo": Promise(simplex=True, equivariant=True, gram_scale=True, local=True),
    "dbmtl": Promise(equivariant=True, gram_scale=True, local=True),
    "geometricmean": Promise(equivariant=True, gram_scale=True, local=True),
    "tchebycheff": Promise(equivariant=True, loss_scale=True, gram_scale=True),
    "smoothtchebycheff": Promise(equivariant=True, gram_scale=True),
    "paretomtl": Promise(equivariant=True, loss_scale=True, gram_scale=True),
    "epo": Promise(simplex=True, equivariant=True, loss_scale=True, gram_scale=True),
    "ferero": Promise(equivariant=True, loss_scale=True, gram_scale=True),
    "cosmos": Promise(equivariant=True, gram_scale=True),
    "rotograd": Promise(equivariant=True, loss_scale=True, gram_scale=True, local=True),
    "preference": Promise(simplex=True, equivariant=True, loss_scale=True, gram_scale=True),
}


def promised(what):
    return [name for name in solvers.available() if getattr(PROMISES.get(name, Promise()), what)]


def draw(count, seed=0):
    """Losses of several steps, and the preferences that come with them."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.1, 3.0, (STEPS, count)), rng.dirichlet(np.ones(count), STEPS)


def same_direction(J, a, b, rtol=1e-6):
    """d = J' lambda, up to rounding at the size of what is summed."""
    a, b = np.asarray(a), np.asarray(b)
    size = float(np.abs(a) @ np.linalg.norm(J, axis=1))
    return np.linalg.norm(J.T @ (a - b)) <= rtol * size + 1e-300


def test_every_solver_says_what_it_promises():
    assert set(solvers.available()) == set(PROMISES), "give each solver a line in PROMISES"


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_finite_numbers_one_an_objective(name, kind, dtype, gradients, solve):
    J = gradients[kind]
    solver = solvers.get(name)
    for losses, preference in zip(*draw(len(J)), strict=True):
        found = solve(solver, torch.as_tensor(losses, dtype=dtype), J @ J.T, torch.as_tensor(preference, dtype=dtype))
        assert found.shape == (len(J),) and found.dtype == dtype and not found.requires_grad
        assert found.isfinite().all()
        if name in promised("simplex"):
            assert (found >= 0).all() and found.sum().item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", promised("equivariant"))
@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_the_objectives_does_not_matter(name, kind, gradients, solve):
    J = gradients[kind]
    order = np.random.default_rng(1).permutation(len(J))
    one, other = solvers.get(name), solvers.get(name)
    for losses, preference in zip(*draw(len(J)), strict=True):
        a = solve(one, losses, J @ J.T, torch.as_tensor(preference))
        P = J[order]
        b = solve(other, losses[order], P @ P.T, torch.as_tensor(preference[order]))
        assert same_direction(P, a[order], b)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e-3, 1e3, 1e6])
@pytest.mark.parametrize("kind", ["random", "two alike", "forty", "a zero", "opposite, not equal", "unlike sizes"])
def test_scales(name, kind, scale, gradients, solve):
    """Losses and Gram matrix of any size give finite weights, and the same ones where that is promised."""
    J = gradients[kind]
    plain, scaled = solvers.get(name), solvers.get(name)
    for losses, preference in zip(*draw(len(J)), strict=True):
        preference = torch.as_tensor(preference)
        a = solve(plain, losses, J @ J.T, preference)
        by_loss = scale if name in promised("loss_scale") else 1.0
        by_gram = scale if name in promised("gram_scale") else 1.0
        b = solve(scaled, by_loss * losses, by_gram * (J @ J.T), preference)
        assert same_direction(J, a, b)
        assert solve(solvers.get(name), scale * losses, scale * (J @ J.T), preference).isfinite().all()


def test_state_travels_into_a_fresh_solver(name, gradients, solve):
    """One that knows nothing yet, not even C; through a file that holds tensors and plain values only."""
    J = gradients["random"]
    K = J @ J.T
    old = solvers.get(name)
    losses, preferences = (torch.as_tensor(x) for x in draw(4))
    for t in range(3):
        solve(old, losses[t], K, preferences[t], present=[0, 1, 3] if t == 1 else None)
    file = io.BytesIO()
    torch.save(old.state_dict(), file)
    file.seek(0)
    new = solvers.get(name)
    new.load_state_dict(torch.load(file, weights_only=True))
    for t in range(STEPS):
        a, b = (solve(s, losses[t], K, preferences[t]) for s in (old, new))
        assert torch.equal(a, b)


def test_an_unused_solver_travels_too(name):
    new = solvers.get(name)
    new.load_state_dict(solvers.get(name).state_dict())
    assert new.n_objectives is None


def test_a_state_of_other_size_is_refused(name, gradients, solve):
    four, two = solvers.get(name), solvers.get(name)
    solve(four, draw(4)[0][0], gradients["random"] @ gradients["random"].T)
    J = gradients["opposite"]
    solve(two, draw(2)[0][0], J @ J.T)
    with pytest.raises(ValueError, match=r"set up for 2 objectives, got 4"):
        solve(two, draw(4)[0][0], np.eye(4))


def test_missing_objectives_rest(name, gradients, solve):
    """Weight 0, and nothing of theirs changes; NaN is what stands for a missing loss."""
    J = gradients["random"].copy()
    solver, part = solvers.get(name), solvers.get(name)
    losses, preferences = draw(4)
    solve(solver, losses[0], J @ J.T, torch.as_tensor(preferences[0]))
    before = {key: getattr(solver, key).clone() for key in solver.per_objective}
    losses[:, 2], J[2], present = np.nan, 0.0, [0, 1, 3]
    found = solve(solver, losses[1], J @ J.T, torch.as_tensor(preferences[1]), present)
    assert found[2] == 0 and found.isfinite().all()
    assert solver.n_objectives == 4
    for key, buffer in before.items():
        after = getattr(solver, key)
        assert after.shape == buffer.shape
        for dim in range(buffer.dim()):
            torch.testing.assert_close(after.select(dim, 2), buffer.select(dim, 2), rtol=0, atol=0, equal_nan=True)

    if name in promised("local"):  # the same two steps, in a solver that has never heard of the third
        solver = solvers.get(name)
        for t in range(2):
            whole = solve(solver, losses[t], J @ J.T, torch.as_tensor(preferences[t]), present)
            alone = solve(part, losses[t][present], (J @ J.T)[np.ix_(present, present)])
            torch.testing.assert_close(whole[present], alone)


@pytest.mark.parametrize("name", [n for n in solvers.available() if solvers.get(n).needs_gram])
def test_a_missing_gram_matrix_is_named(name):
    with pytest.raises((TypeError, ValueError), match="gram"):
        solvers.get(name).weights(torch.ones(2))


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


def test_unknown_names_and_options_are_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="'cagard'") as error:
        solvers.get("cagard")
    assert all(name in str(error.value) for name in solvers.available())
    with pytest.raises(TypeError, match=r"CAGrad has no option 'alpha'; it has c"):
        solvers.get("cagrad", alpha=0.4)
    assert solvers.get("cagrad", c=0.7).c == 0.7
