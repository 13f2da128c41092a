"""The command ``madamoo selftest``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch


def selftest(
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1 or mps; a GPU if torch finds one.", metavar="DEVICE")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the report there too.", metavar="FILE", dir_okay=False)
    ] = None,
    speed: Annotated[bool, typer.Option(help="Measure what a step costs as well.")] = True,
) -> None:
    """Check on this machine that madamoo computes what it should: about a minute; exit code 1 if something fails."""
    from ..files import write_text
    from . import CHECKS, Report, describe, environment, measure_speed, run_checks

    chosen = _device(device)
    outcomes = []
    for outcome in run_checks(CHECKS, chosen):
        outcomes.append(outcome)
        reason = f": {outcome.message}" if outcome.message else ""
        typer.echo(f"{outcome.state:<7}  {outcome.name}{reason}")
    times = {}
    if speed:
        typer.echo("measuring the speed of a step ...")
        times = measure_speed(chosen)
    report = Report(environment(chosen), outcomes, times)
    typer.echo(f"\nTo tell us about this machine, send the text from here on.\n\n{describe(report)}")
    if json_file is not None:
        try:
            write_text(json_file, json.dumps(report.as_dict(), indent=2) + "\n")
        except OSError as error:
            typer.echo(f"madamoo: cannot write {json_file}: {error.strerror or error}", err=True)
            raise typer.Exit(1) from None
    if report.failed:
        raise typer.Exit(1)


def _device(name: str | None) -> torch.device:
    """The device called ``name``, once a tensor could be made there."""
    import torch

    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.ones(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise typer.BadParameter(f"torch cannot use {name!r} here: {reason}", param_hint="'--device'") from None
    return device
