"""The command ``madamoo figures``: its options, and nothing that needs more than the command line itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from madamoo.bench.commands import Own

FIGURES = ("mismatch", "phases", "trajectories", "fronts")
FORMATS = ("svg", "png", "pdf")
NUMBERS, PAGE = "numbers.json", "figures.md"


def figures(
    out: Annotated[
        Path, typer.Option(help="Folder for the figures, the numbers and their tables.", metavar="FOLDER")
    ] = Path("figures"),
    only: Annotated[str, typer.Option(help=f"Comma-separated: {', '.join(FIGURES)}; default: all.")] = "",
    format: Annotated[str, typer.Option(help="svg, png or pdf.")] = "svg",
    fronts: Annotated[
        Path | None, typer.Option(help="Runs that learned fronts: a folder or a packed file.", metavar="RESULTS_FOLDER")
    ] = None,
    benchmark: Own = None,
) -> None:
    """The paper's figures, drawn again, and the numbers that their captions claim: about a minute on one core."""
    wanted = _wanted(only)
    if format not in FORMATS:
        raise typer.BadParameter(f"must be one of {', '.join(FORMATS)}, got {format!r}", param_hint="'--format'")
    if fronts is not None and not fronts.exists():
        raise typer.BadParameter(f"there is no folder {fronts}", param_hint="'--fronts'")
    import matplotlib  # noqa: F401  said before the work if it is absent

    from madamoo.presentation.pictures import save

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if out.is_file() else error.strerror
        raise typer.BadParameter(f"cannot use {out} as a folder: {reason}", param_hint="'--out'") from None

    found: dict[str, Any] = {}
    for name, figure, numbers in _toy_figures(wanted):
        found[name] = numbers
        typer.echo(f"Figure: {save(figure, out / f'{name}.{format}')}", err=True)
    if "fronts" in wanted:
        found.update(_draw_fronts(fronts, benchmark or (), out, format))
    if found:
        _write(out, found, format)


def _wanted(only: str) -> list[str]:
    names = [name.strip() for name in only.split(",") if name.strip()] or list(FIGURES)
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise typer.BadParameter(
            f"there is no figure {', '.join(map(repr, unknown))}; there are {', '.join(FIGURES)}", param_hint="'--only'"
        )
    return names


def _toy_figures(wanted: list[str]) -> Any:
    """Name, figure and numbers of each wanted one that is made of runs on the quadratics."""
    from . import claims, drawings

    if {"mismatch", "phases"} & {*wanted}:
        typer.echo("Six phases ...", err=True)
        phases = claims.Phases.measured()
        if "mismatch" in wanted:
            typer.echo("Signed effects ...", err=True)
            signs = claims.Signs.measured()
            yield "mismatch", drawings.mismatch(phases, signs), claims.mismatch_numbers(phases, signs)
        if "phases" in wanted:
            yield "phases", drawings.phases(phases), claims.phases_numbers(phases)
    if "trajectories" in wanted:
        typer.echo("Fixed preferences ...", err=True)
        paths = claims.trajectories()
        yield "trajectories", drawings.trajectories(paths), claims.rounded(claims.trajectory_numbers(paths))


def _draw_fronts(folder: Path | None, own: Sequence[str], out: Path, format: str) -> dict[str, Any]:
    from .claims import rounded
    from .fronts import TO_RUN, learned

    numbers = {}
    try:
        for one in [] if folder is None else learned(folder, own, partial(typer.echo, err=True)):
            typer.echo(f"Figure: {one.draw(out / f'{one.name}.{format}')}", err=True)
            numbers[one.name] = rounded(one.numbers)
    except ValueError as error:  # a file of the user's own that is no benchmark
        raise typer.BadParameter(str(error), param_hint="'--fronts'") from None
    if numbers:
        return {"fronts": numbers}
    where = "no folder of runs was given (--fronts)" if folder is None else f"no run in {folder} learned one"
    typer.echo(f"No fronts: {where}. To make some:", err=True)
    for line in TO_RUN:
        typer.echo(f"    {line}", err=True)
    return {}


def _write(out: Path, found: dict[str, Any], format: str) -> None:
    """The numbers, those of figures that were made before included, and the page with captions and tables."""
    from madamoo.files import write_text

    from .tables import page

    path = out / NUMBERS
    numbers = _merged(path, found)
    pictures = sorted(p.name for p in out.glob(f"*.{format}"))
    files = {name: [p for p in pictures if p == f"{name}.{format}" or p.startswith(f"{name}-")] for name in FIGURES}
    try:
        text = page(numbers, files)
    except (KeyError, TypeError):  # the older numbers are those of another version
        numbers = found
        text = page(numbers, files)
    write_text(path, json.dumps(numbers, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    write_text(out / PAGE, text)
    typer.echo(page(found, {}))
    typer.echo(f"Numbers: {path}\nPage: {out / PAGE}", err=True)


def _merged(path: Path, found: dict[str, Any]) -> dict[str, Any]:
    try:
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError:
        before = {}
    both = {**before, **found} if isinstance(before, dict) else found
    return {name: both[name] for name in FIGURES if name in both}
