"""A user's own physics-informed problem: u' = -u on [0, 1] with u(0) = 1, whose solution is exp(-x)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from madamoo.bench import Benchmark, Drawn, Evaluation, Metric, Profile


@dataclass
class Points:
    """Two kinds of points in unequal numbers, and no targets."""

    grid: Tensor
    start: Tensor

    def to(self, device):
        return Points(self.grid.to(device), self.start.to(device))


class Decay(Benchmark):
    name = "pinn/decay"
    objectives = ("equation", "start")
    kinds = ("regression", "regression")
    metrics = (Metric("error", False, 4), Metric("residual", False, 4))
    profiles = {
        "cpu": Profile(epochs=4, batch=16, lr=1e-2, model=f"{__file__}:width=8", threads=1, options={"steps": 25}),
        "full": Profile(epochs=4, batch=1, lr=1e-2, model=f"{__file__}:width=8", threads=1, options={"full": True}),
    }

    def load(self, root, profile, seed):
        self.options = profile.options
        return Points(torch.linspace(0.0, 1.0, 21)[:, None], torch.zeros(1, 1))

    def shape(self, data):
        return (1,), (1,)

    def batches(self, data, size):
        if self.options.get("full"):
            return Drawn(5, lambda generator: (data.grid, data.start))
        return Drawn(self.options["steps"], lambda g: (torch.rand(size, 1, generator=g), data.start))

    def losses(self, model, batch):
        inner, start = batch
        return [self.residual(model, inner).square().mean(), (model(start)[0] - 1.0).square().mean()]

    def residual(self, model, x):
        x = x.clone().requires_grad_()
        (u,) = model(x)
        (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        return slope + u

    def evaluate(self, model, data, split, size):
        grid = data.grid if split == "validation" else 0.5 * (data.grid[1:] + data.grid[:-1])
        losses = self.losses(model, (grid, data.start))
        residual = self.residual(model, grid).square().mean().sqrt().item()
        error = (model(grid)[0] - torch.exp(-grid)).abs().max().item()
        return Evaluation({"error": error, "residual": residual}, [loss.item() for loss in losses])


def build(inputs, outputs, *, width):
    class One(nn.Sequential):
        def forward(self, x):
            return [super().forward(x)]

    return One(nn.Linear(inputs[0], width), nn.Tanh(), nn.Linear(width, outputs[0]))


BENCHMARKS = {"pinn/decay": Decay}
