"""Does madamoo compute what it should on this machine? The checks behind ``madamoo selftest``.

Each check compares a result of the device with something independent: torch's Adam, the paper's equations one objective
at a time, a dense eigenbasis in NumPy, or the CPU.
"""

from ._checks import CHECKS
from ._report import Report, describe, environment
from ._run import Outcome, Skipped, run_checks
from ._speed import measure_speed

__all__ = ["CHECKS", "Outcome", "Report", "Skipped", "describe", "environment", "measure_speed", "run_checks"]
