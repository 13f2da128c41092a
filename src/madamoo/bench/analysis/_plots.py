"""Two figures of the summary: the gain of every cell with its interval, and gain against how fast lambda moves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from madamoo.presentation.pictures import dots, labelled_points
from madamoo.presentation.plots import Group

from ._summary import CellSummary


def draw_summary(cells: Sequence[CellSummary], folder: Path) -> list[Path]:
    """Write both figures into ``folder`` and return their paths."""
    moved = {
        name: [
            (max(c.moved, 1e-5), c.over_adam.mean, c.solver)
            for c in cells
            if c.benchmark == name and c.moved is not None and c.over_adam is not None
        ]
        for name in sorted({cell.benchmark for cell in cells})
    }
    return [
        dots(
            [
                Group.of_intervals("over Adam", 0, [cell.over_adam for cell in cells]),
                Group.of_intervals("over control", 1, [cell.over_control for cell in cells]),
            ],
            [f"{cell.benchmark}  {cell.solver}" for cell in cells],
            "per cent of the error that is gone with MAdam",
            folder / "gains.svg",
        ),
        labelled_points(
            moved,
            "part of the weight that changes hands in a step (constant weights: left edge)",
            "per cent of the error that is gone, MAdam over Adam",
            folder / "gain-and-movement.svg",
            log=True,
        ),
    ]
