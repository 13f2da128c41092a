"""The small problems that the checks train."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..optimizer import MultiObjective

COUNT = 3


def exact_dtype(device: torch.device) -> torch.dtype:
    """float64, or float32 where the device has no other."""
    return torch.float32 if device.type == "mps" else torch.float64


def assert_close(found: Tensor, wanted: Tensor, rtol: float | None = None) -> None:
    """Equal up to rounding, wherever the two tensors are; by default the rounding of a short run in their dtype."""
    tolerance = rtol or (1e-7 if found.dtype == torch.float64 else 2e-3)
    torch.testing.assert_close(
        found.detach().cpu(), wanted.detach().cpu(), rtol=tolerance, atol=1e-2 * tolerance, check_dtype=False
    )


def draw(*shape: int, seed: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Normal numbers, the same ones on every device: they are drawn on the CPU."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu").to(device, dtype)


class Net(nn.Module):
    """A trunk that all objectives share, and one head per objective."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.trunk = nn.Linear(6, 8, device=device, dtype=dtype)
        self.heads = nn.ModuleList(nn.Linear(8, 1, device=device, dtype=dtype) for _ in range(COUNT))
        with torch.no_grad():
            for seed, param in enumerate(self.parameters()):
                param.copy_(0.3 * draw(*param.shape, seed=seed, device=device, dtype=dtype))

    def losses(self, t: int) -> list[Tensor]:
        """Those of batch ``t``; the objectives differ in size a hundredfold."""
        like = self.trunk.weight
        x = draw(16, 6, seed=1000 + t, device=like.device, dtype=like.dtype)
        hidden = torch.tanh(self.trunk(x))
        targets = [x[:, 0], x[:, 1] - 0.5 * x[:, 0], x[:, 2:].sum(1)]
        errors = [(head(hidden)[:, 0] - y).square().mean() for head, y in zip(self.heads, targets, strict=True)]
        return [10.0 ** (i - 1) * error for i, error in enumerate(errors)]


def train(net: Net, opt: MultiObjective, steps: Sequence[int]) -> None:
    for t in steps:
        opt.zero_grad()
        opt.backward(net.losses(t), preference_of(opt, t))
        opt.step()


def preference_of(opt: MultiObjective, t: int) -> Tensor | None:
    """Another one each step, for solvers that take one."""
    if not opt.solver.uses_preference:
        return None
    return 0.1 + draw(COUNT, seed=t, device=torch.device("cpu"), dtype=torch.float64).abs()


def flat(net: Net) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])
