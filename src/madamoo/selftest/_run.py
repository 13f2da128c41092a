"""Running checks one after the other, whatever becomes of each."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch


class Skipped(Exception):
    """Raised by a check that has nothing to compare on this device; its message says why."""


Check = Callable[[torch.device], None]


@dataclass(frozen=True)
class Outcome:
    """What became of one check.

    Example:
        >>> Outcome("resume", "passed", "", 0.5).failed
        False
    """

    name: str
    state: str  # passed, failed or skipped
    message: str
    seconds: float

    @property
    def failed(self) -> bool:
        return self.state == "failed"


def run_checks(checks: Mapping[str, Check], device: torch.device) -> Iterator[Outcome]:
    """The outcome of each check, as it ends. An error of any kind is a failure, and the next check runs."""
    for name, check in checks.items():
        start = time.perf_counter()
        state, message = "passed", ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # solvers warn of uses that the checks make on purpose
                check(device)
        except Skipped as reason:
            state, message = "skipped", str(reason)
        except Exception as error:
            state, message = "failed", _summary(error)
        yield Outcome(name, state, message, time.perf_counter() - start)


def _summary(error: Exception) -> str:
    """The error, and the last line of madamoo that it passed: enough to find it from a pasted report."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "madamoo" in f.filename]
    where = f" ({_short(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:400]}{where}"


def _short(filename: str) -> str:
    """The path from the package on: nobody's home folder is in a report."""
    return filename[filename.rfind("madamoo") :]
