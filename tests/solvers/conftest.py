"""Gram matrices of every kind, and calls that cannot hang."""

import signal
from contextvars import copy_context

import numpy as np
import pytest
import torch

from madamoo import solvers


@pytest.fixture(scope="session")
def bounded():
    """``bounded(f, ...)``: f(...), or an error after two seconds of computing."""

    def stop(*_):
        raise TimeoutError("still computing after 2 s: it does not end")

    def call(f, *args, **kwargs):
        before = signal.signal(signal.SIGVTALRM, stop)
        signal.setitimer(signal.ITIMER_VIRTUAL, 2.0)
        try:
            return copy_context().run(f, *args, **kwargs)  # numpy's error state, cut short, stays in the copy
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            signal.signal(signal.SIGVTALRM, before)

    return call


@pytest.fixture(scope="session")
def solve(bounded):
    """One step of a solver, given what it asks for: ``solve(solver, losses, K, preference, present)``."""

    def call(solver, losses, K, preference=None, present=None):
        losses = torch.as_tensor(losses)
        gram = torch.as_tensor(K, dtype=torch.float64) if solver.needs_gram else None
        if not solver.uses_preference:
            preference = None
        elif preference is None:
            preference = torch.full_like(losses, 1.0 / len(losses))
        # Gradients with one entry each: then all statistics are the norms.
        norms = torch.as_tensor(np.sqrt(np.clip(np.diagonal(np.asarray(K)), 0, None)))
        statistics = {"max_abs": norms, "mean_abs": norms, "block_norms": norms[:, None]}
        return bounded(solver.solve, losses, gram, preference, present, statistics)

    return call


@pytest.fixture(scope="session")
def gradients():
    """Jacobians [C, n], by kind."""
    rng = np.random.default_rng(0)

    def spread(count, size, low):
        u, _, v = np.linalg.svd(rng.normal(size=(count, size)), full_matrices=False)
        return u * np.logspace(0, low, min(count, size)) @ v

    g = rng.normal(size=(3, 6))
    return {
        "random": rng.normal(size=(4, 9)),
        "agreeing": np.abs(rng.normal(size=(5, 9))),
        "one": rng.normal(size=(1, 4)),
        "two alike": g[[0, 1, 1]],
        "all alike": g[[0, 0, 0]],
        "a zero": np.vstack([g[:2], np.zeros(6)]),
        "all zero": np.zeros((3, 4)),
        "opposite": np.vstack([g[0], -g[0]]),
        "opposite, not equal": np.vstack([g[0], -0.3 * g[0]]),
        "forty": rng.normal(size=(40, 100)),
        "forty, rank five": rng.normal(size=(40, 5)),
        "rank two": rng.normal(size=(6, 2)) @ rng.normal(size=(2, 9)),
        "ill-conditioned": spread(6, 9, -8),
        "unlike sizes": rng.normal(size=(5, 9)) * np.logspace(-6, 6, 5)[:, None],
    }


@pytest.fixture(params=solvers.available())
def name(request):
    return request.param
