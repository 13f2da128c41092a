"""Learning rates tuned on a few seeds: the runs of all seeds, at the chosen rates alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from ..runs import Config, Record, Say, identity, to_stderr
from ..training import metrics_of, problem_of
from ._table import Seeds, best_rate, has_metrics


def finalists(
    records: Sequence[Record], trials: Sequence[Config], seeds: Sequence[int], say: Say = to_stderr
) -> list[Config]:
    """What was tried, at the best of its learning rates and with all seeds, seed by seed.

    Validation data choose the rate of each solver and optimizer, from the trials alone: runs that are there besides
    change nothing, so that a sweep which is started again makes the same choice.

    Args:
        records: at least those of all trials.
        trials: every learning rate, on the seeds to tune by.
        say: gets the choices, and which of them are at an end of the rates that were tried.
    """
    found = {identity(record["config"]): record for record in records}
    tried: dict[Config, dict[float, Seeds]] = {}
    for trial in trials:
        record = found[identity(asdict(trial))]
        tried.setdefault(replace(trial, lr=0.0, seed=0), {}).setdefault(trial.lr, {})[trial.seed] = record
    chosen = []
    for contender, rates in tried.items():
        benchmark, _ = problem_of(contender)
        whole = [has_metrics(record, benchmark, say) for seeds_of in rates.values() for record in seeds_of.values()]
        if not all(whole):
            raise ValueError(
                f"{contender.solver} {contender.optimizer}: some of its runs cannot be compared, see above"
            )
        lr = best_rate(rates, metrics_of(benchmark, contender.solver)[0])
        ends = {min(rates): "lowest", max(rates): "highest"}
        note = f", the {ends[lr]} that was tried" if len(rates) > 1 and lr in ends else ""
        say(f"{contender.solver} {contender.optimizer}: rate {lr:g}{note}")
        chosen.append(replace(contender, lr=lr))
    return [replace(config, seed=seed) for seed in dict.fromkeys(seeds) for config in chosen]
