"""Incompressible flow: Taylor-Hood elements, Newton's method for steady flow, SBDF2 steps for unsteady flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Where = Callable[[Array], NDArray[np.bool_]]
Velocity = Callable[[Array], Array]
"""From coordinates [2, n] to velocities [2, n]."""


class _TaylorHood:
    """Quadratic velocities and linear pressures on one mesh."""

    def __init__(self, mesh: Any, nu: float) -> None:
        from skfem import Basis, BilinearForm
        from skfem.element import ElementTriP1, ElementTriP2, ElementVector
        from skfem.helpers import ddot, div, dot, grad

        self.mesh = mesh
        self.velocity = Basis(mesh, ElementVector(ElementTriP2()), intorder=4)
        self.pressure = Basis(mesh, ElementTriP1(), intorder=4)
        self.viscous = BilinearForm(lambda u, w, _: nu * ddot(grad(u), grad(w))).assemble(self.velocity)
        self.mass = BilinearForm(lambda u, w, _: dot(u, w)).assemble(self.velocity)
        self.divergence = BilinearForm(lambda u, q, _: -q * div(u)).assemble(self.velocity, self.pressure)
        self.size, self.total = self.velocity.N, self.velocity.N + self.pressure.N

    def held(self, walls: Where) -> NDArray[np.int64]:
        """The unknowns of the velocity on the facets whose midpoints fulfil ``walls``."""
        facets = self.mesh.boundary_facets()
        middles = self.mesh.p[:, self.mesh.facets[:, facets]].mean(1)
        dofs: NDArray[np.int64] = self.velocity.get_dofs(facets[walls(middles)]).all()
        return dofs

    def on(self, velocity: Velocity, dofs: NDArray[np.int64]) -> Array:
        """The values of the unknowns ``dofs`` for a velocity field."""
        values = velocity(self.velocity.doflocs[:, dofs])
        return np.where(self._component[dofs] == 0, values[0], values[1])

    @property
    def _component(self) -> NDArray[np.int64]:
        """Which component each unknown of the velocity is: they alternate at vertices and at edges."""
        which = np.empty(self.size, dtype=np.int64)
        for table in (self.velocity.nodal_dofs, self.velocity.facet_dofs):
            which[table[0]], which[table[1]] = 0, 1
        return which

    def at_vertices(self, solution: Array) -> tuple[Array, Array]:
        """Points [n, 2] and (u, v, p) [n, 3] at the vertices."""
        u, v = solution[self.velocity.nodal_dofs]
        return self.mesh.p.T.copy(), np.stack([u, v, solution[self.size :]], 1)


def steady_flow(
    mesh: Any, walls: Where, velocity: Velocity, nu: float, pin: Where | None = None, rounds: int = 25
) -> tuple[Array, Array]:
    """Steady flow with a given velocity on ``walls``; elsewhere on the boundary the stress is zero (an outlet).

    Without an outlet ``pin`` says at which vertex the pressure is zero. Points [n, 2] and (u, v, p) [n, 3].
    """
    from scipy.sparse import bmat
    from scipy.sparse.linalg import splu
    from skfem import BilinearForm, LinearForm
    from skfem.helpers import dot, grad, mul

    space = _TaylorHood(mesh, nu)
    held = space.held(walls)
    solution = np.zeros(space.total)
    solution[held] = space.on(velocity, held)
    fixed = held if pin is None else np.append(held, space.size + np.flatnonzero(pin(mesh.p))[:1])
    free = np.setdiff1d(np.arange(space.total), fixed)
    convection = BilinearForm(lambda u, w, d: dot(mul(grad(u), d["a"]), w))
    reaction = BilinearForm(lambda u, w, d: dot(mul(d["a"].grad, u), w))
    force = LinearForm(lambda w, d: dot(mul(d["a"].grad, d["a"]), w))
    stokes = bmat([[space.viscous, space.divergence.T], [space.divergence, None]]).tocsr()
    for k in range(rounds):
        a = space.velocity.interpolate(solution[: space.size])
        residual = stokes @ solution
        residual[: space.size] += force.assemble(space.velocity, a=a)
        if k and np.linalg.norm(residual[free]) < 1e-11 * np.sqrt(space.total):
            return space.at_vertices(solution)
        block = space.viscous + convection.assemble(space.velocity, a=a) + reaction.assemble(space.velocity, a=a)
        matrix = bmat([[block, space.divergence.T], [space.divergence, None]]).tocsr()[free][:, free].tocsc()
        solution[free] -= splu(matrix).solve(residual[free])
    raise RuntimeError(f"Newton's method did not converge in {rounds} rounds")


def channel_flow(
    mesh: Any,
    walls: Where,
    velocity: Callable[[Array, float], Array],
    force: Callable[[Array, float], Array],
    nu: float,
    times: Sequence[float],
    step: float,
) -> tuple[Array, Array]:
    """Flow from rest with a given velocity on ``walls`` and zero stress elsewhere on the boundary.

    SBDF2: viscosity and pressure implicit, convection extrapolated from two steps; second order. ``times`` are evenly
    spaced and start at 0. Points [n, 2] and (u, v, p) [times, n, 3].
    """
    from scipy.sparse import bmat
    from scipy.sparse.linalg import splu
    from skfem import LinearForm
    from skfem.helpers import dot, mul

    space = _TaylorHood(mesh, nu)
    held = space.held(walls)
    free = np.setdiff1d(np.arange(space.total), held)
    per = max(1, round((times[1] - times[0]) / step))
    h = (times[1] - times[0]) / per
    load = LinearForm(lambda w, d: dot(d["f"], w))

    def explicit(u: Array, t: float) -> Array:
        """(force - convection, w) at time t."""
        a = space.velocity.interpolate(u)
        field = space.velocity.zeros()
        everything = np.arange(space.size)
        field[everything] = space.on(lambda x: force(x, t), everything)
        f = space.velocity.interpolate(field)
        return load.assemble(space.velocity, f=np.asarray(f) - mul(np.asarray(a.grad), np.asarray(a)))

    def system(weight: float) -> tuple[Any, Any]:
        block = weight / h * space.mass + space.viscous
        matrix = bmat([[block, space.divergence.T], [space.divergence, None]]).tocsr()
        return matrix, splu(matrix[free][:, free].tocsc()).solve

    solution = np.zeros(space.total)
    before: Array | None = None
    pushed_before: Array | None = None
    found = [space.at_vertices(solution)]
    # the first step is implicit Euler
    (first, solve_first), (later, solve_later) = system(1.0), system(1.5)
    t = times[0]
    for _ in times[1:]:
        for _ in range(per):
            u = solution[: space.size]
            pushed = explicit(u, t)
            right = np.zeros(space.total)
            if before is None or pushed_before is None:
                matrix, solve = first, solve_first
                right[: space.size] = space.mass @ u / h + pushed
            else:
                matrix, solve = later, solve_later
                right[: space.size] = space.mass @ (2 * u - 0.5 * before) / h + 2 * pushed - pushed_before
            before, pushed_before = u.copy(), pushed
            t += h
            fresh = np.zeros(space.total)
            fresh[held] = space.on(lambda x: velocity(x, t), held)  # noqa: B023
            fresh[free] = solve((right - matrix @ fresh)[free])
            solution = fresh
        if not np.isfinite(solution).all():
            raise RuntimeError(f"the flow was not finite at t = {t:g}: take a smaller step than {h:g}")
        found.append(space.at_vertices(solution))
    return found[0][0], np.stack([values for _, values in found])
