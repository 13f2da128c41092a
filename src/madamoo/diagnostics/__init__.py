"""What the optimizer's metric does to each objective, measured on your own training run.

A probe measures every so many steps and changes nothing: the run with it is the run without it, bit for bit.
"""

from ._attach import attach
from ._bytes import state_bytes
from ._measure import METRICS
from ._probe import Probe
from ._reading import check_row, read, read_runs, split_runs
from ._sinks import FILE, Row, flatten
from ._summary import describe, findings, summary, verdict

__all__ = [
    "FILE",
    "METRICS",
    "Probe",
    "Row",
    "attach",
    "check_row",
    "describe",
    "findings",
    "flatten",
    "read",
    "read_runs",
    "split_runs",
    "state_bytes",
    "summary",
    "verdict",
]
