"""What the optimizer's metric does to each objective, measured on your own training run.

A probe measures every so many steps and changes nothing: the run with it is the run without it, bit for bit.
"""

from ._attach import attach
from ._bytes import state_bytes
from ._probe import Probe
from ._sinks import flatten, read
from ._summary import describe, summary

__all__ = ["Probe", "attach", "describe", "flatten", "read", "state_bytes", "summary"]
