"""What the records of runs say: tables, the summary over benchmarks, the ablation, fronts, the paper's figures."""

from ._ablation import VARIANTS, ablation_rows, render_ablation
from ._benchmarks import benchmarks_of
from ._fronts import front_in, fronts_of
from ._paper import CITATION
from ._plots import draw_summary
from ._render import render_table
from ._summary import CellSummary, Gain, counts, in_words, render_summary, summarise
from ._table import COMPARED, rows, t_interval
from ._tuning import finalists, wider

__all__ = [
    "CITATION",
    "COMPARED",
    "VARIANTS",
    "CellSummary",
    "Gain",
    "ablation_rows",
    "benchmarks_of",
    "counts",
    "draw_summary",
    "finalists",
    "front_in",
    "fronts_of",
    "in_words",
    "render_ablation",
    "render_summary",
    "render_table",
    "rows",
    "summarise",
    "t_interval",
    "wider",
]
