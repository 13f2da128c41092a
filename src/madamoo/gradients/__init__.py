"""Room one: losses in, gradients out (one row per objective) and their Gram matrix."""

from ._collected import Collected, Collector, sum_present
from ._exchange import Batch, Exchange
from ._features import Cut, FeaturesT, cut_at, differentiate_heads, differentiate_trunk, join_sides
from ._found import Found, add_found, allow_several_backward_passes, differentiate, unpack
from ._gram import gram_matrix, largest_entry, row_statistics, total_norms
from ._layout import ALONE, Layout
from ._losses import Losses, LossesT, check_names, read_counts, read_losses
from ._precision import full_precision, read_scale
from ._processes import Processes
from ._rows import Block, HeadRows, Rows, SharedRows, are_same, by_param, spread
from ._shards import first_row, gathered, is_divided, local, own_part
from ._written import Written, foreign, used_up

__all__ = [
    "ALONE",
    "Batch",
    "Block",
    "Collected",
    "Collector",
    "Cut",
    "Exchange",
    "FeaturesT",
    "Found",
    "HeadRows",
    "Layout",
    "Losses",
    "LossesT",
    "Processes",
    "Rows",
    "SharedRows",
    "Written",
    "add_found",
    "allow_several_backward_passes",
    "are_same",
    "by_param",
    "check_names",
    "cut_at",
    "differentiate",
    "differentiate_heads",
    "differentiate_trunk",
    "first_row",
    "foreign",
    "full_precision",
    "gathered",
    "gram_matrix",
    "is_divided",
    "join_sides",
    "largest_entry",
    "local",
    "own_part",
    "read_counts",
    "read_losses",
    "read_scale",
    "row_statistics",
    "spread",
    "sum_present",
    "total_norms",
    "unpack",
    "used_up",
]
