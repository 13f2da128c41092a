from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..checks import check_integer, check_positive
from ._base import Solver


class RotoGrad(Solver):
    """RotoGrad (`Javaloy and Valera, 2022 <https://arxiv.org/abs/2103.02631>`_): equal norms, turned features.

    It acts on the features z that the heads share, so the model has to pass them through it: feed head k with
    ``solver.rotate(z)[k]``, that is R_k z. With G_k the gradient of l_k by z over the batch,

    - scale: every objective gets the norm c = sum_k a_k ||G_k||, where a_k is proportional to ||G_k|| / ||G_k at the
      start||. A trunk gradient is linear in G_k, so this is lambda_k = c / ||G_k||;
    - rotate: R_k moves on the rotations towards the alignment of its gradients with the mean of all, v_n.

    Without :meth:`rotate`, the norms are those of the parameters' gradients, and nothing is rotated.

    Args:
        n_objectives: needed by :meth:`rotate`, which is called before any loss is seen.
        lr: angle, in radians, by which a rotation may turn in one step.

    Example:
        >>> solver = RotoGrad(n_objectives=2)
        >>> [z.shape for z in solver.rotate(torch.ones(5, 3))]  # features, turned for each of two heads
        [torch.Size([5, 3]), torch.Size([5, 3])]
    """

    family = "gradient"
    needs_gram = True
    per_objective = ("start",)

    start: Tensor
    rotations: Tensor | None

    def __init__(self, n_objectives: int | None = None, *, lr: float = 0.01) -> None:
        super().__init__()
        self.expected = None if n_objectives is None else check_integer("n_objectives", n_objectives, 1)
        self.lr = check_positive("lr", lr)
        self.gathered: dict[object, dict[int, Tensor]] = {}  # for each call of rotate, G_k of its samples
        self.register_buffer("rotations", None)

    def setup(self, n_objectives: int) -> None:
        if self.expected not in (None, n_objectives):
            raise ValueError(f"n_objectives is {self.expected}, but there are {n_objectives} losses")
        self.register_buffer("start", torch.zeros(n_objectives, dtype=torch.float64))

    def rotate(self, features: Tensor) -> list[Tensor]:
        """The features [..., F] turned for each objective; head k takes entry k."""
        count = self.expected or self.n_objectives
        if count is None:
            raise ValueError("rotate needs the number of objectives: build the solver as RotoGrad(n_objectives=...)")
        if self.rotations is None:
            unit = torch.eye(features.shape[-1], dtype=features.dtype, device=features.device)
            self.rotations = unit.repeat(count, 1, 1)
        turned = [features @ R.T for R in self.rotations.to(features)]
        if torch.is_grad_enabled() and features.requires_grad:
            call = object()
            for k, r in enumerate(turned):
                r.register_hook(lambda gradient, k=k: self._gather(call, k, gradient.detach()))
        return turned

    def _gather(self, call: object, k: int, gradient: Tensor) -> None:
        found = self.gathered.setdefault(call, {})
        found[k] = found[k] + gradient if k in found else gradient

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        gram = self.require(gram)
        self.ensure(len(losses))
        calls = [*self.gathered.values()]
        keys = sorted({k for found in calls for k in found})
        if len(keys) == len(losses):
            norms = torch.stack([_joined(calls, k).double().norm() for k in keys]).to(losses)
            # v_n is of one sample, so a micro-batch that lacks an objective has none.
            common = [found for found in calls if len(found) == len(keys)]
            if common:
                self._turn({k: _joined(common, k) for k in keys})
        else:
            norms = gram.diagonal().clamp_min(0).sqrt().to(losses)
        self.start = torch.where(self.start > 0, self.start, norms.to(self.start))
        ratio = norms / torch.where(self.start > 0, self.start, 1.0).to(norms)
        total = ratio.sum()
        share = ratio / total if total > 0 else torch.full_like(ratio, 1.0 / len(ratio))
        c = (share * norms).sum()
        return torch.where(norms > 0, c / norms, 0.0)

    def _turn(self, gradients: dict[int, Tensor]) -> None:
        """One step of each rotation, R <- R exp(angle * A), A the direction in which its alignment grows fastest."""
        assert self.rotations is not None
        keys = sorted(gradients)
        unit = {k: gradients[k] / gradients[k].norm().clamp_min(torch.finfo(gradients[k].dtype).tiny) for k in keys}
        target = torch.stack([unit[k] @ self.rotations[k].to(unit[k]) for k in keys]).mean(0)  # v_n
        turned = self.rotations.clone()
        for k in keys:
            R = turned[k]
            # <R' g_n, v_n> summed over n is tr(R' S); along R exp(A) its derivative at A = 0 is <A, skew(R' S)>.
            slope = R.T @ (unit[k].T @ target).to(R)
            skew = slope - slope.T
            size = torch.linalg.matrix_norm(skew, 2)
            if size > 0:
                turned[k] = R @ torch.linalg.matrix_exp(min(self.lr, float(size)) / size * skew)
        self.rotations = turned

    def forget(self) -> None:
        self.gathered.clear()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        saved = state_dict.get(f"{prefix}rotations")
        if saved is not None and (self.rotations is None or self.rotations.shape != saved.shape):
            self.rotations = torch.empty_like(saved)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _joined(calls: list[dict[int, Tensor]], k: int) -> Tensor:
    """The gradients of objective k at all samples that it has, [samples, F]."""
    return torch.cat([found[k].flatten(0, -2) for found in calls if k in found])
