"""What a run did, in sentences made from its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from madamoo import diagnostics
from madamoo.presentation.page import Block, Points, Verdict
from madamoo.presentation.style import counted, listed, optimizer_name

from .reading import ReadRun

NOT_DIAGNOSED = "There is no diagnosis: the run was not started with --diagnose."


def lead(run: ReadRun) -> str:
    """One line below the title."""
    if run.record is None:
        steps, objectives = counted(len(run.rows), "measured step"), counted(len(run.objectives), "objective")
        return f"{steps} of a training loop, {objectives}."
    c = run.config
    return f"{c.get('benchmark')}, {c.get('model')}, rate {c.get('lr')}, seed {c.get('seed')}: {run.record['status']}."


def summary_of(run: ReadRun) -> list[Block]:
    """What was trained, what came out, and what the metrics did."""
    return [*(text for text in (trained(run), outcome(run), losses(run)) if text), diagnosis(run)]


def verdict(run: ReadRun) -> Verdict:
    """What it comes to: whether the run ended well, what its metrics did, and what to do next."""
    text, advice = _ending(run)
    if run.rows:
        said, more = diagnostics.verdict(diagnostics.summary(run.rows))
        return Verdict(f"{text} {said}".strip(), [*advice, *more])
    if absent(run) == NOT_DIAGNOSED:
        advice = [*advice, "Run it again with --diagnose to see what the optimizer's metric does to each objective."]
    return Verdict(text or "There is nothing to judge the run by.", advice)


def _ending(run: ReadRun) -> tuple[str, list[str]]:
    status = (run.record or {}).get("status")
    if status == "diverged":
        return "The run diverged.", ["Lower the learning rate, or look at the last losses before it diverged."]
    if status == "running":
        return "The run has not ended.", []
    first, last = ends(run)
    known = [n for n in first if first[n] is not None and last.get(n) is not None]
    worse = [n for n in known if last[n] >= first[n]]
    if worse:
        advice = f"Look at the weights of {listed(worse)}: they may be too small, or the learning rate too high."
        return f"{len(worse)} of {len(known)} losses did not fall ({listed(worse)}).", [advice]
    return ("All losses fell." if known else ""), []


def trained(run: ReadRun) -> str:
    if run.record is None:
        return ""
    c, record = run.config, run.record
    size = f" ({record['parameters']:,} parameters)" if isinstance(record.get("parameters"), int) else ""
    optimizer = optimizer_name(str(c.get("optimizer")), first=True)
    text = (
        f"{optimizer} with {c.get('solver')} trained {c.get('model')}{size} on "
        f"{c.get('benchmark')}, which has {counted(len(run.objectives), 'objective')} ({listed(run.objectives)}), for "
        f"{counted(c.get('epochs') or 0, 'epoch')} of batches of {c.get('batch')} at a rate of {c.get('lr')} "
        f"({c.get('schedule')}), seed {c.get('seed')}."
    )
    cost = record.get("cost") or {}
    if record["status"] == "running":
        return f"{text} It has not ended: {len(run.epochs)} of {c.get('epochs')} epochs are there."
    if cost.get("seconds") is not None:
        text += f" It {record['status']} after {counted(record.get('steps') or 0, 'step')} in {cost['seconds']:.0f} s"
        text += f", {1e3 * cost['seconds_per_step']:.3g} ms per step." if cost.get("seconds_per_step") else "."
    return text


def outcome(run: ReadRun) -> str:
    metrics = (run.record or {}).get("metrics")
    if not metrics:
        return ""
    shown = [f"{name} {value:.4g}" for name, value in metrics.items() if value is not None][:6]
    rest = f", and {len(metrics) - 6} more below" if len(metrics) > 6 else ""
    return f"On test data: {', '.join(shown)}{rest}."


def losses(run: ReadRun) -> str:
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


def ends(run: ReadRun) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first and the last losses by objective: of validation data, or as a probe saw them."""
    epochs = [found for e in run.epochs if (found := e.get("validation_losses")) is not None]
    if len(epochs) > 1:
        pairs = [dict(zip(run.objectives, values, strict=False)) for values in (epochs[0], epochs[-1])]
        return pairs[0], pairs[1]
    if len(run.rows) > 1:
        return run.rows[0]["losses"], run.rows[-1]["losses"]
    return {}, {}


def diagnosis(run: ReadRun) -> Block:
    if not run.rows:
        return absent(run)
    lines = diagnostics.findings(diagnostics.summary(run.rows))
    if str(run.config.get("optimizer")).startswith("marginal"):
        lines.append("This run is of the control (marginal), whose metric knows no preference.")
    return Points(lines)


def absent(run: ReadRun) -> str:
    """Why there is no diagnosis."""
    name = str(run.config.get("optimizer")).partition(":")[0]
    if name in ("mtadam", "adatask"):
        return f"There is no diagnosis: {name} has a direction for each objective and no single one."
    if str(run.config.get("solver")).startswith("rays:"):
        return "Each ray was trained by itself, in a folder of its own, which can be reported on by itself."
    return NOT_DIAGNOSED


def about_folder(records: Sequence[Mapping[str, Any]]) -> str:
    """How many runs of what there are in a folder."""
    configs = [record["config"] for record in records]

    def different(key: str) -> list[Any]:
        return sorted({config[key] for config in configs})

    parts = [counted(len(different(key)), noun) for key, noun in
             (("solver", "solver"), ("optimizer", "optimizer"), ("seed", "seed"), ("lr", "learning rate"))]  # fmt: skip
    diverged = sum(record["status"] == "diverged" for record in records)
    end = f" {counted(diverged, 'run')} diverged." if diverged else ""
    return f"{counted(len(records), 'run')} on {listed(different('benchmark'))}: {', '.join(parts)}.{end}"
