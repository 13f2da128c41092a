"""Quadratic finite elements: Poisson and heat equations, on squares and on domains with holes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Function = Callable[[Array], Array]
"""From coordinates [dim, ...] to values [...]."""
Where = Callable[[Array], NDArray[np.bool_]]


@dataclass(frozen=True)
class Dirichlet:
    """u = value, a number or a function, on the facets whose midpoints fulfil ``on``."""

    on: Where
    value: float | Function = 0.0


@dataclass(frozen=True)
class Robin:
    """du/dn = target - u on the facets whose midpoints fulfil ``on``."""

    on: Where
    target: float = 0.0


Condition = Dirichlet | Robin


def square_mesh(low: Sequence[float], high: Sequence[float], cells: Sequence[int], grading: float = 0.0) -> Any:
    """A rectangle cut in ``cells`` rectangles per side, two triangles each.

    With ``grading`` the last cell along the first axis is exp(grading) times as long as the first, nearly.
    """
    from skfem import MeshTri

    sides = [np.linspace(a, b, n + 1) for a, b, n in zip(low, high, cells, strict=True)]
    if grading:
        share = np.expm1(grading * np.linspace(0, 1, cells[0] + 1)) / np.expm1(grading)
        sides[0] = low[0] + (high[0] - low[0]) * share
    return MeshTri.init_tensor(*sides)


def disk_mesh(low: Sequence[float], high: Sequence[float], disks: Sequence[Sequence[float]], size: float) -> Any:
    """A box without some balls (center and radius each), in 2 or 3 dimensions, elements up to ``size``, curved ones
    along the balls.
    """
    from netgen import occ
    from skfem import MeshTet, MeshTet2, MeshTri, MeshTri2

    flat = len(low) == 2
    if flat:
        shape = occ.WorkPlane().MoveTo(*low).Rectangle(high[0] - low[0], high[1] - low[1]).Face()
        for x, y, radius in disks:
            shape = shape - occ.WorkPlane().Circle(x, y, radius).Face()
    else:
        shape = occ.Box(tuple(low), tuple(high))
        for *center, radius in disks:
            shape = shape - occ.Sphere(tuple(center), radius)
    made = occ.OCCGeometry(shape, dim=len(low)).GenerateMesh(maxh=size)
    elements = made.Elements2D() if flat else made.Elements3D()
    corners = elements.NumPy()["nodes"][:, : len(low) + 1].astype(np.int64) - 1
    points = np.asarray(made.Coordinates(), dtype=np.float64)[:, : len(low)]
    used, corners = np.unique(corners, return_inverse=True)
    points = _project(points[used].copy(), disks, size)
    straight = (MeshTri if flat else MeshTet)(points.T.copy(), corners.reshape(-1, len(low) + 1).T.copy())
    curved = (MeshTri2 if flat else MeshTet2).from_mesh(straight)
    # the quadratic mesh has the middles of edges after the vertices: those of edges on a ball belong on it
    edges = straight.facets if flat else straight.edges
    boundary = straight.boundary_facets() if flat else straight.boundary_edges()
    places = curved.doflocs.copy()
    first = straight.p.shape[1]
    for *center, radius in disks:
        c = np.asarray(center)[:, None]
        ends = [abs(np.linalg.norm(straight.p[:, edges[k, boundary]] - c, axis=0) - radius) < 1e-9 for k in (0, 1)]
        middle = first + boundary[ends[0] & ends[1]]
        out = places[:, middle] - c
        places[:, middle] = c + radius * out / np.linalg.norm(out, axis=0)
    return type(curved)(doflocs=places, t=curved.t)


def _project(points: Array, disks: Sequence[Sequence[float]], size: float) -> Array:
    """Vertices that the mesher put on a ball up to its tolerance, exactly on it."""
    for *center, radius in disks:
        out = points - np.asarray(center)
        distance = np.linalg.norm(out, axis=1)
        near = abs(distance - radius) < 1e-6 * size + 1e-7
        points[near] = np.asarray(center) + radius * out[near] / distance[near, None]
    return points


class _System:
    """Matrices of (capacity u_t, w) + (grad u, grad w) + (reaction u, w) + Robin terms = (source, w) + Robin terms."""

    def __init__(self, mesh: Any, conditions: Sequence[Condition], capacity: Function, reaction: Function) -> None:
        from skfem import Basis, BilinearForm, FacetBasis, LinearForm
        from skfem.element import ElementTetP2, ElementTriP2
        from skfem.helpers import dot, grad

        element = ElementTriP2() if mesh.dim() == 2 else ElementTetP2()
        self.basis = Basis(mesh, element)
        self.points: Array = self.basis.doflocs
        self.stiffness = BilinearForm(lambda u, w, data: dot(grad(u), grad(w)) + reaction(data.x) * u * w).assemble(
            self.basis
        )
        self.mass = BilinearForm(lambda u, w, data: capacity(data.x) * u * w).assemble(self.basis)
        self.boundary_load = np.zeros(self.basis.N)
        self.fixed = np.zeros(self.basis.N)
        held: list[NDArray[np.int64]] = []
        facets = mesh.boundary_facets()
        middles = mesh.p[:, mesh.facets[:, facets]].mean(1)
        for condition in conditions:
            chosen = facets[condition.on(middles)]
            if not len(chosen):
                raise ValueError(f"{condition}: no facet of the boundary fulfils 'on'")
            if isinstance(condition, Dirichlet):
                dofs = self.basis.get_dofs(chosen).all()
                value = condition.value
                self.fixed[dofs] = value(self.points[:, dofs]) if callable(value) else value
                held.append(dofs)
            else:
                side = FacetBasis(mesh, element, facets=chosen)
                self.stiffness = self.stiffness + BilinearForm(lambda u, w, data: u * w).assemble(side)
                self.boundary_load += condition.target * LinearForm(lambda w, data: w).assemble(side)
        outer = np.unique(np.concatenate(held)) if held else np.empty(0, dtype=np.int64)
        self.inner = np.setdiff1d(np.arange(self.basis.N), outer)

    def load(self, source: Function) -> Array:
        from skfem import LinearForm

        return LinearForm(lambda w, data: source(data.x) * w).assemble(self.basis) + self.boundary_load


def _nothing(x: Array) -> Array:
    return 0.0 * x[0]


def _one(x: Array) -> Array:
    return 0.0 * x[0] + 1.0


def poisson_2d(
    mesh: Any, source: Function, conditions: Sequence[Condition], reaction: Function = _nothing
) -> tuple[Array, Array]:
    """-Lap u + reaction u = source; boundaries without a condition are zero Neumann: points [n, dim], u [n]."""
    from scipy.sparse.linalg import splu

    system = _System(mesh, conditions, _one, reaction)
    inner = system.inner
    u = system.fixed.copy()
    right = system.load(source) - system.stiffness @ u
    u[inner] = splu(system.stiffness[inner][:, inner].tocsc()).solve(right[inner])
    return system.points.T.copy(), u


def poisson_3d(
    mesh: Any, source: Function, conditions: Sequence[Condition], reaction: Function = _nothing
) -> tuple[Array, Array]:
    """The same by conjugate gradients, which a mesh in three dimensions needs."""
    from scipy.sparse import diags
    from scipy.sparse.linalg import cg

    system = _System(mesh, conditions, _one, reaction)
    inner = system.inner
    u = system.fixed.copy()
    right = (system.load(source) - system.stiffness @ u)[inner]
    matrix = system.stiffness[inner][:, inner].tocsr()
    u[inner], failed = cg(matrix, right, rtol=1e-10, maxiter=5000, M=diags(1 / matrix.diagonal()))
    if failed:
        raise RuntimeError(f"conjugate gradients did not converge in {failed} steps")
    return system.points.T.copy(), u


def heat_2d(
    mesh: Any,
    source: Callable[[Array, float], Array] | None,
    conditions: Sequence[Condition],
    times: Sequence[float],
    step: float,
    capacity: Function = _one,
    start: Function = _nothing,
) -> tuple[Array, Array]:
    """capacity u_t = Lap u + source(x, t) from u = start at the first time: points [n, 2] and u [times, n].

    Time steps by the L-stable singly diagonal implicit method of second order.
    """
    from scipy.sparse.linalg import splu

    system = _System(mesh, conditions, capacity, _nothing)
    inner = system.inner
    mass, stiffness = system.mass[inner][:, inner].tocsc(), system.stiffness[inner][:, inner].tocsc()
    still = system.load(_nothing)  # Robin and Dirichlet terms, which do not change
    pull = (still - system.stiffness @ system.fixed)[inner]

    def load(t: float) -> Array:
        if source is None:
            return pull
        return pull + (system.load(lambda x: source(x, t)) - system.boundary_load)[inner]

    u = start(system.points)[inner] * np.ones(len(inner))
    whole = system.fixed.copy()
    whole[inner] = u
    found, t = [whole.copy()], times[0]
    gamma = 1 - 1 / np.sqrt(2)
    solve, last = None, 0.0
    for end in times[1:]:
        count = max(1, int(np.ceil((end - t) / step - 1e-9)))
        h = (end - t) / count
        if solve is None or not np.isclose(h, last):
            solve, last = splu(mass + gamma * h * stiffness).solve, h
        for _ in range(count):
            first = solve(load(t + gamma * h) - stiffness @ u)
            second = solve(load(t + h) - stiffness @ (u + (1 - gamma) * h * first))
            u = u + h * ((1 - gamma) * first + gamma * second)
            t += h
        t = end
        whole = system.fixed.copy()
        whole[inner] = u
        found.append(whole)
    return system.points.T.copy(), np.stack(found)
