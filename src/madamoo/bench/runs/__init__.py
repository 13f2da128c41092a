"""Runs on disk: what identifies one, its folder, its record, and files that are whole or not there.

Nothing here knows a benchmark, and nothing that is read here is ever executed.
"""

from ._config import Config
from ._files import Damaged, read_record, read_tensors, set_aside, write_bytes, write_record, write_tensors
from ._folder import ENDED, PART, Busy, OtherRun, RunFolder
from ._records import Record, collect, identity, read_records
from ._spec import canonical, parse, write

__all__ = [
    "ENDED",
    "PART",
    "Busy",
    "Config",
    "Damaged",
    "OtherRun",
    "Record",
    "RunFolder",
    "canonical",
    "collect",
    "identity",
    "parse",
    "read_record",
    "read_records",
    "read_tensors",
    "set_aside",
    "write",
    "write_bytes",
    "write_record",
    "write_tensors",
]
