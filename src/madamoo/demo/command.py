"""The command ``madamoo demo``: its options, and nothing that needs more than the command line itself."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the page and the numbers.", metavar="FOLDER", writable=True)
    ] = Path("demo-out"),
    seeds: Annotated[int, typer.Option(help="Runs per optimizer and problem; 1 is the shortest.", min=1)] = 3,
    epochs: Annotated[int, typer.Option(help="Epochs of a run on the images.", min=1)] = 8,
    steps: Annotated[int, typer.Option(help="Steps of a run of the physics-informed network.", min=1)] = 500,
) -> None:
    """One network for every preference, and a PINN: about a minute on two cores, nothing to download."""
    from .report import report  # needs the demo's extra; the other commands do not

    try:
        out.mkdir(parents=True, exist_ok=True)  # before the work: a bad path should not cost a minute
    except OSError as error:
        reason = "it is a file" if out.is_file() else error.strerror
        raise typer.BadParameter(f"cannot use {out} as a folder: {reason}", param_hint="'--out'") from None
    report(out, seeds=seeds, epochs=epochs, steps=steps)
