"""Problems whose Pareto front is known in closed form, to test solvers and conditioned models against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap

from ..checks import check_positive, check_vector
from ._preferences import as_doubles, check_count, grid, normalise, rays


class Problem:
    """C losses of a vector x, and where they cannot all be lowered any more.

    A subclass implements :meth:`losses` and :meth:`pareto_set`. Both take any leading dimensions.

    Example:
        >>> from madamoo.pareto import ConvexFront
        >>> problem = ConvexFront()
        >>> problem.losses(torch.zeros(2, dtype=torch.float64))
        tensor([0., 4.], dtype=torch.float64)
    """

    n_objectives: int
    dim: int

    def losses(self, x: Tensor) -> Tensor:
        """The losses [..., C] at x [..., dim], in its dtype."""
        raise NotImplementedError

    def pareto_set(self, shares: Tensor) -> Tensor:
        """The Pareto optimal x [..., dim], by a map from the whole simplex [..., C] onto them."""
        raise NotImplementedError

    def solution(self, preference: Sequence[float] | Tensor) -> Tensor:
        """The x [dim] at which sum_i a_i f_i is least, in float64."""
        raise NotImplementedError

    def front(self, count: int) -> Tensor:
        """``count`` points [count, C] of the true front in float64, its ends among them; see :func:`rays`."""
        return self.losses(self.pareto_set(normalise(rays(self.n_objectives, count).double())))

    def distance(self, points: Any) -> Tensor:
        """The Euclidean distance [N] of points [N, C] to the nearest one of the true front.

        The Levenberg-Marquardt method over the simplex that :meth:`pareto_set` maps to the front, started from the best
        few points of a grid that is denser towards the corners. It is right to about 1e-6 for the problems here as they
        are by default; much worse conditioned ones take more steps. Points below the front, which no x reaches, have a
        distance too.
        """
        targets = as_doubles(points)
        if targets.dim() != 2 or targets.shape[1] != self.n_objectives:
            raise ValueError(f"points must have the shape [points, {self.n_objectives}], got {list(targets.shape)}")
        order = 100 if self.n_objectives == 2 else 20
        start = torch.cat([normalise(grid(self.n_objectives, order) ** power) for power in (1, 3, 9)])
        nearest = torch.cdist(targets, self.losses(self.pareto_set(start))).topk(4, largest=False)
        logits = (start[nearest.indices].flatten(0, 1) + 1e-4).log()
        return self._descend(logits, targets.repeat_interleave(4, dim=0)).view(-1, 4).amin(dim=1)

    def _descend(self, logits: Tensor, targets: Tensor, steps: int = 100) -> Tensor:
        """The distances [N] that are left when the shares, as logits [N, C], are moved towards the targets [N, C]."""

        def residual(z: Tensor, target: Tensor) -> Tensor:
            return self.losses(self.pareto_set(z.softmax(dim=-1))) - target

        damping = torch.ones(len(targets), 1, 1, dtype=torch.float64)
        unit = torch.eye(self.n_objectives, dtype=torch.float64)
        now = residual(logits, targets)
        for _ in range(steps):
            jacobian = vmap(jacrev(residual))(logits, targets)
            scale = jacobian.square().sum(dim=(1, 2), keepdim=True).clamp_min(1e-100)
            curved = jacobian.mT @ jacobian / scale + damping * unit
            step = torch.linalg.solve(curved, jacobian.mT @ now[:, :, None] / scale).squeeze(2)
            there = logits - step.clamp(-5, 5)
            then = residual(there, targets)
            better = then.norm(dim=1) < now.norm(dim=1)
            logits = torch.where(better[:, None], there, logits)
            now = torch.where(better[:, None], then, now)
            damping = torch.where(better[:, None, None], damping / 5, damping * 3).clamp(1e-12, 1e12)
        return now.norm(dim=1)

    def point(self, start: Sequence[float] | Tensor | None = None, seed: int = 0) -> Point:
        """A module whose only parameter is x; drawn from a normal distribution where no start is given."""
        if start is None:
            x = torch.randn(self.dim, generator=torch.Generator().manual_seed(seed), device="cpu")
            x = x.to(torch.get_default_device())  # as any other module
        else:
            x = torch.as_tensor(start, dtype=None if isinstance(start, Tensor) else torch.get_default_dtype())
            if x.shape != (self.dim,):
                raise ValueError(f"start must be {self.dim} numbers, got {x.tolist()}")
        return Point(x)

    def network(self, inputs: int | None = None, hidden: int = 32, seed: int = 0) -> nn.Sequential:
        """A network of three linear layers from ``inputs`` numbers to x.

        With C inputs, as by default, it takes the preference itself: a conditioned model. A method that conditions the
        weights instead takes it with one input, and a constant.
        """
        inputs = self.n_objectives if inputs is None else check_count("inputs", inputs, 1)
        check_count("hidden", hidden, 1)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return nn.Sequential(
                nn.Linear(inputs, hidden),
                nn.Tanh(),
                nn.Linear(hidden, hidden),
                nn.Tanh(),
                nn.Linear(hidden, self.dim),
            )


class Point(nn.Module):
    """x as a model: it takes nothing and gives x."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.x = nn.Parameter(x.detach().clone())

    def forward(self) -> Tensor:
        return self.x


class Quadratics(Problem):
    """f_i(x) = (x - c_i)' A_i (x - c_i) / 2: the Pareto optimal x are all x(a) = (sum a_i A_i)^-1 sum a_i A_i c_i.

    x(a) is the least point of sum_i a_i f_i, so that every preference has its own place on the front, and each point of
    the front a preference.

    Args:
        hessians: the A_i [C, dim, dim], symmetric and positive definite.
        centres: the c_i [C, dim].

    Example:
        >>> problem = Quadratics([torch.eye(2), torch.eye(2)], [[0.0, 0.0], [2.0, 0.0]])
        >>> problem.solution([0.25, 0.75])
        tensor([1.5000, 0.0000], dtype=torch.float64)
    """

    def __init__(self, hessians: Any, centres: Any) -> None:
        self.hessians, self.centres = as_doubles(hessians), as_doubles(centres)
        if self.centres.dim() != 2 or self.hessians.shape != (*self.centres.shape, self.centres.shape[-1]):
            raise ValueError(
                f"hessians must have the shape [C, dim, dim] and centres [C, dim], "
                f"got {list(self.hessians.shape)} and {list(self.centres.shape)}"
            )
        self.n_objectives, self.dim = self.centres.shape
        check_count("the number of centres", self.n_objectives, 2)
        symmetric = torch.allclose(self.hessians, self.hessians.mT)
        if not symmetric or bool((torch.linalg.eigvalsh(self.hessians) <= 0).any()):
            raise ValueError(f"hessians must be symmetric and positive definite, got {self.hessians.tolist()}")

    def losses(self, x: Tensor) -> Tensor:
        offsets = x[..., None, :] - self.centres.to(x)
        return 0.5 * torch.einsum("...ij,ijk,...ik->...i", offsets, self.hessians.to(x), offsets)

    def pareto_set(self, shares: Tensor) -> Tensor:
        a = shares.double()
        whole = torch.einsum("...i,ijk->...jk", a, self.hessians)
        pull = torch.einsum("...i,ijk,ik->...j", a, self.hessians, self.centres)
        return torch.linalg.solve(whole, pull)

    def solution(self, preference: Sequence[float] | Tensor) -> Tensor:
        return self.pareto_set(check_vector("preference", preference, self.n_objectives))


class TiltedQuadratics(Quadratics):
    """The two quadratics of the MAdam paper: equal curvatures, stiff along (1, 1) and along (1, -1).

    Args:
        stiff: the larger eigenvalue of both Hessians; alpha in the paper.
        soft: the smaller one; beta in the paper. The smaller it is, the worse they are conditioned.

    Example:
        >>> TiltedQuadratics().solution([0.5, 0.5])
        tensor([0.0000, 1.2273], dtype=torch.float64)
    """

    def __init__(self, stiff: float = 2.0, soft: float = 0.2) -> None:
        mean = (check_positive("stiff", stiff) + check_positive("soft", soft)) / 2
        tilt = (stiff - soft) / 2
        super().__init__([[[mean, tilt], [tilt, mean]], [[mean, -tilt], [-tilt, mean]]], [[1.5, 0.0], [-1.5, 0.0]])


class ThreeQuadratics(Quadratics):
    """Three tilted quadratics of three numbers, each around a point of its own axis and stiff along its own diagonal.

    The Pareto optimal x are a curved surface between the three centres.

    Args:
        stiff: the largest eigenvalue of the Hessians.
        soft: the other two.

    Example:
        >>> ThreeQuadratics().solution([1 / 3, 1 / 3, 1 / 3])
        tensor([0.6667, 0.6667, 0.6667], dtype=torch.float64)
    """

    def __init__(self, stiff: float = 2.0, soft: float = 0.5) -> None:
        check_positive("stiff", stiff)
        check_positive("soft", soft)
        unit = torch.eye(3, dtype=torch.float64)
        along = (unit + unit.roll(1, dims=0)) / 2**0.5
        super().__init__(soft * unit + (stiff - soft) * along[:, :, None] * along[:, None, :], 1.5 * unit)


class ConvexFront(Quadratics):
    """Schaffer's problem in ``dim`` dimensions: f_1 = mean of x^2, f_2 = mean of (x - 2)^2.

    Its front is sqrt(f_1) + sqrt(f_2) = 2, which is convex: every point is the least of some sum_i a_i f_i.

    Example:
        >>> ConvexFront().front(3)
        tensor([[0., 4.],
                [1., 1.],
                [4., 0.]], dtype=torch.float64)
    """

    def __init__(self, dim: int = 2) -> None:
        check_count("dim", dim, 1)
        curvature = torch.eye(dim, dtype=torch.float64) * (2 / dim)
        super().__init__(torch.stack([curvature, curvature]), [[0.0] * dim, [2.0] * dim])


class ConcaveFront(Problem):
    """Fonseca and Fleming's problem: f_i(x) = 1 - exp(-|x -+ c|^2), c = (1, ..., 1) / sqrt(dim).

    The Pareto optimal x are those between -c and c. Near its ends the front is convex, between them (from -c / sqrt(2)
    to c / sqrt(2)) concave: there no point is the least of any a_1 f_1 + a_2 f_2, and linear scalarisation, which stays
    within 0.05 of the ends, cannot find them. So there is no :meth:`solution`.

    Example:
        >>> problem = ConcaveFront()
        >>> problem.front(3)
        tensor([[0.0000, 0.9817],
                [0.6321, 0.6321],
                [0.9817, 0.0000]], dtype=torch.float64)
    """

    n_objectives = 2

    def __init__(self, dim: int = 2) -> None:
        self.dim = check_count("dim", dim, 1)
        self.centre = torch.full((dim,), dim**-0.5, dtype=torch.float64)

    def losses(self, x: Tensor) -> Tensor:
        c = self.centre.to(x)
        return -torch.expm1(-torch.stack([(x - c).square().sum(-1), (x + c).square().sum(-1)], dim=-1))

    def pareto_set(self, shares: Tensor) -> Tensor:
        a = shares.double()
        return (a[..., :1] - a[..., 1:]) * self.centre

    def solution(self, preference: Sequence[float] | Tensor) -> Tensor:
        raise ValueError("no preference determines a point inside a concave front; see pareto_set")
