"""The commands that read what was trained: ``table``, ``summary``, ``front``, ``predict``, ``collect``, ``data``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ._options import RUNS, Benchmarks, DataDir, Own, Results, number, plainly


def _there(results: Path) -> None:
    if not results.exists():
        raise ValueError(f"--results {results}: there is no such folder; `madamoo run` and `madamoo sweep` make {RUNS}")


@plainly
def table(
    benchmark: Benchmarks,
    results: Results = RUNS,
    format: Annotated[str, typer.Option(help="text, markdown, latex, csv or json.")] = "text",
    metric: Annotated[
        str | None, typer.Option(help="primary, all, or the name of one; default: primary, in csv and json all.")
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="The equal rate; default: the profile's.", parser=number, metavar="NUMBER")
    ] = None,
    profile: Annotated[str | None, typer.Option(help="cpu or paper; default: the one there is.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Default: the one with most runs.")] = None,
    model: Annotated[str | None, typer.Option(help="Default: the one with most runs.")] = None,
    split: Annotated[str, typer.Option(help="test, or validation, to choose options by.")] = "test",
) -> None:
    """Adam against MAdam in the paper's layout, from finished runs: a line per solver, or per benchmark of a group."""
    from ..analysis import render_table, rows
    from ..problems import get, members
    from ..runs import naming, read_records

    with naming("benchmark", benchmark):
        problems = {name: get(name) for name in members(benchmark)}
    _there(results)
    records = read_records(results)
    options: dict[str, Any] = {"lr": lr, "profile": profile, "schedule": schedule, "model": model, "split": split}
    found = []
    for name, problem in problems.items():
        found += rows(records, problem, name=name if name.endswith(".py") else None, **options)
    if not found:
        raise ValueError(f"no finished runs of {benchmark} in {results}: try `madamoo sweep {benchmark}`")
    typer.echo(render_table(found, format, metric=metric), nl=False)


@plainly
def summary(
    results: Results = RUNS,
    rate: Annotated[str, typer.Option(help="best or equal.")] = "best",
    optimizer: Annotated[str, typer.Option(help="The variant to compare, as madam:normalise=True.")] = "madam",
    format: Annotated[str, typer.Option(help="text, markdown, latex, csv or json.")] = "text",
    plots: Annotated[Path | None, typer.Option(help="Folder for the two figures, as SVG.")] = None,
    benchmark: Own = None,
) -> None:
    """What MAdam gains over Adam and over the control, on every benchmark there are runs of."""
    from ..analysis import draw_summary, render_summary, summarise
    from ..runs import naming, parse, read_records
    from ..training import OPTIMIZERS

    with naming("optimizer", optimizer):
        if parse(optimizer)[0] not in OPTIMIZERS:
            raise ValueError(f"it must be one of {', '.join(OPTIMIZERS)}, with options")
    if rate not in ("best", "equal"):
        raise ValueError(f"--rate must be best or equal, got {rate!r}")
    _there(results)
    cells = summarise(read_records(results), rate, optimizer, benchmark or ())
    typer.echo(render_summary(cells, format), nl=False)
    if plots is not None:
        for path in draw_summary(cells, plots):
            typer.echo(f"Figure: {path}", err=True)


@plainly
def front(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs that learned a front, or packed files.")],
    out: Annotated[Path, typer.Option(help="A page (.html) or a picture (.svg, .png, .pdf).")] = Path("front.html"),
    split: Annotated[str, typer.Option(help="test or validation.")] = "test",
    benchmark: Own = None,
) -> None:
    """Draw the fronts of several runs in one figure, with their hypervolumes."""
    from madamoo.pareto import draw_fronts

    from ..analysis import fronts_of
    from ..runs import read_records

    found, reference, title = fronts_of(read_records(*runs), split, benchmark or ())
    draw_fronts(found, out, reference=reference, title=title)
    for label, one in found.items():
        typer.echo(f"{one.hypervolume(reference):.4f}  {label}")
    typer.echo(f"Figure: {out}", err=True)


@plainly
def predict(
    run: Annotated[Path, typer.Argument(help="Folder of the run, with its checkpoint.", metavar="RUN")],
    input: Annotated[Path, typer.Argument(help="An image or a NIfTI volume, or a folder of them.", metavar="INPUT")],
    out: Annotated[Path, typer.Option(help="Folder for what the network makes of them.", metavar="DIR")],
    preference: Annotated[
        str | None, typer.Option(help="Of a run that learned a front: one number per objective, as 0.3,0.7.")
    ] = None,
) -> None:
    """Apply a trained network to images or volumes; these keep their size, spacing and affine."""
    from ..training import predict

    numbers = None if preference is None else [number(part) for part in preference.split(",")]
    failed = 0
    for source, outcome in predict(run, input, out, preference=numbers):
        if isinstance(outcome, Exception):
            failed += 1
            typer.echo(f"madamoo: {outcome}; skipped", err=True)
        else:
            typer.echo(f"{source} -> {outcome}")
    if failed:
        raise typer.Exit(1)


@plainly
def collect(
    runs: Annotated[Path, typer.Argument(help="Folder of the runs.", exists=True, file_okay=False)],
    into: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("results"),
) -> None:
    """Pack finished runs into one small file per benchmark, to keep or to share; `table` and `sweep` read it too."""
    from ..runs import collect

    typer.echo(f"{collect(runs, into)} runs in {into}")


@plainly
def data(
    data_dir: DataDir = None,
    prepare: Annotated[
        list[str] | None,
        typer.Option(help="Load this benchmark once, so that what it computes or caches is there.", metavar="NAME"),
    ] = None,
) -> None:
    """The benchmarks, whether their data are here, and whose these are; with --prepare only what is prepared."""
    from ..analysis import CITATION
    from ..problems import CACHE_VARIABLE, available, cache_root, data_root, get
    from ..runs import naming

    root = data_root(data_dir)
    for name in prepare or ():
        with naming("prepare", name):
            wanted = get(name)
        wanted.load(root, next(iter(wanted.profiles.values())), 0)
        typer.echo(f"{name}: {wanted.state(root)}")
    if prepare:
        return
    typer.echo(f"Data:  {root or 'no folder (give --data-dir, or set MADAMOO_DATA)'}")
    typer.echo(f"Cache: {cache_root()} (change it with {CACHE_VARIABLE})\n")
    for name in available():
        problem = get(name)
        state = problem.state(root)
        typer.echo(f"{name:34} {len(problem.objectives):2} objectives  {state}")
        if state == "missing" and sys.stdout.isatty():
            typer.echo("\n".join(f"    {line}" for line in problem.layout.splitlines()))
    sources: dict[Any, list[str]] = {}
    for name in available():
        sources.setdefault(get(name).source, []).append(name)
    typer.echo("\nWhose data these are; madamoo downloads none, and their terms are for you to keep:")
    for source, names in sources.items():
        if source is not None:
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            typer.echo(f"  {shown}\n    {source.title}\n    {source.authors}. {source.address}")
            typer.echo(f"    Licence: {source.licence}")
    typer.echo(f"\nThe paper, whose recipes and figures the lab has:\n  {CITATION}")
