"""Trials, kept by Optuna: which comes next, which are stopped early, and what a killed process left behind.

A study is a list of trials in one SQLite file. Three of them make a search: ``adam`` (rates for the baseline),
``search`` (solvers, optimizers and rates) and ``final`` (given contenders on given seeds).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.trial import FrozenTrial, TrialState

from ._contenders import Contender, Field
from ._result import TrialError
from ._setup import Source, user_traceback
from ._training import FACTOR, judged_at, train

STORE, TURN = "trials.sqlite3", "turn.lock"
PATIENCE = 120  # seconds that one process waits for another to have written
# What is noted of a trial.
RETRIES, DIVERGED, UNCOUNTED, TRACEBACK = "retries", "diverged", "uncounted", "traceback"


@dataclass(frozen=True)
class Phase:
    """One study of a search: what may be drawn, what is tried first, and how many trials it has."""

    name: str
    solvers: Sequence[str]
    optimizers: Sequence[str]
    rates: tuple[float, float]
    seeds: tuple[int, int]  # the first and the last
    count: int
    first: Sequence[Mapping[str, Any]] = ()  # parameters that are given
    prunes: bool = True
    draws: int = 0  # of the sampler: its seed

    def ask(self, trial: optuna.Trial) -> tuple[Contender, int]:
        contender = Contender(
            trial.suggest_categorical("solver", self.solvers),
            trial.suggest_categorical("optimizer", self.optimizers),
            trial.suggest_float("lr", *self.rates, log=True),
        )
        return contender, trial.suggest_int("seed", *self.seeds)


@dataclass(frozen=True)
class Search:
    """What all processes of a search share."""

    source: Source
    field: Field
    folder: Path | None
    steps: int
    higher_is_better: bool

    def __reduce__(self) -> tuple[Any, ...]:
        """What the user's file defines stays behind: another process reads the file."""
        own = self.source
        solvers = {k: v for k, v in self.field.solvers.items() if v is None or v is not own.solvers.get(k)}
        optimizers = {k: v for k, v in self.field.optimizers.items() if v is not own.optimizers.get(k)}
        field = Field(solvers, optimizers, self.field.tried)
        return _with_own, (own, field, self.folder, self.steps, self.higher_is_better)

    def turn(self) -> AbstractContextManager[Any]:
        """Held by the one process that takes its next trial, so that there is no trial too many."""
        return nullcontext() if self.folder is None else FileLock(self.folder / TURN)


def _with_own(source: Source, field: Field, *rest: Any) -> Search:
    solvers, optimizers = {**source.solvers, **field.solvers}, {**source.optimizers, **field.optimizers}
    return Search(source, Field(solvers, optimizers, field.tried), *rest)


def open_storage(folder: Path | None) -> optuna.storages.BaseStorage:
    """The trials of a folder, or in memory."""
    if folder is None:
        return optuna.storages.InMemoryStorage()
    patience = {"connect_args": {"timeout": PATIENCE}}
    return optuna.storages.RDBStorage(f"sqlite:///{folder.absolute() / STORE}", engine_kwargs=patience)


def open_study(storage: optuna.storages.BaseStorage, name: str, search: Search) -> optuna.Study:
    first = judged_at(search.steps)[:1] or [1]
    return optuna.create_study(
        storage=storage,
        study_name=name,
        direction="maximize" if search.higher_is_better else "minimize",
        load_if_exists=True,
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=first[0], reduction_factor=FACTOR),
    )


def counted(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that count: not those that failed, which are done again, nor what need not be tried."""
    trials = study.get_trials(deepcopy=False)
    return [t for t in trials if t.state != TrialState.FAIL and UNCOUNTED not in t.user_attrs]


def ended(study: optuna.Study) -> list[FrozenTrial]:
    return [t for t in counted(study) if t.state.is_finished()]


def complete(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that trained to the end with a finite number, best first."""
    sign = -1 if study.direction == optuna.study.StudyDirection.MAXIMIZE else 1
    found = [t for t in ended(study) if t.state == TrialState.COMPLETE and DIVERGED not in t.user_attrs]
    return sorted(found, key=lambda t: (sign * t.value, t.number))  # type: ignore[operator]


def retry_lost(study: optuna.Study) -> None:
    """Queue again, with the same parameters, what was killed or failed; call it while no process is at work."""
    trials = study.get_trials(deepcopy=False)
    retried = {t.user_attrs.get(RETRIES) for t in trials}
    for trial in trials:
        if trial.state == TrialState.RUNNING:
            study.tell(trial.number, state=TrialState.FAIL)
        elif trial.state != TrialState.FAIL:
            continue
        if trial.number not in retried:
            study.enqueue_trial(trial.params, user_attrs={RETRIES: trial.number})


def _next(study: optuna.Study, phase: Phase) -> optuna.Trial | None:
    """The next trial, or None: there are as many as wanted, done or in other hands."""
    trials = counted(study)
    if not any(t.state == TrialState.WAITING for t in trials):
        if len(trials) >= phase.count:
            return None
        if len(trials) < len(phase.first):
            study.enqueue_trial(dict(phase.first[len(trials)]))
    # A sampler per trial: a search that was killed and goes on draws what it would have drawn.
    tried = sum(t.state != TrialState.FAIL for t in study.get_trials(deepcopy=False))
    study.sampler = optuna.samplers.TPESampler(
        n_startup_trials=max(10, len(phase.first)), multivariate=True, constant_liar=True, seed=phase.draws + tried
    )
    return study.ask()


def work(storage: optuna.storages.BaseStorage, search: Search, phase: Phase, tick: Callable[[], None]) -> None:
    """Do trials until there are as many as the phase wants; ``tick`` is called after each."""
    study = open_study(storage, phase.name, search)
    while True:
        with search.turn():
            trial = _next(study, phase)
        if trial is None:
            return
        contender, seed = phase.ask(trial)
        if phase.name == "search" and not search.field.is_new(contender.solver, contender.optimizer):
            trial.set_user_attr(UNCOUNTED, True)  # the sampler learns to draw another
            study.tell(trial, _worst(search))
            continue
        _try(study, trial, search, phase, contender, seed)
        tick()


def _try(
    study: optuna.Study, trial: optuna.Trial, search: Search, phase: Phase, contender: Contender, seed: int
) -> None:
    def judge(step: int, value: float) -> None:
        trial.report(value, step)
        if trial.should_prune():
            raise optuna.TrialPruned

    try:
        value = train(search.source.build, search.field, contender, seed, judge if phase.prunes else None)
    except optuna.TrialPruned:
        study.tell(trial, state=TrialState.PRUNED)
    except Exception as error:
        trial.set_user_attr(TRACEBACK, user_traceback(error))
        study.tell(trial, state=TrialState.FAIL)
        raise _error_of(study, study.trials[trial.number]) from error
    else:
        if math.isnan(value):
            trial.set_user_attr(DIVERGED, True)
        study.tell(trial, _worst(search) if math.isnan(value) else value)


def failure(study: optuna.Study) -> TrialError | None:
    """What went wrong in the user's code, if something did and was not mended since."""
    trials = study.get_trials(deepcopy=False)
    retried = {t.user_attrs.get(RETRIES) for t in trials}
    for trial in trials:
        if trial.state == TrialState.FAIL and TRACEBACK in trial.user_attrs and trial.number not in retried:
            return _error_of(study, trial)
    return None


def _error_of(study: optuna.Study, trial: FrozenTrial) -> TrialError:
    values = {key: f"{value:.3g}" if key == "lr" else value for key, value in trial.params.items()}
    what = ", ".join(f"{key} {value}" for key, value in values.items())
    return TrialError(f"trial {trial.number} of {study.study_name} failed ({what})\n{trial.user_attrs[TRACEBACK]}")


def _worst(search: Search) -> float:
    return -math.inf if search.higher_is_better else math.inf


@contextmanager
def calmly() -> Iterator[None]:
    """Within it, Optuna says what goes wrong, and nothing else."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
