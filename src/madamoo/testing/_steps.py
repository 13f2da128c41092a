"""What a solver is given in one step: made from ordinary gradients, and from hostile ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..solvers import Solver


@dataclass(frozen=True)
class Step:
    """The input of one :meth:`Solver.solve <madamoo.solvers.Solver.solve>`, all in float64, on the CPU unless moved.

    Example:
        >>> from madamoo.solvers import MGDA
        >>> from madamoo.testing import ordinary_steps
        >>> step = next(iter(ordinary_steps(3)))
        >>> step.solve(MGDA()).shape
        torch.Size([3])
    """

    losses: Tensor  # [C]
    gram: Tensor  # [C, C]
    preference: Tensor  # [C], sum 1
    statistics: dict[str, Tensor]

    def solve(self, solver: Solver, present: Sequence[int] | None = None) -> Tensor:
        """The weights, from what the solver asks for and nothing else, as in the optimizer."""
        wanted = solver.wants_rows
        return solver.solve(
            self.losses,
            self.gram if wanted and solver.needs_gram else None,
            self.preference if solver.uses_preference else None,
            present,
            {name: self.statistics[name] for name in solver.row_statistics} if wanted else None,
        )

    def select(self, index: Sequence[int]) -> Step:
        """The same for the objectives ``index``, in that order."""
        i = list(index)
        statistics = {name: value[i] for name, value in self.statistics.items()}
        return Step(self.losses[i], self.gram[i][:, i], self.preference[i], statistics)

    def to(self, device: torch.device) -> Step:
        """The same on a device."""
        statistics = {name: value.to(device) for name, value in self.statistics.items()}
        return Step(self.losses.to(device), self.gram.to(device), self.preference.to(device), statistics)

    def copy(self) -> Step:
        statistics = {name: value.clone() for name, value in self.statistics.items()}
        return Step(self.losses.clone(), self.gram.clone(), self.preference.clone(), statistics)


def make_step(rows: Tensor, losses: Tensor, preference: Tensor) -> Step:
    """The step of these gradients [C, n], which count as two parameter tensors."""
    half = rows.shape[1] // 2
    norms = [part.norm(dim=1) for part in (rows[:, :half], rows[:, half:])]
    statistics = {
        "max_abs": rows.abs().amax(1),
        "mean_abs": rows.abs().mean(1),
        "block_norms": torch.stack(norms, dim=1),
    }
    return Step(losses, rows @ rows.T, preference, statistics)


def ordinary_steps(count: int, steps: int = 5, seed: int = 0) -> list[Step]:
    """Steps of random gradients, losses and preferences of ordinary size."""
    generator = torch.Generator("cpu").manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu")

    result = []
    for _ in range(steps):
        rows = torch.randn(count, 2 * count + 4, generator=generator, dtype=torch.float64, device="cpu")
        weights = 0.1 + uniform(count)
        result.append(make_step(rows, 0.1 + 3.0 * uniform(count), weights / weights.sum()))
    return result


def hostile_steps(count: int) -> Iterator[tuple[str, Step]]:
    """Steps at the edge of what may happen in training, each with its name: finite, but nothing more."""
    plain = ordinary_steps(count, 1)[0]
    generator = torch.Generator("cpu").manual_seed(count)
    rows = torch.randn(count, 2 * count + 4, generator=generator, dtype=torch.float64, device="cpu")
    one = torch.ones(count, 1, dtype=torch.float64, device="cpu")
    sign = torch.where(torch.arange(count, device="cpu") % 2 == 0, 1.0, -1.0).to(one)[:, None]
    spread = torch.logspace(-40, 30, count, dtype=torch.float64, device="cpu")[:, None]
    narrow = torch.logspace(0, -9, rows.shape[1], dtype=torch.float64, device="cpu")
    first, silent, clash = rows[:1], rows.clone(), rows.clone()
    silent[0] = 0.0
    clash[-1] = -clash[0]
    gradients = {
        "all gradients zero": 0.0 * rows,
        "one gradient zero": silent,
        "equal gradients": one * first,
        "equal gradients but for rounding": one * first + 1e-9 * rows,
        "two opposed gradients": clash,
        "opposed gradients of equal length": sign * first,
        "opposed gradients of unequal length": sign * spread.sqrt() * first,
        "parallel gradients from 1e-40 to 1e30": spread * first,
        "gradients from 1e-40 to 1e30": spread * rows,
        "gradients from 1e30 to 1e-40": spread.flip(0) * rows,
        "gradients of 1e-40": 1e-40 * rows,
        "gradients of 1e-160, products denormal": 1e-160 * rows,
        "gradients of 1e30": 1e30 * rows,
        "gradients of 1e150": 1e150 * rows,
        "ill-conditioned gradients": narrow * rows,
        "gradients of low rank": rows[:, :1] * first + rows[:, 1:2] * rows[-1:],
    }
    for name, J in gradients.items():
        yield name, make_step(J, plain.losses, plain.preference)
    noise = torch.randn(count, count, generator=generator, dtype=torch.float64, device="cpu")
    for name, J in [("", rows), (" of rank one", one * first)]:
        step = make_step(J, plain.losses, plain.preference)
        yield f"Gram matrix{name}, not symmetric by rounding", replace(step, gram=step.gram * (1 + 1e-15 * noise))
        rounded = step.gram.float().double()
        yield f"Gram matrix{name}, rounded to float32", replace(step, gram=rounded)
    for name, losses in {
        "losses zero": torch.zeros_like(plain.losses),
        "one loss zero": torch.cat([torch.zeros(1, dtype=torch.float64, device="cpu"), plain.losses[1:]]),
        "losses of 1e-40": 1e-40 * plain.losses,
        "losses of 1e30": 1e30 * plain.losses,
        "losses from 1e-40 to 1e30": spread[:, 0] * plain.losses,
    }.items():
        yield name, replace(plain, losses=losses)
    one_hot = torch.zeros_like(plain.preference)
    one_hot[0] = 1.0
    yield "preference for one objective", replace(plain, preference=one_hot)
