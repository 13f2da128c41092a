"""The whole search: rates for Adam, then everything else, then the best few against Adam on fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock, Timeout

from madamoo.checks import check_integer, check_positive

from ._contenders import BASELINE, Contender, Field
from ._cost import Cost, step_cost
from ._processes import do
from ._result import Finalist, Settings, Tuned
from ._setup import Build, Setup, as_number, make, open_source, seeded, user_traceback
from ._statistics import compare, gains
from ._studies import (
    DIVERGED,
    Phase,
    Search,
    TrialError,
    calmly,
    complete,
    ended,
    open_storage,
    open_study,
)
from ._training import advance, quiet

LOCK = "folder.lock"
Say = Callable[[str, int, int], None]  # the phase, how many trials of it ended, and how many it has


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
        optimizers: names (adam, madam, soap, madam-eigen, soap-relative); or a dictionary from names to functions
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
    with calmly():
        setup = _try_out(source.build, field, seed)
        search = Search(source, field, folder, setup.steps, setup.higher_is_better)
        settings = Settings(
            solvers=list(field.solvers),
            optimizers=list(field.optimizers),
            rates=[low, high],
            budget=budget,
            seeds=seeds,
            finalists=finalists,
            seed=seed,
            steps=setup.steps,
            higher_is_better=setup.higher_is_better,
        )
        with _alone(folder):
            return _Run(search, settings, workers, say).go(setup)


@contextmanager
def _alone(folder: Path | None) -> Iterator[None]:
    """Hold a folder: whatever is under way in it was left by a process that was killed."""
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(f"another process is at work in {folder}") from None
    try:
        yield
    finally:
        lock.release()


def _try_out(build: Build, field: Field, seed: int) -> Setup:
    """Build once, take a step and validate, so that what is wrong is said before the search."""
    with seeded(seed), quiet():
        try:
            setup = make(build, seed)
            for solver, optimizer in (*((s, "adam") for s in field.solvers), *(("ls", o) for o in field.optimizers)):
                field.build(Contender(solver, optimizer, 1e-6), setup, seed)
            as_number(setup.validate())
            advance(setup, field.build(Contender(*BASELINE, 1e-6), setup, seed))
        except Exception as error:
            found = user_traceback(error)
            raise TrialError(f"build({seed}) was tried for one step before the search, and failed\n{found}") from error
    return setup


class _Run:
    """One search, from the first trial to the page."""

    def __init__(self, search: Search, settings: Settings, workers: int, say: Say | None) -> None:
        self.search, self.settings, self.workers = search, settings, workers
        self.say = say or (lambda phase, done, total: None)
        self.storage = open_storage(search.folder)
        self.notes: list[str] = []

    def go(self, setup: Setup) -> Tuned:
        self._check_folder()
        baseline = self._baseline()
        contenders = [baseline, *self._finalists(baseline.lr)]
        tuned = self._decide(contenders, self._final(contenders))
        if self.search.folder is None:
            return tuned
        from ._page import write

        return write(tuned, self.search, self.settings, setup, self._study("adam"), self._study("search"))

    def _baseline(self) -> Contender:
        """Adam with LS at the best of its rates."""
        s = self.settings
        low, high = s.rates
        self._do(Phase("adam", ["ls"], ["adam"], (low, high), (s.seed, s.seed), s.budget, draws=1000 * s.seed))
        best = complete(self._study("adam"))
        if not best:
            raise ValueError(f"Adam with LS diverged at all of {s.budget} rates between {low:g} and {high:g}")
        return Contender(*BASELINE, best[0].params["lr"])

    def _finalists(self, lr: float) -> list[Contender]:
        """The best trials of all others, one per pair of solver and optimizer.

        Before all else every optimizer is tried with LS and every solver with Adam, at Adam's best rate.
        """
        s = self.settings
        usual = "ls" if "ls" in s.solvers else s.solvers[0]
        pairs = dict.fromkeys([*((usual, o) for o in s.optimizers), *((name, "adam") for name in s.solvers)])
        first = [
            {"solver": solver, "optimizer": optimizer, "lr": lr, "seed": s.seed}
            for solver, optimizer in pairs
            if self.search.field.is_new(solver, optimizer)
        ]
        rates, draws = (s.rates[0], s.rates[1]), 1000 * s.seed + 500
        self._do(Phase("search", s.solvers, s.optimizers, rates, (s.seed, s.seed), s.budget, first, draws=draws))
        found: dict[tuple[str, str], Contender] = {}
        for trial in complete(self._study("search")):
            p = trial.params
            found.setdefault((p["solver"], p["optimizer"]), Contender(p["solver"], p["optimizer"], p["lr"]))
        return list(found.values())[: s.finalists]

    def _final(self, contenders: Sequence[Contender]) -> dict[tuple[str, str, int], float]:
        """Validation numbers by solver, optimizer and seed."""
        s = self.settings
        fresh = (s.seed + 1, s.seed + s.seeds)
        given = [{**asdict(c), "seed": seed} for seed in range(fresh[0], fresh[1] + 1) for c in contenders]
        solvers, rates = list(dict.fromkeys([*s.solvers, "ls"])), (s.rates[0], s.rates[1])
        self._do(Phase("final", solvers, s.optimizers, rates, fresh, len(given), given, prunes=False))
        return {
            (t.params["solver"], t.params["optimizer"], t.params["seed"]): math.nan
            if DIVERGED in t.user_attrs
            else float(t.value)  # type: ignore[arg-type]
            for t in ended(self._study("final"))
        }

    def _decide(self, contenders: Sequence[Contender], values: Mapping[tuple[str, str, int], float]) -> Tuned:
        s = self.settings
        fresh = range(s.seed + 1, s.seed + 1 + s.seeds)
        base, *others = [tuple(values[c.solver, c.optimizer, seed] for seed in fresh) for c in contenders]
        found = compare([gains(base, own, s.higher_is_better) for own in others])
        baseline = Finalist(contenders[0], base)
        finalists = tuple(
            Finalist(contender, own, comparison, self._cost(contender, contenders[0]))
            for contender, own, comparison in zip(contenders[1:], others, found, strict=True)
        )
        better = [f for f in finalists if f.comparison is not None and f.comparison.better]
        winner = max(better, key=lambda f: f.gain, default=baseline)
        if len(set(base)) == 1:
            self.notes.append("The seed changes nothing in Adam's results: does build(seed) use it?")
        return Tuned(winner, baseline, finalists, tuple(self.notes))

    def _cost(self, contender: Contender, baseline: Contender) -> Cost | None:
        self.say("cost", 0, 1)
        return step_cost(self.search.source.build, self.search.field, contender, baseline, self.settings.seed)

    def _do(self, phase: Phase) -> None:
        do(self.storage, self.search, phase, self.workers, lambda done: self.say(phase.name, done, phase.count))

    def _study(self, name: str) -> optuna.Study:
        return open_study(self.storage, name, self.search)

    def _check_folder(self) -> None:
        """Refuse trials that were made with other settings; note that the file changed in between."""
        study, mine = self._study("adam"), asdict(self.settings)
        before = study.user_attrs.get("settings")
        if before is None:
            study.set_user_attr("settings", mine)
        elif before != mine:
            changed = [f"{key} {before.get(key)!r}, not {mine[key]!r}" for key in mine if before.get(key) != mine[key]]
            raise ValueError(
                f"the trials in {self.search.folder} were made with {'; '.join(changed)}: use these, or another folder"
            )
        digest, known = self.search.source.digest, study.user_attrs.get("sources", [])
        if digest not in known:
            study.set_user_attr("sources", [*known, digest])
        if len({*known, digest}) > 1:
            self.notes.append(f"{self.search.source.name} changed while the search was under way: trials from before "
                              "the change count too. Another folder starts afresh.")  # fmt: skip
