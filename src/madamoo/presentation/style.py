"""The palette, the names that readers see, and how numbers are written: the same in every table, figure and page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

# Okabe and Ito's colours, which the colour-blind can tell apart; shapes and dashes help in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
INK, MUTED, GRID, PAPER = "#333333", "#8a8f98", "#e3e3e3", "#ffffff"
# What each colour is on a dark page.
DARK = {
    **dict(zip(COLOURS, ("#5aa9e6", "#f08a4b", "#3cc79b", "#e29ac4", "#f0b840", "#9bd3f5", "#d5d8dd"), strict=True)),
    INK: "#c3c8cf",
    MUTED: "#7d848e",
    GRID: "#2c3037",
    PAPER: "#15171b",
}
DASHES = ("solid", "dash", "dot", "dashdot")
FAINT = 0.3  # the opacity of what is there but does not count

# The optimizers that every table compares. The lab calls them by the keys of OPTIMIZERS.
ADAM, CONTROL, MADAM = "Adam", "control", "MAdam"
OPTIMIZERS = {"adam": ADAM, "marginal": CONTROL, "madam": MADAM}
CONTROL_DEFINED = (
    'control (marginal): PreferenceMetric("marginal"), "Adam twice". It divides by the average of d², whatever the '
    "preference, so that only what beats it is due to the preference"
)
# Two more, of the demo.
MSOAP, SOAP = "MSOAP", "SOAP"
HUES = {ADAM: 1, CONTROL: 2, MADAM: 0, MSOAP: 3, SOAP: 4}
STROKES = {ADAM: "dash", CONTROL: "dot", MADAM: "solid", MSOAP: "solid", SOAP: "dashdot"}

METRICS = {
    "euclidean": "Euclidean",
    "adam": "Adam's",
    "preference": "preference-conditioned",
    "realised": "step taken",
}
METRIC_HUES = {"euclidean": 6, "adam": 1, "preference": 0, "realised": 2}

RATES = {
    "equal": "all at the same learning rate",
    "best": "each at its best learning rate on validation data",
}

# matplotlib's settings for all pictures.
PICTURE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "pdf.fonttype": 42,  # text that can be searched and edited, as in the SVG
    "svg.fonttype": "none",
    "svg.hashsalt": "madamoo",  # the same picture, the same file
    **{key: INK for key in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")},
}


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def dash(index: int) -> str:
    """Beyond the colours there are, lines differ in their dashes."""
    return DASHES[index // len(COLOURS) % len(DASHES)]


def optimizer_name(spec: str, *, first: bool = False) -> str:
    """An optimizer of the lab as readers see it; ``first`` where it is mentioned for the first time.

    Example:
        >>> optimizer_name("marginal"), optimizer_name("madam:every=2")
        ('control', 'MAdam (every=2)')
    """
    name, _, options = spec.partition(":")
    if first and name == "marginal":
        options = f"marginal{options and f', {options}'}"
    return OPTIMIZERS.get(name, name) + (f" ({options})" if options else "")


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names in a sentence, the last ones counted if there are many."""
    if not names:
        return "none"
    shown = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def vector(values: Sequence[float]) -> str:
    return f"({', '.join(f'{x:g}' for x in values)})"


def plus_minus(mean: float | None, deviation: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """A mean and how far values lie from it; of one value alone nothing is said."""
    if mean is None:
        return ""
    if not math.isfinite(mean):
        return "diverged"
    text = f"{mean:+.{digits}f}" if sign else f"{mean:.{digits}f}"
    return text if deviation is None or math.isnan(deviation) else f"{text} ± {deviation:.{digits}f}"


def interval(mean: float, low: float | None, high: float | None, digits: int = 1) -> str:
    """A difference with its confidence interval, if there is one."""
    spread = "" if low is None or high is None else f" [{low:+.{digits}f}, {high:+.{digits}f}]"
    return f"{mean:+.{digits}f}{spread}"


def rate_text(lr: float | None) -> str:
    """A learning rate in few letters: 3e-4."""
    if lr is None:
        return "-"
    mantissa, exponent = f"{lr:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
