"""The metric from outside: gradients that a test chooses, and the paper's equations with double sums as the oracle."""

import numpy as np
import pytest
import torch


@pytest.fixture(scope="session")
def close():
    """Equal up to the rounding of a run in ``dtype``."""

    def check(found, wanted, dtype=torch.float64, rtol=None):
        rtol = rtol or (1e-9 if dtype == torch.float64 else 2e-3)
        found, wanted = (_on_the_cpu(x) for x in (found, wanted))
        torch.testing.assert_close(found, wanted, rtol=rtol, atol=1e-2 * rtol)

    return check


def _on_the_cpu(x):
    """Oracles are NumPy's, wherever the tests run."""
    if isinstance(x, torch.Tensor):
        return x.detach().to("cpu", torch.float64)
    return torch.as_tensor(np.asarray(x), dtype=torch.float64, device="cpu")


@pytest.fixture(scope="session")
def feed():
    """``feed(opt, param, rows[T, C, n], weights[T, C])``: what the inner optimizer sees, [T, n].

    The losses are linear, so that the gradients are the given rows; a row of NaN is an objective that is missing.
    """

    def run(opt, param, rows, weights=None):
        seen = []
        for t, g in enumerate(torch.as_tensor(rows, dtype=param.dtype)):
            opt.zero_grad()
            losses = [None if bool(g_i.isnan().any()) else g_i @ param for g_i in g]
            opt.backward(losses, preference=None if weights is None else weights[t])
            seen.append(param.grad.clone())
            opt.step()
        return torch.stack(seen)

    return run


@pytest.fixture(scope="session")
def brute_force():
    """d / M step by step from the paper's equations, C x C averages and double sums, in float64.

    ``pairs(t)`` are the ordered pairs measured in step t, all of them by default; NaN rows are missing objectives.
    """

    def run(
        rows,
        weights,
        pairs=None,
        *,
        beta=0.999,
        eps=1e-16,
        bias_correction=True,
        floor=True,
        every=1,
        alpha=lambda t: 1.0,
        ramp="largest",
        normalise=False,
    ):
        rows, weights = np.asarray(rows, np.float64), np.asarray(weights, np.float64)
        steps, count, size = rows.shape
        F, n, decay = np.zeros((count, count, size)), np.zeros((count, count)), beta**every
        size_of = np.ones(count)  # |g_i| as last measured
        seen = []
        for t in range(steps):
            g, w = rows[t], weights[t]
            present = [i for i in range(count) if not np.isnan(g[i]).any()]
            measured = [(i, j) for i in present for j in present] if pairs is None else pairs(t)
            if t % every == 0:
                for i in {i for pair in measured for i in pair} if normalise else ():
                    size_of[i] = np.sqrt((g[i] ** 2).sum())
                for i, j in measured:
                    F[i, j] = decay * F[i, j] + (1 - decay) * (g[i] / size_of[i]) * (g[j] / size_of[j])
                    n[i, j] += 1
            C, d = np.zeros(size), np.zeros(size)
            for i in present:
                d += w[i] * g[i]
                for j in present:
                    if n[i, j]:
                        now = w[i] * size_of[i] * w[j] * size_of[j]
                        C += now * F[i, j] / (1 - decay ** n[i, j] if bias_correction else 1.0)
            root = np.sqrt(np.maximum(C, (1 - beta) * d**2 if floor else 0.0) + eps)
            s = {"largest": root.max(), "paper": 1.0}[ramp]
            seen.append(d / (alpha(t) * root + (1 - alpha(t)) * s))
        return np.stack(seen)

    return run


@pytest.fixture(scope="session")
def drawn():
    """``drawn(seed, C, T)``: the pairs that the paper's Uniform([C] x [C]) gives from a generator with that seed."""

    def run(seed, count, steps):
        generator = torch.Generator().manual_seed(seed)
        return [tuple(torch.randint(count, (2,), generator=generator).tolist()) for _ in range(steps)]

    return run
