"""What several commands have in common: their options, and what they say when something is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ..runs import BadValue, Busy


def number(text: Any) -> float:
    """A number as typed; typer's own message does not say what was typed."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None


def seconds(text: Any) -> float:
    found = number(text)
    if not 0 <= found < float("inf"):
        raise typer.BadParameter(f"{text!r} is no number of seconds")
    return found


def whole(text: Any) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


def count(text: Any) -> int:
    found = whole(text)
    if found < 1:
        raise typer.BadParameter(f"{text!r} is not at least 1")
    return found


def parts(text: str) -> list[str]:
    """The parts between commas, but for commas in brackets, as in ls:weights=(1,2)."""
    found = re.split(r",(?![^(\[{]*[)\]}])", text)
    return [part.strip() for part in found if part.strip()]


Benchmark = Annotated[str, typer.Argument(help="Name of a benchmark (`madamoo data` lists them), or a .py file.")]
Benchmarks = Annotated[
    str,
    typer.Argument(help="Name of a benchmark, several separated by commas, a group such as pinn, or a .py file."),
]
Profile = Annotated[str, typer.Option(help="Size of the runs: cpu, or paper.")]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the data sets; default: the environment variable MADAMOO_DATA.")
]
Epochs = Annotated[int | None, typer.Option(help="Default: the profile's.", parser=count, metavar="COUNT")]
Batch = Annotated[int | None, typer.Option(help="Default: the profile's.", parser=count, metavar="COUNT")]
Schedule = Annotated[str | None, typer.Option(help="Of the rate: constant, cosine or halve:every=75 (epochs).")]
Model = Annotated[str | None, typer.Option(help="Name with options, as mlp:width=64, or a .py file.")]
Workers = Annotated[
    int | None, typer.Option(help="Runs at a time; default: one per core.", parser=count, metavar="COUNT")
]
Engine = Annotated[str, typer.Option(help="process, serial or ray.")]
Threads = Annotated[int, typer.Option(help="Threads per run.", parser=count, metavar="COUNT")]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, cuda:1 or mps; default: a GPU if torch finds one.", metavar="NAME")
]
Diagnose = Annotated[bool, typer.Option(help="Measure what the metrics do to the signs; it takes time, no more.")]
Results = Annotated[
    Path, typer.Option("--results", "--out", help="Folder of the runs and records, or a packed file.", metavar="DIR")
]
Images = Annotated[
    Path | None, typer.Option(help="Folder of your own images, for `run segmentation`.", file_okay=False, metavar="DIR")
]
Masks = Annotated[
    Path | None,
    typer.Option(help="Folder of their masks: a.png or a_anything.png for a.jpg.", file_okay=False, metavar="DIR"),
]
Volumes = Annotated[
    Path | None,
    typer.Option(help="Folder of your own NIfTI volumes, for `run superresolution`.", file_okay=False, metavar="DIR"),
]
Perceptual = Annotated[
    Path | None,
    typer.Option(help="Folder of the weights of LPIPS and DISTS, to score these too.", file_okay=False, metavar="DIR"),
]
RUNS = Path("runs")  # where `run` and `sweep` leave what `table` and `summary` read

Own = Annotated[
    list[str] | None,
    typer.Option("--benchmark", help="A benchmark of your own, a .py file: records alone never have it executed."),
]

F = TypeVar("F", bound=Callable[..., Any])


def plainly(command: F) -> F:
    """Say what went wrong in words: no traceback for a wrong value or missing data."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except BadValue as error:
            typer.echo(f"madamoo: {_typed(error, kwargs)}: {error.reason}", err=True)
            raise typer.Exit(2) from None
        except (ValueError, OSError, Busy) as error:  # missing data, a file in the way, a full disk
            typer.echo(f"madamoo: {error}", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            typer.echo("madamoo: interrupted; the same command goes on from the last checkpoint", err=True)
            raise typer.Exit(130) from None

    return wrapped  # type: ignore[return-value]


def _typed(error: BadValue, given: Mapping[str, Any]) -> str:
    """The flag and the value as the user typed them: ``--solver`` of `run` is ``--solvers`` of `sweep`."""
    argument = error.argument
    if argument == "benchmark":
        return f"BENCHMARK {error.value}"
    if argument == "solver" and given.get("method") is not None:
        return f"--method {given['method']}"
    return f"--{argument if argument in given else argument + 's'} {error.value}".replace("_", "-", argument.count("_"))
