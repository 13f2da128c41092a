"""SOAP: Adam in the eigenbasis of Shampoo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..checks import check_betas, check_choice, check_fraction, check_integer, check_positive
from ..gradients import is_divided
from ._loading import load_as_saved

SIDES = ("left", "right")


class SOAP(Optimizer):
    """`SOAP <https://arxiv.org/abs/2409.11321>`_: Adam in the eigenbasis of L = EMA(G G') and R = EMA(G' G), by matrix.

    A convolution is the matrix [out, in x height x width]. Vectors and scalars are moved by Adam. The first gradient of
    a matrix makes its first basis, by an eigendecomposition, and moves nothing: in its own basis it would be diagonal,
    and Adam would divide zeros by zeros. States have the parameter's precision, float32 at least.

    Args:
        params: parameters or parameter groups.
        lr: the learning rate; weight_decay is decoupled, as in AdamW.
        betas: of the momentum and of the second moment.
        eps: added to the root of the second moment.
        shampoo_beta: of the factors; None is ``betas[1]``.
        refresh: the bases follow the factors every so many steps, by one QR step of the power method.
        max_precond_dim: a longer side keeps the basis in which the matrix is written; two longer sides: Adam.
        sides: ``"both"``, or only the ``"shorter"`` of the two (the inputs', if they are equally long; of a single row
            or column the long one, which :class:`~madamoo.metric.EigenBasis` leaves alone).

    Example:
        >>> w = torch.nn.Parameter(torch.eye(3))
        >>> opt = SOAP([w], lr=0.1)
        >>> for _ in range(20):
        ...     opt.zero_grad()
        ...     (torch.ones(3) @ w - 2.0).square().sum().backward()
        ...     opt.step()
        >>> bool((torch.ones(3) @ w - 2.0).abs().max() < 0.5)
        True
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 3e-3,
        betas: tuple[float, float] = (0.95, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        shampoo_beta: float | None = None,
        refresh: int = 10,
        max_precond_dim: int = 10_000,
        sides: Literal["both", "shorter"] = "both",
    ) -> None:
        for name, value in (("lr", float(lr)), ("eps", eps), ("weight_decay", weight_decay)):
            check_positive(name, value, zero=True)
        check_fraction("shampoo_beta", shampoo_beta or 0.0)
        check_integer("refresh", refresh, minimum=1)
        check_integer("max_precond_dim", max_precond_dim, minimum=1)
        check_choice("sides", sides, ("both", "shorter"))
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": check_betas(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "shampoo_beta": shampoo_beta,
                "refresh": refresh,
                "max_precond_dim": max_precond_dim,
                "sides": sides,
            },
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        if any(map(is_divided, self.param_groups[-1]["params"])):
            raise ValueError("SOAP takes whole matrices, not shards: MSOAP takes the same steps under constant weights")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self._move(param, group)
        return result

    def _move(self, param: Tensor, group: dict[str, Any]) -> None:
        if param.is_complex() or param.grad is None or param.grad.is_sparse:
            raise TypeError(f"SOAP takes real, dense gradients, got one of {param.dtype} and {param.grad!r}")
        gradient = param.grad.to(torch.promote_types(param.dtype, torch.float32))
        gradient = gradient.flatten(1) if gradient.ndim > 1 else gradient
        state, (beta1, beta2) = self.state[param], group["betas"]
        beta = beta2 if group["shampoo_beta"] is None else group["shampoo_beta"]
        sides = _turned(gradient.shape, group)
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(gradient)
            state["rotated_exp_avg_sq"] = torch.zeros_like(gradient)  # not Adam's: it is of other coordinates
            for side in sides:
                state[side] = _gram(gradient, side) * (1.0 - beta)
                state[f"{side}_basis"] = _eigenvectors(gradient, side)
            if sides:
                return

        state["step"] += 1
        momentum, v = state["exp_avg"], state["rotated_exp_avg_sq"]
        momentum.lerp_(gradient, 1.0 - beta1)
        v.mul_(beta2).add_(_rotate(gradient, state).square(), alpha=1.0 - beta2)
        root = (v / (1.0 - beta2 ** state["step"])).sqrt().add_(group["eps"])
        update = _rotate_back(_rotate(momentum, state) / (1.0 - beta1 ** state["step"]) / root, state)
        lr = float(group["lr"])
        param.mul_(1.0 - lr * group["weight_decay"])
        param.add_(update.reshape(param.shape).to(param.dtype), alpha=-lr)

        for side in sides:  # after the step: a gradient is not rotated into a basis that it made itself
            state[side].lerp_(_gram(gradient, side), 1.0 - beta)
            if state["step"] % group["refresh"] == 0:
                _refresh(state, side)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state, in the precision in which it was saved."""
        load_as_saved(self, state_dict)


def _turned(shape: torch.Size, group: dict[str, Any]) -> Sequence[str]:
    """The sides whose basis follows the gradients."""
    if len(shape) < 2 or 0 in shape:
        return ()
    sides = [side for side, size in zip(SIDES, shape, strict=True) if 1 < size <= group["max_precond_dim"]]
    if group["sides"] == "shorter" and len(sides) == 2:
        return SIDES[:1] if shape[0] < shape[1] else SIDES[1:]
    return sides


def _eigenvectors(gradient: Tensor, side: str) -> Tensor:
    """Those of its Gram matrix, the largest eigenvalue first; scaled, for LAPACK fails where the squares underflow."""
    scaled = gradient.double() / gradient.abs().amax().clamp_min(torch.finfo(gradient.dtype).tiny)
    return torch.linalg.eigh(_gram(scaled, side)).eigenvectors.flip(1).to(gradient.dtype)


def _gram(gradient: Tensor, side: str) -> Tensor:
    return gradient @ gradient.T if side == "left" else gradient.T @ gradient


def _rotate(matrix: Tensor, state: dict[str, Any]) -> Tensor:
    if "left_basis" in state:
        matrix = state["left_basis"].T @ matrix
    return matrix @ state["right_basis"] if "right_basis" in state else matrix


def _rotate_back(matrix: Tensor, state: dict[str, Any]) -> Tensor:
    if "left_basis" in state:
        matrix = state["left_basis"] @ matrix
    return matrix @ state["right_basis"].T if "right_basis" in state else matrix


def _refresh(state: dict[str, Any], side: str) -> None:
    """One step of the power method; columns are put in the order of their eigenvalues first, the second moment too."""
    factor, basis = state[side], state[f"{side}_basis"]
    turned = factor @ basis
    order = (basis * turned).sum(0).argsort(descending=True)
    state[f"{side}_basis"] = torch.linalg.qr(turned[:, order]).Q
    state["rotated_exp_avg_sq"] = state["rotated_exp_avg_sq"].index_select(SIDES.index(side), order)
