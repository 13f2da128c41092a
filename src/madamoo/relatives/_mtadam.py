"""MTAdam: Adam for several loss terms, their gradients balanced layer by layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..checks import check_fraction, check_vector
from ._moments import Places, moment_dtype, open_state, update_moments, updates_of
from ._per_objective import PerObjective

VANISHING = 1e-10
"""A gradient whose norm averages less than this is not balanced, and balances none."""


class MTAdam(PerObjective):
    """Multi-term Adam (`Malkiel and Wolf, 2021 <https://arxiv.org/abs/2006.14683>`_).

    In each layer l (a parameter tensor), n_i is a running average of ||g_i|| with decay beta3, and g_i is rescaled to
    the size of the first objective's, the anchor: g_i <- (n_1 / n_i) g_i. Each objective has its own moments m_i and
    v_i of those, and theta <- theta - lr sum_i m_i / (sqrt(max_i v_i) + eps), both moments bias-corrected. With one
    objective this is Adam. The first objective is the first of the losses, or of ``objectives``.

    As in the authors' code, n_i starts as the first norm, the anchor of a layer that the first objective does not reach
    is the next one that does, norms below 1e-10 count as zero, and ``ranks`` set other proportions than equal ones.
    Unlike there, weight decay is decoupled (the code adds it to every term's gradient). If a batch lacks objectives,
    sum and maximum are over those present, each with its own count of updates; the anchor may be one that is absent.

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr, betas, eps: Adam's.
        weight_decay: decoupled, as in AdamW.
        beta3: decay of the averages of the gradient norms.
        ranks: how large each objective's balanced gradient shall be, relative to the anchor's norm; 1 each if None.
        objectives: names of all objectives, for dictionaries of losses whose first batch may lack some.

    Example:
        >>> model = torch.nn.Linear(3, 2)
        >>> opt = MTAdam(model.parameters(), lr=1e-3)
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
        beta3: float = 0.9,
        ranks: Sequence[float] | Tensor | None = None,
        objectives: Sequence[str] | None = None,
    ) -> None:
        check_fraction("beta3", beta3)
        if ranks is not None:
            ranks = check_vector("ranks", ranks, None if objectives is None else len(objectives)).tolist()
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "beta3": beta3, "ranks": ranks}
        super().__init__(params, defaults, objectives, None if ranks is None else len(ranks))

    def move(self, param: Tensor, keys: tuple[int, ...], rows: Tensor, group: dict[str, Any]) -> Tensor:
        state = self.state[param]
        at = open_state(state, param, keys, norms=())
        g = rows.to(moment_dtype(param))
        factors = self._balance(state, at, g, group["beta3"])
        if group["ranks"] is not None:
            factors = factors * g.new_tensor([group["ranks"][i] for i in keys])
        m, v = update_moments(state, at, g * factors.view(-1, *[1] * param.dim()), group["betas"])
        return m.sum(0).div_(v.amax(0).sqrt_().add_(group["eps"]))

    @staticmethod
    def _balance(state: dict[str, Any], at: Places, g: Tensor, beta3: float) -> Tensor:
        """Take the norms of the gradients g ``[K, *shape]`` into n, and return n_1 / n_i."""
        norm = torch.linalg.vector_norm(g.reshape(len(g), g[0].numel()), dim=1)
        first = torch.tensor([t == 1 for t in updates_of(state, at)], device=g.device)
        state["norms"][at] = torch.where(first, norm, beta3 * state["norms"][at] + (1 - beta3) * norm)
        reaches = state["norms"] > VANISHING
        anchor = state["norms"][reaches.int().argmax()]  # argmax: the first that reaches the parameter
        n = state["norms"][at]
        return torch.where(n > VANISHING, anchor / n, 1.0)
