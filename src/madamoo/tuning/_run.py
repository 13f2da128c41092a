"""From the first trial to the page: rates for Adam, everything else, then the best few against Adam on fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import optuna
from filelock import FileLock, Timeout

from ._contenders import BASELINE, Contender
from ._cost import Cost, step_cost
from ._processes import do
from ._result import Finalist, Say, Settings, Tuned
from ._setup import Setup
from ._statistics import compare, gains
from ._studies import DIVERGED, Phase, Search, calmly, complete, ended, open_storage, open_study

__all__ = ["Run", "Search", "alone", "calmly"]

LOCK = "folder.lock"


@contextmanager
def alone(folder: Path | None) -> Iterator[None]:
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


class Run:
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

        Before all else every optimizer is tried with LS and every solver with Adam, at Adam's best rate; with the first
        of those that take part, where LS or Adam do not.
        """
        s = self.settings
        usual = [a if a in names else names[0] for a, names in zip(BASELINE, (s.solvers, s.optimizers), strict=True)]
        pairs = dict.fromkeys([*((usual[0], o) for o in s.optimizers), *((name, usual[1]) for name in s.solvers)])
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
        solvers, optimizers = list(self.search.field.solvers), list(self.search.field.optimizers)
        self._do(Phase("final", solvers, optimizers, (s.rates[0], s.rates[1]), fresh, len(given), given, prunes=False))
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
