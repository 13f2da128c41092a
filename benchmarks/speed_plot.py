"""Step times as bars: each network's, by plain Adam's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

KINDS = ("Adam", "MAdam", "MAdam every=10", "TorchJD", "TorchJD Gramian")


def draw(times: Mapping[str, Mapping[str, float]], solvers: Sequence[str], path: Path) -> None:
    figure = Figure(figsize=(3.6 * len(times), 3.2), layout="constrained")
    axes = figure.subplots(1, len(times), squeeze=False)
    for axis, (name, found) in zip(axes[0], times.items(), strict=True):
        width = 0.8 / len(KINDS)
        for k, kind in enumerate(KINDS):
            at = [s for s, solver in enumerate(solvers) if f"{solver} {kind}" in found]
            heights = [found[f"{solvers[s]} {kind}"] / found["plain"] for s in at]
            axis.bar([s + (k - 2) * width for s in at], heights, width, label=kind)
        axis.axhline(1.0, color="black", linewidth=0.8)
        axis.axhline(found["bare"] / found["plain"], color="black", linewidth=0.8, linestyle="--")
        axis.set_xticks(range(len(solvers)), solvers, fontsize=8)
        axis.set_title(name, fontsize=9)
    axes[0][0].set_ylabel("time of a step by plain Adam's\n(dashed: the bare backward passes)", fontsize=8)
    axes[0][-1].legend(fontsize=7)
    with rc_context({"svg.hashsalt": "madamoo"}):  # the same file for the same numbers
        figure.savefig(path, metadata={"Date": None})
