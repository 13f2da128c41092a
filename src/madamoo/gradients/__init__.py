"""Room one: losses in, gradients out (one row per objective) and their Gram matrix."""

from ._collected import Collected, Collector, sum_present
from ._exchange import Exchange
from ._features import Cut, FeaturesT, cut_at, differentiate_heads, differentiate_trunk, join_sides
from ._found import Found, add_found, allow_several_backward_passes, differentiate, unpack
from ._gram import gram_matrix, largest_entry, row_statistics
from ._layout import ALONE, Layout
from ._losses import Losses, LossesT, check_names, read_losses
from ._precision import full_precision, read_scale
from ._rows import Block, HeadRows, Rows, SharedRows, are_same, by_param, spread
from ._written import Written, foreign, used_up

__all__ = [
    "ALONE",
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
    "foreign",
    "full_precision",
    "gram_matrix",
    "join_sides",
    "largest_entry",
    "read_losses",
    "read_scale",
    "row_statistics",
    "spread",
    "sum_present",
    "unpack",
    "used_up",
]
