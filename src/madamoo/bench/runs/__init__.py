"""Runs on disk: what identifies one, its folder, its record, and files that are whole or not there.

Nothing here knows a benchmark, and nothing that is read here is ever executed.
"""

from ._check import ENDED
from ._config import Config
from ._files import Damaged, read_record, read_tensors, replacing, set_aside, write_bytes, write_record, write_tensors
from ._folder import PART, Busy, OtherRun, RunFolder
from ._records import Record, collect, identity, read_records
from ._rows import DIAGNOSTICS, EPOCHS, Row, Rows, append_row, read_rows, write_rows
from ._spec import BadValue, canonical, check_options, naming, parse, write

__all__ = [
    "DIAGNOSTICS",
    "ENDED",
    "EPOCHS",
    "PART",
    "BadValue",
    "Busy",
    "Config",
    "Damaged",
    "OtherRun",
    "Record",
    "Row",
    "Rows",
    "RunFolder",
    "append_row",
    "canonical",
    "check_options",
    "collect",
    "identity",
    "naming",
    "parse",
    "read_record",
    "read_records",
    "read_rows",
    "read_tensors",
    "replacing",
    "set_aside",
    "write",
    "write_bytes",
    "write_record",
    "write_rows",
    "write_tensors",
]
