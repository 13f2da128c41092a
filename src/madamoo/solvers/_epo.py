from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..checks import check_positive
from ._base import Solver
from ._lp import simplex_lp
from ._qp import Array, Program
from ._rays import read_preference


class EPO(Solver):
    """Exact Pareto optimal search (`Mahapatra and Rajan, 2020 <https://proceedings.mlr.press/v119/mahapatra20a.html>`_,
    and at length on `arXiv <https://arxiv.org/abs/2108.00597>`_).

    The non-uniformity of the losses is mu_r(l) = sum_i p_i log(C p_i), p_i = r_i l_i / sum_j r_j l_j, and the
    adjustment a_i = r_i (log(C p_i) - mu_r) is its slope. While mu_r > eps, *balance*: lambda on the simplex maximises
    a' K lambda, the fall of mu_r. The objective with the largest r_i l_i may not rise, and one that rises along a no
    faster than there (if none falls along a: no objective may rise). Else *descent*: lambda on the simplex maximises
    sum_i (K lambda)_i; no objective may rise, and where that is possible mu_r may not either.

    The preference r (1/C each if none is given) is a weight: the larger r_i, the smaller l_i shall be. At convergence
    the losses lie on the ray r_i l_i = const, up to mu_r = eps, and are Pareto optimal, if the front meets that ray.
    An objective with preference 0 is left out, with weight 0.

    Of a, which limits how fast an objective may rise, the direction is the paper's, and the length is set to
    |a|_1 = sqrt(2 mu_r): that of the paper's a for equal r_i near the ray. The paper's vanishes for r near an axis.

    Args:
        eps: the non-uniformity below which the losses count as being on the ray.

    Example:
        >>> losses, gram = torch.tensor([2.0, 1.0]), torch.tensor([[4.0, -1.5], [-1.5, 1.0]])
        >>> EPO().solve(losses, gram, preference=torch.tensor([0.3, 0.7]))
        tensor([0.2401, 0.7599])
    """

    family = "preference"
    needs_gram = True
    uses_preference = True
    uses_losses = True

    def __init__(self, eps: float = 1e-4) -> None:
        super().__init__()
        self.eps = check_positive("eps", eps)

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        gram = self.require(gram)
        values = losses.detach().to("cpu", torch.float64).numpy()
        if (values < 0).any():
            raise ValueError(f"losses must not be negative, for EPO compares their ratios, got {values.tolist()}")
        r = read_preference(preference, len(values))
        K = gram.to("cpu", torch.float64).numpy()
        weights = np.zeros(len(r))
        S = np.flatnonzero(r)
        if len(S):
            weights[S] = _epo(K[np.ix_(S, S)], values[S], r[S], self.eps)
        return torch.from_numpy(weights).to(losses)


def _epo(K: Array, losses: Array, r: Array, eps: float) -> Array:
    count = len(r)
    K = K / max(float(K.diagonal().max()), 1e-300)
    rl = r * (losses / max(float(losses.max()), 1e-300))
    rl = np.maximum(rl / max(float(rl.max()), 1e-300), 1e-16)  # a loss of zero has a logarithm too
    p = rl / rl.sum()
    mu = float(p @ np.log(count * p))
    mu = mu if mu > 1e-12 else 0.0  # on the ray, where the slope would be all rounding
    a = r * (np.log(rl[:, None] / rl) @ p)  # log(C p_i) - mu, without the cancellation
    a *= np.sqrt(2 * mu) / max(float(np.abs(a).sum()), 1e-300)
    Ka = K @ a
    if mu > eps:
        bound = np.minimum(Ka, 0.0) if (Ka > 0).any() else np.zeros(count)
        worst = rl == rl.max()
        bound[worst] = 0.0
        rows = worst | (Ka <= 0)
        weights = simplex_lp(Ka, K[rows], bound[rows])
    else:
        fall, zero = K.sum(axis=0), np.zeros(count)
        weights = simplex_lp(fall, np.vstack([K, Ka]), np.append(zero, min(float(Ka.max()), 0.0)))
        weights = simplex_lp(fall, K, zero) if weights is None else weights
    # The shortest vector in the hull lets no objective rise: it is all there is where rounding hides it from the above.
    return Program(K).solve()[0] if weights is None else weights
