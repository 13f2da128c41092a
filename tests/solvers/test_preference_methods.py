"""One step of ParetoMTL, EPO, FERERO and COSMOS, against their definitions."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize, nnls

from madamoo.solvers import _epo, _ferero
from madamoo.solvers._cosmos import COSMOS
from madamoo.solvers._epo import EPO
from madamoo.solvers._ferero import FERERO
from madamoo.solvers._paretomtl import ParetoMTL
from madamoo.solvers._rays import loss_ray, read_preference, unit_sum

METHODS = [ParetoMTL, EPO, FERERO, COSMOS]
RAY_METHODS = [ParetoMTL, EPO, FERERO]
KINDS = ["plain", "low rank", "scaled", "alike", "zeros", "stationary", "opposite"]


def jacobian(rng, count, kind="plain"):
    J = rng.normal(size=(count, 2 * count))
    if kind == "low rank":
        J[:, max(1, count // 2) :] = 0.0
    elif kind == "scaled":
        J *= 10.0 ** rng.uniform(-6, 3, size=(count, 1))
    elif kind == "alike":
        J = J[:1] + 1e-5 * J
    elif kind == "zeros":
        J[rng.random(count) < 0.4] = 0.0
    elif kind == "stationary":
        J -= rng.dirichlet(np.ones(count)) @ J
    elif kind == "opposite":
        J = J[:1] * rng.choice([-1.0, 1.0], size=(count, 1))
    return J


def cases(counts=(1, 2, 3, 5, 10), kinds=KINDS, repeats=6, seed=0):
    """Gradients, losses and a preference: anywhere, on the ray, and with zeros."""
    rng = np.random.default_rng(seed)
    for kind in kinds:
        for count in counts:
            for t in range(repeats):
                losses, r = 10.0 ** rng.uniform(-2, 2, size=count), rng.dirichlet(np.ones(count))
                if t % 3 == 1:
                    losses = rng.uniform(0.1, 10.0) / r
                yield jacobian(rng, count, kind), losses, r


def call(solver, J, losses, r=None, dtype=torch.float64):
    gram = torch.tensor(J @ J.T, dtype=dtype)
    preference = None if r is None else torch.tensor(r, dtype=torch.float64)
    return solver.solve(torch.tensor(losses, dtype=dtype), gram, preference).numpy()


def shortest(V):
    """Length of the shortest vector in the convex hull of the rows of V, by non-negative least squares.

    The least |V' u|^2 + (sum u - 1)^2 over u >= 0 is taken at a multiple of the weights sought.
    """
    size = max(np.linalg.norm(V, axis=1).max(), 1e-300)
    u = nnls(np.vstack([V.T / size, np.ones(len(V))]), np.append(np.zeros(V.shape[1]), 1.0))[0]
    return np.linalg.norm(u @ V) / u.sum()


# -- what all four share -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_declarations(method):
    assert method.family == "preference" and method.uses_preference and method.uses_losses and not method.static
    assert method.needs_gram == (method is not COSMOS)


@pytest.mark.parametrize("method", METHODS)
def test_finite_on_every_gram_matrix(method):
    with np.errstate(all="raise", under="ignore"):
        for J, losses, r in cases((1, 2, 5, 40), repeats=3):
            zeros = np.where(np.arange(len(r)) % 2, 0.0, r)
            for scale in (1.0, 1e-15, 1e15):
                for preference in (None, r, zeros, np.eye(len(r))[0]):
                    weights = call(method(), scale * J, losses, preference)
                    assert np.isfinite(weights).all()
                    if method in RAY_METHODS:
                        assert np.abs(weights).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("method", METHODS)
def test_finite_on_extreme_losses(method):
    J = jacobian(np.random.default_rng(0), 3)
    extreme = [[0.0, 0.0, 0.0], [0.0, 1.0, 2.0], [1e-30, 1.0, 1e30], [1e-30] * 3, [1e30] * 3]
    preferences = (None, [0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [1e-200, 1.0, 1e200])
    for losses, r in itertools.product(extreme, preferences):
        assert np.isfinite(call(method(), J, losses, r)).all()
        assert np.isfinite(call(method(), 0.0 * J, losses, r)).all()


@pytest.mark.parametrize("method", METHODS)
def test_no_preference_is_equal_preference(method):
    for J, losses, _ in cases(kinds=["plain"]):
        equal = np.full(len(losses), 1.0 / len(losses))
        np.testing.assert_array_equal(call(method(), J, losses), call(method(), J, losses, equal))


@pytest.mark.parametrize("method", METHODS)
def test_order_of_objectives_does_not_matter(method):
    rng = np.random.default_rng(1)
    for J, losses, r in cases(kinds=["plain", "scaled"]):
        p = rng.permutation(len(r))
        d = call(method(), J, losses, r) @ J
        np.testing.assert_allclose(call(method(), J[p], losses[p], r[p]) @ J[p], d, atol=1e-6 * np.abs(J).max())


@pytest.mark.parametrize("method", RAY_METHODS)
def test_scale_of_losses_and_of_preference_does_not_matter(method):
    for J, losses, r in cases(kinds=["plain"]):
        weights = call(method(), J, losses, r)
        for s in (1e-6, 1e6):
            np.testing.assert_allclose(call(method(), s * J, s * losses, r), weights, atol=1e-9)
            np.testing.assert_allclose(call(method(), J, losses, s * r), weights, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_objectives_missing_from_a_batch(method):
    J, losses, r = next(cases((4,)))
    gram, values, preference = (torch.tensor(x) for x in (J @ J.T, losses, r))
    present = [0, 2, 3]
    weights = method().solve(values, gram, preference, present).numpy()
    assert weights[1] == 0
    np.testing.assert_allclose(weights[present], call(method(), J[present], losses[present], r[present]), atol=1e-12)
    # All that is present may have preference zero.
    weights = method().solve(values, gram, torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64), present)
    assert torch.isfinite(weights).all() and weights[1] == 0


def test_options_are_checked():
    for wrong in (
        lambda: EPO(eps=0.0),
        lambda: FERERO(c_h=-1.0),
        lambda: COSMOS(weight=float("nan")),
        lambda: ParetoMTL(rays=[]),
        lambda: ParetoMTL(rays=[[1.0, -1.0]]),
        lambda: ParetoMTL(rays=[[0.0, 0.0]]),
        lambda: ParetoMTL(search_steps=-1),
        lambda: call(ParetoMTL(rays=[[1.0, 1.0], [1.0, 2.0, 3.0]]), np.eye(2), [1.0, 1.0]),
        lambda: call(EPO(), np.eye(2), [1.0, -1.0]),
    ):
        with pytest.raises(ValueError, match="must"):
            wrong()


def test_preference_and_ray():
    assert read_preference(None, 4).tolist() == [0.25] * 4
    assert read_preference(torch.tensor([1.0, 3.0]), 2).tolist() == [0.25, 0.75]
    assert read_preference(torch.tensor([1e308, 1e308], dtype=torch.float64), 2).tolist() == [0.5, 0.5]
    np.testing.assert_allclose(loss_ray(np.array([0.8, 0.2])), np.array([1.0, 4.0]) / np.sqrt(17))
    for zeros in ([1.0, 0.0], [0.3, 0.0, 0.7, 0.0]):
        r = np.array(zeros)
        np.testing.assert_allclose(loss_ray(r), loss_ray(np.where(r == 0, 1e-9, r)), atol=1e-8)
    assert unit_sum(np.array([3.0, -1.0])).tolist() == [0.75, -0.25] and unit_sum(np.zeros(2)).tolist() == [0, 0]


# -- EPO ---------------------------------------------------------------------------------------------------------------


def non_uniformity(losses, r):
    p = r * losses / (r * losses).sum()
    return (p * (len(p) * p).log()).sum()


def epo_program(J, losses, r, eps=1e-4):
    """The linear program of the paper as q, A, b for scipy; the adjustment from autograd, as the slope of mu."""
    K = J @ J.T
    K = K / max(K.diagonal().max(), 1e-300)
    x = torch.tensor(losses / losses.max(), requires_grad=True)
    mu = non_uniformity(x, torch.tensor(r))
    a = torch.autograd.grad(mu, x)[0].numpy()
    a = a / max(np.abs(a).sum(), 1e-300) * np.sqrt(2 * mu.item() if mu > 1e-12 else 0.0)
    Ka = K @ a
    if mu > eps:
        bound = np.where(Ka > 0, -np.inf, Ka) if (Ka > 0).any() else np.zeros(len(r))
        bound[np.argmax(r * losses)] = 0.0
        kept = np.isfinite(bound)
        return Ka, K[kept], bound[kept], K
    return K.sum(0), np.vstack([K, Ka]), np.append(np.zeros(len(r)), min(Ka.max(), 0.0)), K


def check_epo(weights, q, A, b, K):
    assert weights.min() >= 0 and weights.sum() == pytest.approx(1.0)
    q = q / max(np.abs(q).max(), 1e-300)
    for rows, bound in ((A, b), (K, np.zeros(len(K)))):  # without the last row where nothing meets it
        size = np.maximum(np.abs(rows).max(axis=1), 1e-300)
        options = {"A_eq": np.ones((1, len(q))), "b_eq": [1.0]}
        best = linprog(-q, A_ub=-rows / size[:, None], b_ub=-bound / size, **options)
        if best.status == 0:
            break
    assert ((rows @ weights - bound) / size).min() >= -1e-8
    assert q @ weights == pytest.approx(-best.fun, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_epo_solves_the_papers_programs(kind):
    for J, losses, r in cases((2, 3, 5, 10), [kind], repeats=9):
        check_epo(call(EPO(), J, losses, r), *epo_program(J, losses, r))


def test_epo_without_the_papers_bound_is_rejected(monkeypatch):
    """The worst objective may not rise: a program that forgets so fails the check."""
    monkeypatch.setattr(_epo, "simplex_lp", lambda q, A, b: np.eye(len(q))[np.argmax(q)])
    with pytest.raises(AssertionError):
        test_epo_solves_the_papers_programs("plain")


def test_epo_adjustment_has_the_papers_length_near_the_ray():
    """a_i = r_i (log(C p_i) - mu) has |a|_1 = sqrt(2 mu) for equal r, two objectives, near the ray."""
    r = np.array([0.5, 0.5])
    p = np.array([1.001, 0.999]) / 2
    mu = p @ np.log(2 * p)
    assert np.abs(r * (np.log(2 * p) - mu)).sum() == pytest.approx(np.sqrt(2 * mu), rel=1e-3)


def test_epo_balance_comes_nearer_to_the_ray_and_descent_lowers_the_losses():
    for J, losses, r in cases((2, 3, 5), ["plain", "scaled"], repeats=9):
        fall = J @ (call(EPO(), J, losses, r) @ J)  # to first order, of the losses
        x = torch.tensor(losses, requires_grad=True)
        mu = non_uniformity(x, torch.tensor(r))
        if mu < 1e-4:
            assert fall.min() >= -1e-9 * np.abs(fall).max()
        else:
            assert fall[np.argmax(r * losses)] >= -1e-9 * np.abs(fall).max()
            slope = torch.autograd.grad(mu, x)[0].numpy()
            if len(r) == 2 and J[0] @ J[1] < 0:  # in conflict: one must rise where the other falls
                assert slope @ fall > 0


# -- FERERO ------------------------------------------------------------------------------------------------------------


def ferero_rate(J, losses, r, c_h):
    """c_h of the paper for that of the solver."""
    return c_h * (r**2 * (J * J).sum(1)).max() / (r * losses).max()


def check_ferero(raw, J, losses, r, c_h=1.0):
    """The optimality conditions of the subprogram with A = diag(r), with d = -J' lambda."""
    gradients, values = r[:, None] * J, r * losses
    size = np.sqrt((gradients**2).sum(1).max())
    H, HJ = values - values.mean(), gradients - gradients.mean(0)
    assert (raw / r).sum() == pytest.approx(1.0, abs=1e-10 * np.abs(raw / r).sum())
    # Zero where a direction can meet the constraints, else as small as any direction makes it.
    rate = ferero_rate(J, losses, r, c_h)
    left = HJ @ (-raw @ J) + rate * H
    assert np.abs(HJ.T @ left).max() <= 1e-6 * size * rate * np.abs(H).max() + 1e-9 * size**3
    # Beside that, the shortest direction: nothing in it can be left out without a change of the constraints or of c.
    basis = np.linalg.qr(np.vstack([HJ, gradients.mean(0)]).T)[0]
    d = raw @ J
    np.testing.assert_allclose(basis @ (basis.T @ d), d, atol=1e-9 * size)


@pytest.mark.parametrize("kind", ["plain", "low rank", "zeros", "opposite", "stationary"])
def test_ferero_meets_the_optimality_conditions(kind):
    for J, losses, r in cases((2, 3, 5, 10), [kind], repeats=9):
        for c_h in (0.1, 1.0, 10.0):
            check_ferero(_ferero._subprogram(J @ J.T, losses, r, c_h), J, losses, r, c_h)


def test_ferero_with_the_wrong_sign_is_rejected(monkeypatch):
    right = _ferero._subprogram
    monkeypatch.setattr(_ferero, "_subprogram", lambda K, F, r, c_h: right(K, -F, r, c_h))
    with pytest.raises(AssertionError):
        test_ferero_meets_the_optimality_conditions("plain")


def primal(J, losses, r, rate, A):
    """d of the subprogram, by a general solver in the space of the parameters."""
    n, dim = J.shape
    values = r * losses
    B = np.eye(n)[1:] - np.eye(n)[:1]
    BJ = B @ (r[:, None] * J)
    AJ = A[:, None] * J
    result = minimize(
        lambda x: x[-1] + 0.5 * x[:-1] @ x[:-1],
        np.zeros(dim + 1),
        jac=lambda x: np.append(x[:-1], 1.0),
        constraints=[
            {"type": "ineq", "fun": lambda x: x[-1] - AJ @ x[:-1], "jac": lambda x: np.c_[-AJ, np.ones(n)]},
            {
                "type": "eq",
                "fun": lambda x: BJ @ x[:-1] + rate * B @ values,
                "jac": lambda x: np.c_[BJ, np.zeros(n - 1)],
            },
        ],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert result.success
    return result.x[:-1]


def test_ferero_equals_a_general_solver_on_the_primal():
    rng = np.random.default_rng(4)
    for n in (2, 3, 4):
        for _ in range(5):
            J, losses, r = rng.normal(size=(n, n + 1)), rng.uniform(0.5, 2.0, n), rng.dirichlet(2 * np.ones(n))
            raw = _ferero._subprogram(J @ J.T, losses, r, 1.0)
            d = primal(J, losses, r, ferero_rate(J, losses, r, 1.0), A=r)
            np.testing.assert_allclose(-raw @ J, d, atol=1e-4 * np.abs(d).max())
            # The public weights are these, scaled.
            weights = call(FERERO(), J, losses, r)
            np.testing.assert_allclose(weights * np.abs(raw).sum(), raw, atol=1e-12)


def test_ferero_rows_of_the_cone_only_change_c_h():
    """With A = 1 in place of A = diag(r): the same direction, up to its length, as with another c_h."""
    rng = np.random.default_rng(5)
    for n in (2, 3, 4):
        for _ in range(5):
            J, losses, r = rng.normal(size=(n, n + 1)), rng.uniform(0.5, 2.0, n), rng.dirichlet(4 * np.ones(n))
            d = primal(J, losses, r, ferero_rate(J, losses, r, 1.0), A=np.ones(n))
            weights = -np.linalg.solve(J @ J.T, J @ d)
            alpha = (weights / r).sum()
            assert alpha > 0
            raw = _ferero._subprogram(J @ J.T, losses, r, 1.0 / alpha)
            np.testing.assert_allclose(weights / alpha, raw, atol=1e-3 * np.abs(raw).max())


def test_ferero_on_the_ray_stays_on_it():
    for J, _, r in cases((2, 3, 5), ["plain"]):
        fall = r * (J @ (call(FERERO(), J, 2.0 / r, r) @ J))
        np.testing.assert_allclose(fall, fall.mean(), rtol=1e-6)
        assert fall.min() > 0


@pytest.mark.parametrize("method", [EPO, FERERO])
def test_preference_zero_leaves_an_objective_out(method):
    J, losses, r = next(cases((4,)))
    r[1] = 0.0
    weights = call(method(), J, losses, r)
    rest = [0, 2, 3]
    assert weights[1] == 0
    np.testing.assert_allclose(weights[rest], call(method(), J[rest], losses[rest], r[rest]), atol=1e-12)
    assert call(method(), J, losses, np.eye(4)[2]).tolist() == [0, 0, 1, 0]


# -- ParetoMTL ---------------------------------------------------------------------------------------------------------


def rays_of(preferences):
    """Unit vectors inversely proportional to the preferences, zero counting as very small."""
    u = 1.0 / np.maximum(np.asarray(preferences, dtype=float), 1e-13)
    return u / np.linalg.norm(u, axis=1, keepdims=True)


def hull_of_the_step(J, losses, r, preferences, search):
    """The vectors whose hull is searched, from the definition."""
    differences = rays_of(preferences) - rays_of([r])
    active = differences[differences @ losses > 1e-9 * np.abs(losses).max()]
    return active @ J if search and len(active) else np.vstack([J, active @ J])


def check_shortest(d, V):
    """d points along the shortest vector in the hull of the rows of V: on no other unit vector is the hull as far."""
    length, size = shortest(V), np.sqrt((V * V).sum(1)).max()
    if length > 1e-4 * size:
        assert (V @ d).min() / np.linalg.norm(d) == pytest.approx(length, rel=1e-5)


def default_rays(n):
    angles = np.arange(5) * np.pi / 8
    return np.c_[np.sin(angles), np.cos(angles)].clip(0) if n == 2 else np.vstack([np.eye(n), np.ones(n)])


def check_paretomtl(make, kinds, search):
    """Returns how many steps were spent on searching."""
    searched = 0
    for J, losses, r in cases((2, 3, 5, 10), kinds, repeats=9):
        solver = make(r)
        d = call(solver, J, losses, r) @ J
        check_shortest(d, hull_of_the_step(J, losses, r, default_rays(len(r)), search))
        searched += solver.search_steps - int(solver.remaining)
    return searched


@pytest.mark.parametrize("search", [True, False])
def test_paretomtl_finds_the_shortest_vector(search):
    searched = check_paretomtl(lambda r: ParetoMTL(search_steps=int(search)), KINDS, search)
    assert (searched > 50) == search


def test_paretomtl_without_its_constraints_is_rejected():
    with pytest.raises(AssertionError):  # with its own ray alone, the region is all there is
        check_paretomtl(lambda r: ParetoMTL(rays=[r], search_steps=0), ["plain"], False)


def test_paretomtl_in_its_region_is_mgda():
    for J, _, r in cases((2, 3, 5, 10), ["plain", "scaled", "alike"]):
        weights = call(ParetoMTL(), J, 1.0 / r, r)
        d = weights @ J
        assert weights.min() >= 0 and (J @ d).min() >= (1 - 1e-6) * d @ d


def test_paretomtl_search_lowers_every_violated_constraint():
    for J, losses, r in cases((2, 3, 5), ["plain"], repeats=9):
        d = call(ParetoMTL(), J, losses, r) @ J
        differences = rays_of(default_rays(len(r))) - rays_of([r])
        violated = differences @ losses > 1e-9 * losses.max()
        if violated.any():
            assert (differences[violated] @ J @ d).min() >= -1e-9


def test_paretomtl_with_rays_of_ones_own():
    rng = np.random.default_rng(6)
    rays = rng.dirichlet(np.ones(3), size=12)
    for J, losses, r in cases((3,), ["plain"]):
        for given in (rays, torch.tensor(rays), rays.tolist()):
            d = call(ParetoMTL(rays=given, search_steps=1), J, losses, r) @ J
            check_shortest(d, hull_of_the_step(J, losses, r, rays, True))
    # An objective that a batch lacks is taken out of the rays, too.
    J, losses, r = next(cases((3,)))
    gram, values, preference = (torch.tensor(x) for x in (J @ J.T, losses, r))
    weights = ParetoMTL(rays=rays).solve(values, gram, preference, [0, 2]).numpy()
    part = ParetoMTL(rays=rays[:, [0, 2]])
    np.testing.assert_allclose(weights[[0, 2]], call(part, J[[0, 2]], losses[[0, 2]], r[[0, 2]]), atol=1e-12)


def test_paretomtl_searches_for_so_many_steps():
    J, losses, r = np.array([[1.0, 0.0], [-0.5, 1.0]]), [10.0, 0.1], [0.5, 0.5]
    solver = ParetoMTL(search_steps=2)
    first, second, third = (call(solver, J, losses, r) for _ in range(3))
    assert (first == second).all() and (second != third).any()
    assert solver.remaining.item() == 0
    other = ParetoMTL(search_steps=2)
    call(other, J, [1.0, 1.0], r)  # in the region: no step is used up
    assert other.remaining.item() == 2


# -- COSMOS ------------------------------------------------------------------------------------------------------------


def check_cosmos(scalarization):
    for _, losses, r in cases((1, 2, 3, 5, 10), ["plain"]):
        for weight in (0.0, 0.3, 8.0):
            x, a = torch.tensor(losses, requires_grad=True), torch.tensor(r)
            expected = torch.autograd.grad(scalarization(weight, a, x), x)[0]
            torch.testing.assert_close(COSMOS(weight).weights(x, None, a), expected, rtol=1e-9, atol=1e-12)


def test_cosmos_equals_autograd():
    check_cosmos(lambda weight, a, x: a @ x - weight * (a @ x) / (a.norm() * x.norm()))


def test_cosmos_equals_torchjd():
    torchjd = pytest.importorskip("torchjd.scalarization")
    check_cosmos(lambda weight, a, x: torchjd.COSMOS(weight, a)(x))


def test_cosmos_of_another_ray_is_rejected():
    with pytest.raises(AssertionError):
        check_cosmos(lambda weight, a, x: a @ x - weight * (x / a).sum() / ((1 / a).norm() * x.norm()))


def test_cosmos_slope_is_bounded_as_torchs():
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    assert COSMOS(1.0).weights(x).abs().max() < 1.1e8
    a = torch.tensor([0.3, 0.7], dtype=torch.float64)
    assert torch.equal(COSMOS(0.0).weights(x, None, a), a)
