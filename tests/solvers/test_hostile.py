"""Finite weights for every finite Gram matrix: a search over gradients of every size, rank and angle."""

import numpy as np
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from madamoo import MultiObjective, PreferenceMetric, solvers

SPECS = [
    *solvers.available(),
    *(f"mgda:normalization={n}" for n in ("l2", "loss", "loss+")),
    *(f"alignedmtl:scale={s}" for s in ("median", "rmse")),
    *(f"cagrad:c={c}" for c in (0.0, 0.9, 3.0)),
    *("nashmtl:max_norm=none", "nashmtl:update_every=2", "nashmtl:update_every=2,max_norm=none"),
    *("pcgrad:order=fixed", "gradvac:order=fixed,beta=0.5", "preference:normalise=true", "dwa:window=1"),
    *("smoothtchebycheff:warmup=1", "smoothtchebycheff:log=true", "dbmtl:beta=0", "paretomtl:search_steps=0"),
]
EXPONENTS = [(-3, 3), (-40, 30), (-45, -38), (-160, 140)]  # float32's denormals; products that are denormal in float64


@st.composite
def steps(draw):
    """Losses, Gram matrix and preference of one step."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, size = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    J = rng.standard_normal((count, size))
    kind = draw(st.sampled_from(["plain", "parallel", "silent", "zero", "opposed", "narrow", "alike"]))
    if kind == "parallel":
        J = np.outer(rng.choice([-1, 1, 1e-8, 0], count), J[0])
    elif kind == "silent":
        J[rng.integers(count)] = 0
    elif kind == "zero":
        J[:] = 0
    elif kind == "opposed":
        J[-1] = -J[0] * rng.choice([1, 1e-10, 3])
    elif kind == "narrow":
        J = J * np.logspace(0, -draw(st.integers(1, 40)), size)
    elif kind == "alike":
        J = J[0] + 1e-9 * J
    low, high = draw(st.sampled_from(EXPONENTS))
    with np.errstate(over="ignore", under="ignore"):
        J = J * 10 ** rng.uniform(low, high, (count, 1) if draw(st.booleans()) else 1)
        K = J @ J.T
        noise = draw(st.sampled_from(["none", "relative", "absolute", "float32"]))
        if noise == "relative":
            K = K * (1 + 1e-15 * rng.standard_normal(K.shape))
        elif noise == "absolute":
            K = K + 1e-16 * K.diagonal().max() * rng.standard_normal(K.shape)
        elif noise == "float32":
            K = K.astype(np.float32).astype(np.float64)
    assume(np.isfinite(K).all())
    losses = 10 ** rng.uniform(*draw(st.sampled_from([(-2, 2), (-40, 30), (-300, 300)])), count)
    losses[rng.random(count) < draw(st.sampled_from([0.0, 0.3]))] = 0.0
    preference = rng.dirichlet(np.ones(count))
    preference[1:][rng.random(count - 1) < draw(st.sampled_from([0.0, 0.5]))] = 0.0
    preference[0] += 1e-3
    return tuple(map(torch.from_numpy, (losses, K, preference * 10.0 ** draw(st.integers(-200, 200)))))


@given(steps())
@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def test_every_solver_gives_finite_weights(step):
    losses, gram, preference = step
    for spec in SPECS:
        solver = solvers.get(spec)
        for _ in range(2):
            given = gram if solver.needs_gram and solver.wants_rows else None
            norms = gram.diagonal().clamp_min(0).sqrt()
            statistics = {"max_abs": norms, "mean_abs": norms, "block_norms": norms[:, None]}
            weights = solver.solve(losses, given, preference if solver.uses_preference else None, statistics=statistics)
            assert weights.isfinite().all(), (spec, weights)
            assert weights.float().isfinite().all(), (spec, weights)  # so do the parameters see them
            assert not any(b.isinf().any() for b in solver.buffers()), spec


def test_denormal_gradients_leave_the_parameters_finite():
    """Weights as large as such gradients ask for would be infinite in float32."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2, 8, generator=generator)
    for spec in SPECS:
        for metric in (None, PreferenceMetric(rampup=0)):
            w = torch.nn.Parameter(torch.ones(8))
            opt = MultiObjective(torch.optim.Adam([w], lr=1e-3), solvers.get(spec), metric)
            for size in (1e-40, 1e-44, 1e-30):
                opt.zero_grad()
                opt.backward([1.0 + ((w - 1) * row * size).sum() for row in rows])
                opt.step()
                assert w.isfinite().all(), (spec, size)
