"""Room one: losses in, gradients out (one row an objective) and their Gram matrix."""

from ._features import (
    Cut,
    FeaturesT,
    compute_rows_at_features,
    compute_rows_together,
    compute_trunk_row,
    cut_at,
)
from ._losses import Losses, LossesT, check_names, read_losses
from ._rows import (
    ALONE,
    REST,
    Gradients,
    Rows,
    add_rows,
    are_same,
    by_param,
    compute_rows,
    drop_zero_rows,
    gram_matrix,
    largest_entry,
    pack,
    sizes_of,
    unpack,
)

__all__ = [
    "ALONE",
    "REST",
    "Cut",
    "FeaturesT",
    "Gradients",
    "Losses",
    "LossesT",
    "Rows",
    "add_rows",
    "are_same",
    "by_param",
    "check_names",
    "compute_rows",
    "compute_rows_at_features",
    "compute_rows_together",
    "compute_trunk_row",
    "cut_at",
    "drop_zero_rows",
    "gram_matrix",
    "largest_entry",
    "pack",
    "read_losses",
    "sizes_of",
    "unpack",
]
