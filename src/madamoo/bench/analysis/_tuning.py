"""Learning rates tuned on a few seeds: the runs of all seeds, at the chosen rates alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from ..runs import Config, Record, Say, identity, to_stderr
from ..training import metrics_of, problem_of
from ._table import Seeds, best_rate, end_of, has_metrics


@dataclass(frozen=True)
class Choice:
    """The best rate of one contender, and its best optimizer, if it has several."""

    best: Config
    trials: list[Config]  # of which it is the best

    @property
    def rates(self) -> set[float]:
        return {trial.lr for trial in self.trials}

    @property
    def end(self) -> str | None:
        return end_of(self.best.lr, self.rates)


def finalists(
    records: Sequence[Record],
    trials: Sequence[Config],
    seeds: Sequence[int],
    contenders: Mapping[str, str] | None = None,
    say: Say = to_stderr,
) -> list[Config]:
    """What was tried, at the best of its learning rates and with all seeds, seed by seed.

    Validation data choose the rate of each solver and contender, from the trials alone: runs that are there besides
    change nothing, so that a sweep which is started again makes the same choice.

    Args:
        records: at least those of all trials.
        trials: every learning rate, on the seeds to tune by.
        contenders: optimizers that are one contender, by a common name, of which the best is chosen as well; an
            optimizer that is not among them is a contender by itself.
        say: gets the choices, and which of them are at an end of the rates that were tried.
    """
    chosen = _choices(records, trials, contenders, say)
    several = len({trial.benchmark for trial in trials}) > 1
    for choice in chosen:
        best = choice.best
        where = f"{best.benchmark} {best.solver}" if several else best.solver
        note = f", the {choice.end} that was tried" if choice.end else ""
        tries = len({(trial.lr, trial.optimizer) for trial in choice.trials})
        say(f"{where} {best.optimizer}: rate {best.lr:g}{note} ({tries} trials)")
    return [replace(choice.best, seed=seed) for seed in dict.fromkeys(seeds) for choice in chosen]


def wider(
    records: Sequence[Record], trials: Sequence[Config], contenders: Mapping[str, str] | None = None
) -> list[Config]:
    """Further trials, at half of the lowest rate or twice the highest, of contenders whose best rate is that one."""
    further = []
    for choice in _choices(records, trials, contenders, to_stderr):
        half, twice = min(choice.rates) / 2, max(choice.rates) * 2
        beyond = {"lowest": (half,), "highest": (twice,), "only": (half, twice)}.get(choice.end or "", ())
        further += [replace(trial, lr=lr) for lr in beyond for trial in choice.trials]
    return list(dict.fromkeys(further))


def _choices(
    records: Sequence[Record], trials: Sequence[Config], contenders: Mapping[str, str] | None, say: Say
) -> list[Choice]:
    found = {identity(record["config"]): record for record in records}
    tried: dict[Config, list[Config]] = {}
    for trial in trials:
        contender = replace(trial, optimizer=(contenders or {}).get(trial.optimizer, trial.optimizer), lr=0.0, seed=0)
        tried.setdefault(contender, []).append(trial)
    chosen = []
    for contender, mine in tried.items():
        benchmark, _ = problem_of(contender)
        tries: dict[tuple[float, str], Seeds] = {}
        for trial in mine:
            tries.setdefault((trial.lr, trial.optimizer), {})[trial.seed] = found[identity(asdict(trial))]
        whole = [has_metrics(record, benchmark, say) for runs in tries.values() for record in runs.values()]
        if not all(whole):
            name = f"{contender.benchmark} {contender.solver} {contender.optimizer}"
            raise ValueError(f"{name}: some of its runs cannot be compared, see above")
        lr, optimizer = best_rate(tries, metrics_of(benchmark, contender.solver)[0])
        chosen.append(Choice(replace(contender, optimizer=optimizer, lr=lr), mine))
    return chosen
