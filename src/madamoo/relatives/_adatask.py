"""AdaTask: Adam with accumulators, and so learning rates, of each objective's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from ._moments import moment_dtype, open_state, update_moments
from ._per_objective import PerObjective


class AdaTask(PerObjective):
    """Adam with AdaTask (`Yang et al., 2023 <https://arxiv.org/abs/2211.15055>`_, Algorithm 2).

    On every parameter each objective k has its own accumulators m_k and v_k, and the steps are summed:
    theta <- theta - lr sum_k m_k / (sqrt(v_k) + eps), both moments bias-corrected. So no objective's large gradients
    lower the rate of another's. A parameter that one objective reaches, as a head, follows plain Adam. The sum is not
    divided by the number of objectives: where they agree, the step is C times Adam's.

    The paper and its code have one count of steps for the bias correction; here an objective has a count of its own,
    which is the same unless batches lack objectives. The task weights of the code multiply the losses, where Adam
    cancels them up to ``eps``: multiply the losses yourself if you want them.

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr, betas, eps: Adam's.
        weight_decay: decoupled, as in AdamW (the paper has none).
        objectives: names of all objectives, for dictionaries of losses whose first batch may lack some.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(3, 2)
        >>> opt = AdaTask(model.parameters(), lr=1e-3)
        >>> y = model(torch.ones(4, 3))
        >>> opt.backward([y[:, 0].square().mean(), (y[:, 1] - 1).square().mean()])
        >>> opt.step()
        >>> len(opt.state)  # weight and bias
        2
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        objectives: Sequence[str] | None = None,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}, objectives)

    def move(self, param: Tensor, keys: tuple[int, ...], rows: Tensor, group: dict[str, Any]) -> Tensor:
        state = self.state[param]
        at = open_state(state, param, keys)
        m, v = update_moments(state, at, rows.to(moment_dtype(param)), group["betas"])
        return m.div_(v.sqrt_().add_(group["eps"])).sum(0)
