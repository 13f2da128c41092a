"""What was found, in sentences."""

from __future__ import annotations

from madamoo.presentation.style import listed, rate_text

from ._contenders import Contender
from ._result import Finalist, Settings, Tuned

EDGE = 1.5  # a rate within this factor of an end of the range may have its best beyond it


def verdict(tuned: Tuned) -> str:
    """What to use, how sure that is, and what it costs."""
    use, base, seeds = tuned.use, tuned.baseline, len(tuned.baseline.values)
    text = f"Use {use.name} at a learning rate of {rate_text(use.lr)}."
    if not tuned.beats_adam:
        return f"{text} {_nothing_better(tuned)}"
    found, k = tuned.winner.comparison, len(tuned.finalists)
    assert found is not None
    text += (
        f" On {seeds} fresh seeds {_against(tuned.winner, base)}, and it is better on {found.wins} of {seeds}. "
        f"Adam with LS had as many trials for its rate ({rate_text(base.contender.lr)}). The difference is beyond "
        f"chance: p {_p(found.p)}{_corrected(k)}."
    )
    return f"{text} {cost(tuned.winner)}".rstrip()


def _nothing_better(tuned: Tuned) -> str:
    seeds, k = len(tuned.baseline.values), len(tuned.finalists)
    if not k:
        return "That is what was found: no other contender trained to the end with a finite validation number."
    which = "the one finalist is not" if k == 1 else f"none of the {k} finalists is"
    text = f"That is what was found: {which} better beyond chance on {seeds} fresh seeds."
    best = max(tuned.finalists, key=lambda f: f.gain)
    found = best.comparison
    if found is None or found.gain is None:
        return text
    return (
        f"{text} With the nearest, {best.contender.name}, {_against(best, tuned.baseline)} (p {_p(found.p)}"
        f"{_corrected(k)}). A difference within that interval may still be there: it takes more seeds to show."
    )


def _against(finalist: Finalist, base: Finalist) -> str:
    """Both means, and by how much the finalist is better, in the unit of the validation number and in per cent."""
    found = finalist.comparison
    assert found is not None
    if found.gain is None or found.low is None or found.high is None:
        lost = [f"{f.contender.name} on {f.diverged}" for f in (base, finalist) if f.diverged]
        return f"there is no mean to compare, for runs diverged ({listed(lost)})"
    percent = f"{100 * found.gain / abs(base.mean):+.2g} %, " if base.mean else ""
    return (
        f"the mean validation number is {finalist.mean:.4g}, that of Adam with LS {base.mean:.4g}: a gain of {percent}"
        f"{found.gain:+.3g} [{found.low:+.3g}, {found.high:+.3g}]"
    )


def _corrected(finalists: int) -> str:
    return f" after Holm's correction for {finalists} finalists" if finalists > 1 else ""


def _p(value: float) -> str:
    return "< 0.001" if value < 1e-3 else f"= {value:.2g}"


def cost(finalist: Finalist) -> str:
    found = finalist.cost
    if found is None:
        return ""
    return f"A step takes {found.cpu:.2g} times the CPU time of Adam's, and {found.wall:.2g} times as long."


def advice(tuned: Tuned, settings: Settings, code: str) -> list[str]:
    """What to do next; ``code`` makes the winner."""
    lines = [f"In your code: opt = {code}"] if code else []
    cheaper = [
        f.contender.name
        for f in tuned.finalists
        if f is not tuned.winner and f.comparison and f.comparison.better and _is_cheaper(f, tuned.winner)
    ]
    if cheaper:
        lines.append(f"Also better than Adam beyond chance, and cheaper per step: {listed(cheaper)}.")
    lines += [
        f"The rate of {contender.name}, {rate_text(contender.lr)}, is near the {end} that was tried: search again with "
        "wider --rates, in another folder."
        for contender in dict.fromkeys((tuned.baseline.contender, tuned.use))
        if (end := _end(contender, settings))
    ]
    return [*lines, "Report the result on test data that validate does not use: the search has chosen by its number."]


def _is_cheaper(one: Finalist, other: Finalist) -> bool:
    return one.cost is not None and other.cost is not None and one.cost.cpu < 0.9 * other.cost.cpu


def _end(contender: Contender, settings: Settings) -> str:
    low, high = settings.rates
    return "lowest" if contender.lr < low * EDGE else "highest" if contender.lr > high / EDGE else ""
