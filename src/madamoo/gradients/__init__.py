"""Room one: losses in, gradients out (one row an objective) and their Gram matrix."""

from ._losses import Losses, LossesT, check_names, read_losses
from ._rows import REST, Rows, add_rows, as_matrix, compute_rows, drop_zero_rows, gram_matrix, largest_entry

__all__ = [
    "REST",
    "Losses",
    "LossesT",
    "Rows",
    "add_rows",
    "as_matrix",
    "check_names",
    "compute_rows",
    "drop_zero_rows",
    "gram_matrix",
    "largest_entry",
    "read_losses",
]
