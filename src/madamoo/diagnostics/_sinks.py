"""Where rows go: a folder, an experiment tracker, any function."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]
Sink: TypeAlias = Callable[[Row], Any]

FILE = "diagnostics.jsonl"


def open_sinks(sinks: Any) -> list[Sink]:
    """A list of functions of a row, from one sink or several."""
    single = isinstance(sinks, str | os.PathLike) or callable(sinks) or _tracker(sinks) is not None
    if not single and not isinstance(sinks, Iterable):
        raise TypeError(f"sinks must be a sink or a list of sinks, got {type(sinks).__name__}")
    return [_open(sink) for sink in ([sinks] if single else sinks)]


def _open(sink: Any) -> Sink:
    if isinstance(sink, str | os.PathLike):
        return _Folder(Path(sink))
    if callable(sink):
        return sink
    tracker = _tracker(sink)
    if tracker is not None:
        return tracker(sink)
    raise TypeError(
        "a sink must be a folder, a tracker (with add_scalar, log_metrics or log) or a function of a row, "
        f"got {type(sink).__name__}"
    )


def _tracker(sink: Any) -> type[_Tracker] | None:
    """How to talk to a tracker, by what it offers; none of them is imported for it."""
    offers = {"add_scalar": _TensorBoard, "define_metric": _WandB, "log_metrics": _MLflow, "log": _Accelerate}
    return next((kind for name, kind in offers.items() if callable(getattr(sink, name, None))), None)


class _Folder:
    """Appends each row as one line to a file in a folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:  # a killed run may have left half a line
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    file.write(b"\n")

    def __call__(self, row: Row) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")

    def __repr__(self) -> str:
        return repr(str(self.path))


class _Tracker:
    """Gives each number of a row to an experiment tracker, as ``diagnostics/weights/loss_a``."""

    def __init__(self, tracker: Any) -> None:
        self.tracker = tracker

    def __call__(self, row: Row) -> None:
        numbers = flatten(row)
        step = int(numbers.pop("step"))
        self.log({f"diagnostics/{name}": value for name, value in numbers.items()}, step)

    def log(self, numbers: dict[str, float], step: int) -> None:
        raise NotImplementedError

    def __repr__(self) -> str:
        return repr(self.tracker)


class _TensorBoard(_Tracker):
    """``SummaryWriter("runs/mine")``."""

    def log(self, numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            self.tracker.add_scalar(name, value, step)


class _WandB(_Tracker):
    """``wandb.init(project="mine")``. Its own step counts the calls of ``log``, the user's too: ours is the axis."""

    def __init__(self, tracker: Any) -> None:
        super().__init__(tracker)
        tracker.define_metric("diagnostics/step")
        tracker.define_metric("diagnostics/*", step_metric="diagnostics/step")

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.tracker.log({**numbers, "diagnostics/step": step})


class _MLflow(_Tracker):
    """``mlflow`` itself, within a run; or a logger of Lightning."""

    def log(self, numbers: dict[str, float], step: int) -> None:
        # MLflow refuses names with other characters, and the user names the objectives.
        self.tracker.log_metrics({re.sub(r"[^\w/. -]", "_", name): x for name, x in numbers.items()}, step=step)


class _Accelerate(_Tracker):
    """``Accelerator(log_with=...)``, or what else has ``log(numbers, step)``."""

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.tracker.log(numbers, step=step)


def flatten(row: Row) -> dict[str, float]:
    """The numbers of a row by one name each, as ``effects/adam/loss_a``; what is None is left out.

    Example:
        >>> flatten({"step": 3, "flips": {"adam": {"a": True, "b": None}}})
        {'step': 3, 'flips/adam/a': 1}
    """
    result: dict[str, float] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, x in value.items():
                walk(f"{prefix}/{key}" if prefix else str(key), x)
        elif isinstance(value, bool | int | float):
            result[prefix] = int(value) if isinstance(value, bool) else value

    walk("", row)
    names = row.get("objectives", [])
    for i, line in enumerate(row.get("cosines") or []):
        for j in range(i + 1, len(line)):
            walk(f"cosines/{names[i]}/{names[j]}", line[j])
    return result
