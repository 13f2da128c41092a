"""From records to the rows of a table: which runs are compared with which, and what came out.

Pairs are compared on equal seeds. Learning rates are chosen on validation data alone; test data are only reported.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, TypeVar

from madamoo.significance import t_half_width

from ..problems import Benchmark, Metric
from ..runs import Record, Say, canonical, to_stderr
from ..training import is_static, metrics_of
from . import _paper

K = TypeVar("K", float, tuple[float, str])
Seeds = dict[int, Record]  # the runs of one optimizer at one learning rate
Runs = dict[str, dict[float, Seeds]]  # by optimizer and learning rate

COMPARED = ("adam", "madam", "marginal")
RATES = ("equal", "best")
SPLITS = {"test": "metrics", "validation": "validation"}  # as they are called in records
OF_A_RUN = ("benchmark", "solver", "optimizer", "lr", "seed")  # what differs within a table; all else must not
PAPER_ORDER = ("ls", "dwa", "uw", "imtl", "cagrad")


def rows(
    records: Iterable[Record],
    benchmark: Benchmark,
    *,
    lr: float | None = None,
    profile: str | None = None,
    schedule: str | None = None,
    model: str | None = None,
    name: str | None = None,
    split: str = "test",
    say: Say = to_stderr,
) -> list[dict[str, Any]]:
    """One row per solver, metric and way of choosing learning rates, in this order.

    A table has runs of one setting (profile, epochs, batch, model, schedule) only. It is the one with most runs of
    ``profile``, ``schedule`` and ``model``; if no profile is asked for, of "paper" if there are such runs, or else of
    all. ``left_out`` counts the rest.

    Rate "equal": every optimizer at ``lr``; without it at the profile's own, if Adam and MAdam have runs there; or else
    at the rate where they have most seeds in common. Rate "best": each at the rate that is best on validation data;
    ``doubts`` says of whom that is little worth: see :func:`_doubt`.

    Args:
        name: what the records call the benchmark, where this is not its name: the path of a user's own file.
        split: whose metrics are shown. Choose options of an optimizer by those of "validation", as rates are chosen.
        say: gets what is left out.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be test or validation, got {split!r}")
    mine = [record for record in records if record["config"]["benchmark"] == (name or benchmark.name)]
    mine = [record for record in mine if has_metrics(record, benchmark, say)]
    kept, setting = _one_setting(mine, profile, schedule, model)
    by_solver: dict[str, Runs] = {}
    for record in kept:
        config = record["config"]
        runs = by_solver.setdefault(canonical(config["solver"]), {})
        runs.setdefault(canonical(config["optimizer"]), {}).setdefault(config["lr"], {})[config["seed"]] = record
    size = benchmark.profiles.get(setting.get("profile", ""))
    own = None if size is None else size.lr
    frame = {"benchmark": name or benchmark.name, **setting, "split": split, "left_out": len(mine) - len(kept)}

    found = []
    for solver in sorted(by_solver, key=_solver_order):
        runs, metrics = by_solver[solver], metrics_of(benchmark, solver)
        rates = {
            "equal": dict.fromkeys(runs, lr if lr is not None else _common_rate(runs, own)),
            "best": {optimizer: best_rate(runs[optimizer], metrics[0]) for optimizer in runs},
        }
        doubts = {optimizer: _doubt(lr, runs[optimizer], metrics[0]) for optimizer, lr in rates["best"].items()}
        for metric in metrics:
            for rate in RATES:
                row = _row(runs, rates[rate], doubts if rate == "best" else {}, solver, metric, SPLITS[split])
                if row is not None:
                    paper = _paper.figure(benchmark.name, benchmark.row_of_paper(solver, setting), metric.name)
                    found.append({**frame, **row, "primary": metric == metrics[0], "rate": rate, "paper": paper})
    return found


def _row(
    runs: Runs, rates: Mapping[str, float], doubts: Mapping[str, str | None], solver: str, metric: Metric, data: str
) -> dict[str, Any] | None:
    chosen = {optimizer: runs[optimizer][lr] for optimizer, lr in rates.items() if lr in runs[optimizer]}
    if not chosen:
        return None
    compared = [optimizer for optimizer in COMPARED if optimizer in chosen]
    common = sorted(set.intersection(*(set(chosen[optimizer]) for optimizer in compared))) if compared else []
    used = {optimizer: {seed: chosen[optimizer][seed] for seed in common} for optimizer in compared}
    others = {optimizer: seeds for optimizer, seeds in chosen.items() if optimizer not in COMPARED}

    values = {optimizer: _values(seeds, metric, data) for optimizer, seeds in used.items()}
    lrs, doubts = {optimizer: rates[optimizer] for optimizer in compared}, dict(doubts)
    stands_in = "marginal" not in values and "madam" in values and is_static(solver)
    if stands_in:  # where the weights never move, the control is MAdam itself, and nobody runs it twice
        values["marginal"], lrs["marginal"] = values["madam"], lrs["madam"]
        doubts["marginal"] = doubts.get("madam")
    means = {optimizer: _mean([*values.get(optimizer, {}).values()]) for optimizer in COMPARED}
    target = _target(used)
    everyone = {**used, **others}
    return {
        "solver": solver,
        "metric": metric.name,
        "higher_is_better": metric.higher_is_better,
        "unsolved": metric.unsolved,
        "digits": metric.digits,
        **means,
        "marginal_is_madam": stands_in,
        "deviation": {optimizer: _deviation([*values.get(optimizer, {}).values()]) for optimizer in COMPARED},
        "seeds": common,
        "per_seed": {optimizer: _by_name(values.get(optimizer, {})) for optimizer in COMPARED},
        "lr": {optimizer: lrs.get(optimizer) for optimizer in COMPARED},
        "doubts": doubts,
        "difference": _difference(values, "madam", "adam"),
        "difference_to_marginal": _difference(values, "madam", "marginal"),
        "better": _better(means["adam"], means["madam"], metric),
        "others": {
            optimizer: _other(others[optimizer], rates[optimizer], metric, data) for optimizer in sorted(others)
        },
        "target": target,
        "seconds": _over(everyone, lambda record: _cost(record, "seconds"), fmean),
        "seconds_to_target": _over(everyone, lambda record: _seconds_to(record, target), fmean),
        "training": _training(used, everyone),
        "peak_memory_bytes": _over(everyone, lambda record: _cost(record, "peak_memory_bytes"), max),
        "state_bytes": _over(everyone, lambda record: _cost(record, "state_bytes"), max),
        "diverged": {
            optimizer: sum(record["status"] == "diverged" for record in seeds.values())
            for optimizer, seeds in everyone.items()
        },
    }


def has_metrics(record: Record, benchmark: Benchmark, say: Say) -> bool:
    """Whether a run has all that is reported of it; one that lacks a metric is named and left out."""
    if record["status"] == "diverged":
        return True
    config = record["config"]
    wanted = [metric.name for metric in metrics_of(benchmark, config["solver"])]
    absent = [f"{key}.{name}" for key in SPLITS.values() for name in wanted if name not in record[key]]
    if absent:
        run = f"{config['solver']} {config['optimizer']} lr {config['lr']:g} seed {config['seed']}"
        say(f"the run {run} lacks {', '.join(absent)} and is left out: run it again")
    return not absent


def _one_setting(
    records: Sequence[Record], profile: str | None, schedule: str | None, model: str | None
) -> tuple[list[Record], dict[str, Any]]:
    """The records of one setting, and this setting."""
    settings = [{key: value for key, value in r["config"].items() if key not in OF_A_RUN} for r in records]
    if profile is None and any(setting.get("profile") == "paper" for setting in settings):
        profile = "paper"
    keys = [json.dumps(setting, sort_keys=True) for setting in settings]
    wanted = {"profile": profile, "schedule": schedule, "model": model}
    counts = Counter(
        key
        for key, setting in zip(keys, settings, strict=True)
        if all(value in (None, setting.get(what)) for what, value in wanted.items())
    )
    if not counts:
        return [], {}
    chosen = min(counts, key=lambda key: (-counts[key], key))
    return [record for key, record in zip(keys, records, strict=True) if key == chosen], json.loads(chosen)


def _common_rate(runs: Runs, own: float | None) -> float:
    """A rate at which Adam and MAdam can be compared: the profile's own, or that with most seeds in common."""
    pair = [runs[optimizer] for optimizer in ("adam", "madam") if optimizer in runs] or list(runs.values())
    if own is not None and all(own in rates for rates in pair):
        return own

    def merit(lr: float) -> tuple[int, int, float]:
        seeds = [set(rates.get(lr, ())) for rates in pair]
        return len(set.intersection(*seeds)), len(set.union(*seeds)), -lr

    return max({lr for rates in pair for lr in rates}, key=merit)


def best_rate(rates: Mapping[K, Seeds], primary: Metric) -> K:
    """The rate with the best mean on validation data, of those with the full number of seeds; the lowest of equals."""
    full = max(map(len, rates.values()))
    sign = -1.0 if primary.higher_is_better else 1.0

    def badness(lr: K) -> tuple[float, K]:
        return sign * fmean(_values(rates[lr], primary, "validation").values()), lr

    return min((lr for lr in rates if len(rates[lr]) == full), key=badness)


def end_of(lr: float, rates: Collection[float]) -> str | None:
    """At which end of the rates that were tried this one is: a better one may lie beyond it. None inside."""
    return "only" if len(rates) == 1 else {min(rates): "lowest", max(rates): "highest"}.get(lr)


def _doubt(chosen: float, rates: Mapping[float, Seeds], primary: Metric) -> str | None:
    """Why the best rate may not be the best: :func:`end_of`, or "fewer", a better one that has not all the seeds."""
    mine = _values(rates[chosen], primary, "validation")
    sign = -1.0 if primary.higher_is_better else 1.0
    for lr, seeds in rates.items():
        common = {seed: value for seed, value in _values(seeds, primary, "validation").items() if seed in mine}
        if lr != chosen and common and sign * fmean(common.values()) < sign * fmean(mine[seed] for seed in common):
            return "fewer"
    return end_of(chosen, rates)


def _values(seeds: Seeds, metric: Metric, data: str) -> dict[int, float]:
    """The metric by seed; infinitely bad where the run diverged."""
    worst = -math.inf if metric.higher_is_better else math.inf
    values = {}
    for seed in sorted(seeds):
        record = seeds[seed]
        if record["status"] == "diverged":
            values[seed] = worst
        else:
            value = record[data][metric.name]
            values[seed] = worst if value is None or not math.isfinite(value) else float(value)
    return values


def _other(seeds: Seeds, lr: float, metric: Metric, data: str) -> dict[str, Any]:
    values = _values(seeds, metric, data)
    return {
        "mean": _mean([*values.values()]),
        "deviation": _deviation([*values.values()]),
        "per_seed": _by_name(values),
        "lr": lr,
    }


def _by_name(values: Mapping[int, float]) -> dict[str, float]:
    """Seeds as JSON writes them."""
    return {str(seed): value for seed, value in values.items()}


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _deviation(values: Sequence[float]) -> float | None:
    return stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None


def _difference(values: Mapping[str, Mapping[int, float]], one: str, other: str) -> dict[str, float | None] | None:
    """Mean of ``one - other`` over the seeds, and its 95 % t-interval; None where nothing can be subtracted."""
    if not values.get(one) or not values.get(other):
        return None
    return t_interval([values[one][seed] - values[other][seed] for seed in values[one]])


def t_interval(values: Sequence[float]) -> dict[str, float | None] | None:
    """Mean and 95 % t-interval; None if the mean is not a number, as where both of a pair diverged."""
    mean = sum(values) / len(values)
    if math.isnan(mean):
        return None
    if len(values) < 2 or not math.isfinite(mean):
        return {"mean": mean, "low": None, "high": None}
    half = t_half_width(values)
    return {"mean": mean, "low": mean - half, "high": mean + half}


def _better(adam: float | None, madam: float | None, metric: Metric) -> str | None:
    if adam is None or madam is None or adam == madam or not metric.counts(adam, madam):
        return None
    return "madam" if (madam > adam) == metric.higher_is_better else "adam"


def _target(used: Mapping[str, Seeds]) -> float | None:
    """The largest final validation loss of the compared runs: every one of them that did not diverge reaches it."""
    losses = [r.get("validation_loss") for seeds in used.values() for r in seeds.values() if r["status"] == "finished"]
    return max((loss for loss in losses if loss is not None), default=None)


def _seconds_to(record: Record, target: float | None) -> float | None:
    """Seconds of training until the validation loss is at ``target`` or below; infinite if it never is.

    A run that diverged may have been there, but it did not stay.
    """
    if target is None:
        return None
    curve = _cost(record, "curve") or []
    return next((seconds for seconds, loss in curve if loss is not None and loss <= target), math.inf)


def _training(used: Mapping[str, Seeds], everyone: Mapping[str, Seeds]) -> dict[str, dict[str, float | None]]:
    """Of each optimizer: its final training loss, and the steps and seconds until the target of each seed.

    The target is the highest training loss at which a compared run of the same seed ended: every one of them that did
    not diverge reaches it. Means over seeds; infinite if a run never gets there.
    """
    targets = {}
    for seed in {seed for seeds in used.values() for seed in seeds}:
        ended = [seeds[seed] for seeds in used.values() if seeds[seed]["status"] == "finished"]
        losses = [loss for record in ended if (loss := _final_loss(record)) is not None]
        if losses and len(losses) == len(ended):
            targets[seed] = max(losses)
    found = {}
    for optimizer, seeds in everyone.items():
        common = [(seeds[seed], target) for seed, target in targets.items() if seed in seeds]
        if common:
            reached = [_reached(record, target) for record, target in common]
            losses = [loss for record, _ in common if (loss := _final_loss(record)) is not None]
            found[optimizer] = {
                "loss": _mean(losses),
                "steps": fmean(steps for steps, _ in reached),
                "seconds": fmean(seconds for _, seconds in reached),
            }
    return found


def _final_loss(record: Record) -> float | None:
    points = _cost(record, "training")
    return points[-1][2] if points else None


def _reached(record: Record, target: float) -> tuple[float, float]:
    """Steps and seconds of training until the end of the first epoch whose training loss is at ``target`` or below."""
    points = _cost(record, "training") or []
    return next(((n, t) for n, t, loss in points if loss is not None and loss <= target), (math.inf, math.inf))


def _cost(record: Record, name: str) -> Any:
    """None for a run that diverged: it stopped early, and that is no saving."""
    return (record.get("cost") or {}).get(name) if record["status"] == "finished" else None


def _over(
    runs: Mapping[str, Seeds], measure: Callable[[Record], Any], summary: Callable[[list[float]], float]
) -> dict[str, float]:
    """A summary over the seeds of each optimizer, of those runs that have the measure."""
    found = {optimizer: [measure(record) for record in seeds.values()] for optimizer, seeds in runs.items()}
    known = {optimizer: [value for value in values if value is not None] for optimizer, values in found.items()}
    return {optimizer: summary(values) for optimizer, values in known.items() if values}


def _solver_order(solver: str) -> tuple[int, str]:
    """The paper's solvers first, in its order."""
    return (PAPER_ORDER.index(solver) if solver in PAPER_ORDER else len(PAPER_ORDER)), solver
