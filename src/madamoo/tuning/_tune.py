"""The function ``tune``: what is asked for, checked before anything is searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from madamoo.checks import check_integer, check_positive

from ._contenders import BASELINE, Contender, Field
from ._result import Say, Settings, TrialError, Tuned
from ._setup import Build, Setup, make, open_source, seeded, user_traceback
from ._training import advance, quiet, validated


def tune(
    build: Build | str | Path,
    *,
    budget: int = 40,
    seeds: int = 10,
    finalists: int = 3,
    solvers: Sequence[str] | Mapping[str, Any] | None = None,
    optimizers: Sequence[str] | Mapping[str, Any] | None = None,
    rates: tuple[float, float] = (1e-4, 1e-1),
    seed: int = 0,
    workers: int = 1,
    out: str | Path | None = None,
    say: Say | None = None,
) -> Tuned:
    """Find out which solver, optimizer and learning rate to use for a training run of your own.

    Three steps: ``budget`` learning rates for Adam with LS; ``budget`` trials of all other solvers, optimizers and
    rates, of which the worse half is stopped after a quarter and after half of the steps; then the best few contenders
    and Adam on ``seeds`` fresh seeds, compared seed by seed. It needs ``pip install 'madamoo[tune]'``.

    Args:
        build: a function of a seed that returns a :class:`madamoo.tuning.Setup`, or the path of a file that has one.
        budget: how many trials Adam gets, and how many all others together get.
        seeds: how many seeds decide at the end. The search has one seed of its own.
        finalists: how many contenders meet Adam at the end.
        solvers: names, with options if you like (``"cagrad:c=0.2"``); or a dictionary from names to functions that
            make a solver, None for one of the library.
        optimizers: names (adam, madam, soap, madam-eigen, msoap); or a dictionary from names to functions
            ``make(params, lr, solver, **options)`` that return a :class:`madamoo.MultiObjective`.
        rates: the lowest and the highest learning rate.
        seed: of the search; the fresh seeds are the numbers after it.
        workers: processes that do trials side by side. One gives the same result each time, several may not.
        out: a folder for trials, page and result. Called again with it, a search that was killed goes on. If None,
            everything stays in memory and there is no page.
        say: gets the name of the phase, how many trials of it ended and how many there will be.

    Example:
        >>> import torch
        >>> def build(seed):
        ...     w = torch.nn.Parameter(torch.randn(2))
        ...     losses = lambda: [(w[0] - 1).square(), 100 * (w[1] + 1).square()]
        ...     return Setup([w], losses, lambda: float(sum(losses())), steps=20)
        >>> found = tune(build, budget=2, seeds=3, solvers=["ls", "uw"], optimizers=["adam"])
        >>> found.baseline.contender.name, len(found.baseline.values)
        ('Adam with LS', 3)
    """
    for name, value, least in (("budget", budget, 1), ("seeds", seeds, 2), ("finalists", finalists, 1)):
        check_integer(name, value, least)
    check_integer("workers", workers, 1)
    check_integer("seed", seed, 0)
    low, high = (check_positive("rates", rate) for rate in rates)
    if not low < high:
        raise ValueError(f"rates must be a lower and a higher one, got {rates!r}")
    folder = None if out is None else Path(out)
    if folder is None and workers > 1:
        raise ValueError("several workers need a folder where they meet: give out=")
    source = open_source(build)
    field = Field.of(solvers, optimizers, source)
    setup = _try_out(source.build, field, seed)
    settings = Settings(
        solvers=list(field.tried[0]),
        optimizers=list(field.tried[1]),
        rates=[low, high],
        budget=budget,
        seeds=seeds,
        finalists=finalists,
        seed=seed,
        steps=setup.steps,
        higher_is_better=setup.higher_is_better,
    )
    from ._run import Run, Search, alone, calmly  # from here on the extra is needed

    with calmly(), alone(folder):
        search = Search(source, field, folder, setup.steps, setup.higher_is_better)
        return Run(search, settings, workers, say).go(setup)


def _try_out(build: Build, field: Field, seed: int) -> Setup:
    """Build once, take a step and validate, so that what is wrong is said before the search."""
    with seeded(seed), quiet():
        try:
            setup = make(build, seed)
            for solver, optimizer in (*((s, "adam") for s in field.solvers), *(("ls", o) for o in field.optimizers)):
                field.build(Contender(solver, optimizer, 1e-6), setup, seed)
            validated(setup)
            advance(setup, field.build(Contender(*BASELINE, 1e-6), setup, seed))
        except Exception as error:
            found = user_traceback(error)
            raise TrialError(f"build({seed}) was tried for one step before the search, and failed\n{found}") from error
    return setup
