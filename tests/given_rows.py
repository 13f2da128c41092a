"""Optimizers on objectives whose gradients and weights a test chooses."""

import numpy as np
import torch

from madamoo import MAdam, PreferenceMetric, solvers


class Given(solvers.Preference):
    """A solver for which every objective is differentiated, though its weights are given."""

    row_statistics = ("max_abs",)

    def weights(self, losses, gram=None, preference=None, *, max_abs=None):
        return super().weights(losses, gram, preference)


def start(dtype=torch.float64, size=5):
    return torch.nn.Parameter(torch.linspace(-1.0, 1.0, size, dtype=dtype))


def build(param, estimator="full", solver=None, betas=(0.9, 0.999), **options):
    """MAdam without ramp-up unless asked for, on objectives whose weights come with the step."""
    metric = PreferenceMetric(estimator, **{"rampup": 0, **options})
    params = [param] if isinstance(param, torch.Tensor) else param
    return MAdam(params, lr=1e-2, betas=betas, solver=solver or solvers.Preference(), metric=metric)


def draw(steps, count, size=5, seed=0):
    """Rows of unlike size and correlated objectives, and a new preference each step."""
    rng = np.random.default_rng(seed)
    own, common = rng.normal(size=(steps, count, size)), rng.normal(size=(steps, 1, size))
    rows = own * np.logspace(-1, 1, count)[:, None] + common
    return rows, rng.dirichlet(np.ones(count), steps)


def averages(opt, index=0):
    """The entry of a parameter in the checkpoint, with F in full: its scale is kept apart."""
    entry = opt.state_dict()["multi_objective"]["metric"]["averages"][index]
    scale = torch.tensor(entry["scale"], dtype=entry["F"].dtype).view(-1, *[1] * (entry["F"].dim() - 1))
    return {**entry, "F": scale * entry["F"]}


def both_ways(i, j):
    return {(i, i), (j, j), (i, j), (j, i)}


class Raw(solvers.Solver):
    """Weights of any sign, which the test sets before each step: ``solver.given``."""

    family = "loss"
    given: tuple[float, ...] = ()

    def weights(self, losses, gram=None, preference=None):
        return torch.tensor(self.given, dtype=losses.dtype)[: len(losses)]


class RawGradient(Raw):
    """The same, for the shared parameters only."""

    family = "gradient"
    needs_gram = True
