"""Runs on disk: what identifies one, its folder, its record, and files that are whole or not there.

Nothing here knows a benchmark, and nothing that is read here is ever executed.
"""

from ._check import ENDED, check_epoch, check_maps, read_record
from ._config import Config
from ._files import Damaged, Say, read_tensors, set_aside, to_stderr, write_record, write_tensors
from ._folder import MAPS, PART, RECORD, Busy, OtherRun, RunFolder
from ._records import RUNNING, Record, collect, identity, read_records
from ._rows import DIAGNOSTICS, EPOCHS, Row, Rows, append_row, read_rows, write_rows
from ._spec import BadValue, alternatives, canonical, check_options, naming, parse, write

__all__ = [
    "DIAGNOSTICS",
    "ENDED",
    "EPOCHS",
    "MAPS",
    "PART",
    "RECORD",
    "RUNNING",
    "BadValue",
    "Busy",
    "Config",
    "Damaged",
    "OtherRun",
    "Record",
    "Row",
    "Rows",
    "RunFolder",
    "Say",
    "alternatives",
    "append_row",
    "canonical",
    "check_epoch",
    "check_maps",
    "check_options",
    "collect",
    "identity",
    "naming",
    "parse",
    "read_record",
    "read_records",
    "read_rows",
    "read_tensors",
    "set_aside",
    "to_stderr",
    "write",
    "write_record",
    "write_rows",
    "write_tensors",
]
