"""What a run did, in sentences made from its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from madamoo.diagnostics import summary
from madamoo.diagnostics._summary import findings

from .page import Block, Points
from .reading import Run

NAMES = {"adam": "Adam", "madam": "MAdam", "marginal": "Adam twice (the control)"}


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def listed(names: Sequence[str], most: int = 8) -> str:
    shown = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def optimizer_name(spec: str) -> str:
    name, _, options = spec.partition(":")
    return NAMES.get(name, name) + (f" ({options})" if options else "")


def lead(run: Run) -> str:
    """One line below the title."""
    if run.record is None:
        return f"{count(len(run.rows), 'measured step')} of a training loop, {count(len(run.objectives), 'objective')}."
    c = run.config
    return f"{c.get('benchmark')}, {c.get('model')}, rate {c.get('lr')}, seed {c.get('seed')}: {run.record['status']}."


def told(run: Run) -> list[Block]:
    """The summary: what was trained, what came out, and what the metrics did."""
    return [*(text for text in (trained(run), outcome(run), losses(run)) if text), diagnosis(run)]


def trained(run: Run) -> str:
    if run.record is None:
        return ""
    c, record = run.config, run.record
    size = f" ({record['parameters']:,} parameters)" if isinstance(record.get("parameters"), int) else ""
    text = (
        f"{optimizer_name(str(c.get('optimizer')))} with {c.get('solver')} trained {c.get('model')}{size} on "
        f"{c.get('benchmark')}, which has {count(len(run.objectives), 'objective')} ({listed(run.objectives)}), for "
        f"{count(c.get('epochs', 0), 'epoch')} of batches of {c.get('batch')} at a rate of {c.get('lr')} "
        f"({c.get('schedule')}), seed {c.get('seed')}."
    )
    cost = record.get("cost") or {}
    if record["status"] == "running":
        return f"{text} It has not ended: {len(run.epochs)} of {c.get('epochs')} epochs are there."
    if cost.get("seconds") is not None:
        text += f" It {record['status']} after {count(record.get('steps', 0), 'step')} in {cost['seconds']:.0f} s"
        text += f", {1e3 * cost['seconds_per_step']:.3g} ms a step." if cost.get("seconds_per_step") else "."
    return text


def outcome(run: Run) -> str:
    metrics = (run.record or {}).get("metrics")
    if not metrics:
        return ""
    shown = [f"{name} {value:.4g}" for name, value in metrics.items()][:6]
    rest = f", and {len(metrics) - 6} more below" if len(metrics) > 6 else ""
    return f"On test data: {', '.join(shown)}{rest}."


def losses(run: Run) -> str:
    """From where to where the losses went, and which did not fall."""
    first, last = ends(run)
    known = [name for name in first if first[name] is not None and last.get(name) is not None]
    if not known:
        return ""
    worse = [name for name in known if last[name] >= first[name]]
    kind = "validation" if run.epochs else "measured"
    spans = [f"{name} from {first[name]:.3g} to {last[name]:.3g}" for name in known[:4]]
    more = f", and {len(known) - 4} more" if len(known) > 4 else ""
    verdict = "All of them fell." if not worse else f"Not lower at the end than at the beginning: {listed(worse)}."
    return f"The {kind} losses went: {', '.join(spans)}{more}. {verdict}"


def ends(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first and the last losses by objective: of validation data, or as a probe saw them."""
    epochs = [e["validation_losses"] for e in run.epochs if e["validation_losses"] is not None]
    if len(epochs) > 1:
        pairs = [dict(zip(run.objectives, values, strict=False)) for values in (epochs[0], epochs[-1])]
        return pairs[0], pairs[1]
    if len(run.rows) > 1:
        return run.rows[0]["losses"], run.rows[-1]["losses"]
    return {}, {}


def diagnosis(run: Run) -> Block:
    if not run.rows:
        return absent(run)
    lines = findings(summary(run.rows))
    if str(run.config.get("optimizer")).startswith("marginal"):
        lines.append("The metric of this run is the control's, which knows no preference.")
    return Points(lines)


def absent(run: Run) -> str:
    """Why there is no diagnosis."""
    name = str(run.config.get("optimizer")).partition(":")[0]
    if name in ("mtadam", "adatask"):
        return f"There is no diagnosis: {name} has a direction for each objective and no single one."
    if str(run.config.get("solver")).startswith("rays:"):
        return "Each ray was trained by itself, in a folder of its own, which can be reported on by itself."
    return "There is no diagnosis: the run was not started with --diagnose."


def about_folder(records: Sequence[Mapping[str, Any]]) -> str:
    """How many runs of what there are in a folder."""
    configs = [record["config"] for record in records]

    def different(key: str) -> list[Any]:
        return sorted({config[key] for config in configs})

    parts = [count(len(different(key)), noun) for key, noun in
             (("solver", "solver"), ("optimizer", "optimizer"), ("seed", "seed"), ("lr", "learning rate"))]  # fmt: skip
    diverged = sum(record["status"] == "diverged" for record in records)
    end = f" {count(diverged, 'run')} diverged." if diverged else ""
    return f"{count(len(records), 'run')} on {listed(different('benchmark'))}: {', '.join(parts)}.{end}"
