"""The lab's commands. What one of them needs is imported when it runs."""

from ._options import Own
from ._read import collect, data, front, predict, summary, table
from ._train import ablation, run, sweep

__all__ = ["Own", "ablation", "collect", "data", "front", "predict", "run", "summary", "sweep", "table"]
