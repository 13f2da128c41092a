"""The lab's commands. What one of them needs is imported when it runs."""

from ._options import Own, count, parts, plainly, whole
from ._read import collect, data, front, predict, summary, table
from ._train import ablation, run, sweep

__all__ = [
    "Own",
    "ablation",
    "collect",
    "count",
    "data",
    "front",
    "parts",
    "plainly",
    "predict",
    "run",
    "summary",
    "sweep",
    "table",
    "whole",
]
