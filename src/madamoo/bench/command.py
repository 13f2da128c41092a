"""The commands of the lab: ``run``, ``sweep``, ``table``, ``summary``, ``ablation``, ``front``, ``collect``, ...."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

Benchmark = Annotated[str, typer.Argument(help="Name of a benchmark (`madamoo data` lists them), or a .py file.")]
Profile = Annotated[str, typer.Option(help="Size of the runs: cpu, or paper.")]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the data sets; default: the environment variable MADAMOO_DATA.")
]
Epochs = Annotated[int | None, typer.Option(help="Default: the profile's.", min=1)]
Batch = Annotated[int | None, typer.Option(help="Default: the profile's.", min=1)]
Schedule = Annotated[str | None, typer.Option(help="Of the rate: constant, cosine or halve:every=75 (epochs).")]
Model = Annotated[str | None, typer.Option(help="Name with options, as mlp:width=64, or a .py file.")]
Workers = Annotated[int | None, typer.Option(help="Runs at a time; default: one a core.", min=1)]
Engine = Annotated[str, typer.Option(help="process, serial or ray.")]
Threads = Annotated[int, typer.Option(help="Threads a run.", min=1)]
Diagnose = Annotated[bool, typer.Option(help="Measure what the metrics do to the signs; it takes time, no more.")]
Results = Annotated[Path, typer.Option("--results", "--out", help="Folder of the runs and records.", metavar="DIR")]

F = TypeVar("F", bound=Callable[..., Any])


def plainly(command: F) -> F:
    """Tell what went wrong in words: no traceback for a wrong name or missing data."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        from .runs import Busy

        try:
            return command(*args, **kwargs)
        except (ValueError, OSError, Busy) as error:  # missing data, a file in the way, a full disk
            typer.echo(f"madamoo: {error}", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            typer.echo("madamoo: interrupted; the same command goes on from the last checkpoint", err=True)
            raise typer.Exit(130) from None

    return wrapped  # type: ignore[return-value]


@plainly
def run(
    benchmark: Benchmark,
    solver: Annotated[str | None, typer.Option(help="Name with options, as cagrad:c=0.4; default: ls.")] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Learn a whole front: pamal, palora, cosmos, phn, paretomtl, epo or ferero, with options."),
    ] = None,
    optimizer: Annotated[str, typer.Option(help="adam, madam, marginal, mtadam or adatask, with options.")] = "madam",
    seed: int = 0,
    profile: Profile = "cpu",
    lr: Annotated[float | None, typer.Option(help="Default: the profile's.")] = None,
    epochs: Epochs = None,
    batch: Batch = None,
    model: Model = None,
    schedule: Schedule = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; default: a name of its own in runs/.")] = None,
    data_dir: DataDir = None,
    threads: Annotated[int | None, typer.Option(help="Default: the profile's.", min=1)] = None,
    checkpoint_every: Annotated[float, typer.Option(help="Seconds between checkpoints, at most.", min=0.0)] = 10.0,
    diagnose: Diagnose = True,
) -> None:
    """Train once. Killed and started again, it goes on where it was; a finished run is not repeated."""
    from ._progress import Progress, describe
    from .training import configure, problem_of, solver_of, train

    if method is not None and solver is not None:
        raise ValueError("give a solver or a method, not both: a method brings its own solver")
    config = configure(
        benchmark,
        solver=solver_of(method) if method is not None else solver or "ls",
        optimizer=optimizer,
        seed=seed,
        profile=profile,
        lr=lr,
        epochs=epochs,
        batch=batch,
        model=model,
        schedule=schedule,
    )
    folder = out or config.folder(Path("runs"))
    problem, size = problem_of(config)
    for line in describe(config, size, folder):
        typer.echo(line)
    with Progress(problem, config.epochs) as progress:
        record = train(
            config,
            folder,
            data_dir=data_dir,
            threads=threads,
            checkpoint_every=checkpoint_every,
            diagnose=diagnose,
            report=progress.epoch,
        )
    if not progress.rows:
        typer.echo("Already done; nothing was run.")
    typer.echo(_result(problem, record))
    if record["status"] == "diverged":
        raise typer.Exit(1)


def _result(problem: Any, record: dict[str, Any]) -> str:
    if record["status"] == "diverged":
        return "The run diverged: its validation loss is not finite."
    from .training import metrics_of

    shown = metrics_of(problem, record["config"]["solver"])
    metrics = ", ".join(f"{m.name} {record['metrics'][m.name]:.{m.digits}f}" for m in shown)
    return f"Test: {metrics}  ({record['cost']['seconds']:.0f} s of training, {record['steps']} steps)"


@plainly
def sweep(
    benchmark: Benchmark,
    solvers: Annotated[str, typer.Option(help="Comma-separated.")] = "ls,uw,dwa,imtl,cagrad",
    optimizers: Annotated[str, typer.Option(help="Comma-separated.")] = "adam,madam,marginal",
    seeds: Annotated[str, typer.Option(help="Comma-separated.")] = "0,1,2",
    lr: Annotated[str, typer.Option(help="Comma-separated; default: the profile's.")] = "",
    profile: Profile = "cpu",
    epochs: Epochs = None,
    batch: Batch = None,
    model: Model = None,
    schedule: Schedule = None,
    results: Results = Path("results"),
    engine: Engine = "process",
    workers: Workers = None,
    threads: Threads = 1,
    data_dir: DataDir = None,
    keep_checkpoints: Annotated[bool, typer.Option(help="Keep the checkpoints of finished runs.")] = False,
    diagnose: Diagnose = False,
    dry_run: Annotated[bool, typer.Option(help="Print the plan and stop.")] = False,
) -> None:
    """Train a whole grid. Stopped and started again, it does only what is missing."""
    from .training import grid

    configs = grid(
        benchmark,
        solvers=_listed(solvers),
        optimizers=_listed(optimizers),
        seeds=[int(s) for s in _listed(seeds)],
        rates=[float(r) for r in _listed(lr)] or [None],
        profile=profile,
        epochs=epochs,
        batch=batch,
        model=model,
        schedule=schedule,
    )
    _do(configs, results, engine, workers, threads, data_dir, keep_checkpoints, diagnose, dry_run)


def _listed(text: str) -> list[str]:
    """The parts between commas, but for commas in brackets, as in ls:weights=(1,2)."""
    parts = re.split(r",(?![^(\[{]*[)\]}])", text)
    return [part.strip() for part in parts if part.strip()]


def _do(
    configs: list[Any],
    root: Path,
    engine: str,
    workers: int | None,
    threads: int,
    data_dir: Path | None,
    keep_checkpoints: bool = False,
    diagnose: bool = False,
    dry_run: bool = False,
) -> None:
    """Do the missing runs behind a progress bar; ends the command with an error if one failed."""
    from ._progress import Runs
    from .problems import data_root
    from .training import ENGINES, cores, is_busy, plan, problem_of, reductions, sweep

    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    if root.exists() and not root.is_dir():
        raise ValueError(f"{root} is a file, not a folder for runs")
    todo = plan(configs, root)
    count = workers or max(1, cores() // threads)
    expected = "time not known yet" if todo.seconds is None else f"about {todo.seconds / count / 60:.0f} min"
    typer.echo(
        f"{len(configs)} runs, {todo.done} done, {len(todo.missing)} to do, {count} at a time: {expected}", err=True
    )
    if dry_run or not todo.missing:
        return
    problem, size = problem_of(todo.missing[0])
    for line in reductions(todo.missing[0], size):
        typer.echo(f"Reduced: {line}", err=True)
    problem.load(data_root(data_dir), size, todo.missing[0].seed)  # missing data are told now; prepared ones are cached
    failed, busy = [], 0
    with Runs(len(todo.missing)) as progress:
        for config, outcome in sweep(
            todo.missing,
            root,
            engine=engine,
            count=workers,
            threads=threads,
            data_dir=data_dir,
            keep_checkpoints=keep_checkpoints,
            diagnose=diagnose,
        ):
            progress.done(config, outcome)
            if is_busy(outcome):
                busy += 1
            elif isinstance(outcome, Exception):
                failed.append((config, outcome))
    if busy:
        typer.echo(f"{busy} runs were left to another process, which is at work on them", err=True)
    for config, error in failed:
        typer.echo(f"failed: {config.name}: {error}", err=True)
    if failed:
        raise typer.Exit(1)


@plainly
def table(
    benchmark: Benchmark,
    results: Results = Path("results"),
    format: Annotated[str, typer.Option(help="text, markdown, latex, csv or json.")] = "text",
    metric: Annotated[
        str | None, typer.Option(help="primary, all, or the name of one; default: primary, in csv and json all.")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="The equal rate; default: the profile's.")] = None,
    profile: Annotated[str | None, typer.Option(help="cpu or paper; default: the one there is.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Default: the one with most runs.")] = None,
    split: Annotated[str, typer.Option(help="test, or validation, to choose options by.")] = "test",
) -> None:
    """Adam against MAdam in the paper's layout, from finished runs."""
    from ._render import render
    from .analysis import rows
    from .problems import get
    from .runs import read_records

    problem = get(benchmark)
    if not results.exists():
        raise ValueError(f"there is no folder {results}")
    own = benchmark if benchmark.endswith(".py") else None
    found = rows(read_records(results), problem, lr=lr, profile=profile, schedule=schedule, name=own, split=split)
    if not found:
        raise ValueError(f"no finished runs of {benchmark} in {results}: try `madamoo sweep {benchmark}`")
    typer.echo(render(found, format, metric=metric), nl=False)


@plainly
def summary(
    results: Results = Path("results"),
    rate: Annotated[str, typer.Option(help="best or equal.")] = "best",
    optimizer: Annotated[str, typer.Option(help="The variant to compare, as madam:normalise=True.")] = "madam",
    format: Annotated[str, typer.Option(help="text, markdown, latex, csv or json.")] = "text",
    plots: Annotated[Path | None, typer.Option(help="Folder for the two figures, as SVG.")] = None,
) -> None:
    """What MAdam gains over Adam and over the control, on every benchmark there are runs of."""
    from .analysis import render_summary, summarise
    from .runs import read_records

    if rate not in ("best", "equal"):
        raise ValueError(f"rate must be best or equal, got {rate!r}")
    if not results.exists():
        raise ValueError(f"there is no folder {results}")
    cells = summarise(read_records(results), rate, optimizer)
    typer.echo(render_summary(cells, format), nl=False)
    if plots is not None:
        from ._plots import draw

        for path in draw(cells, plots):
            typer.echo(f"Figure: {path}", err=True)


@plainly
def ablation(
    benchmark: Annotated[str, typer.Argument(help="Name of a benchmark.")] = "sarcos-small",
    solver: Annotated[str, typer.Option(help="Name with options.")] = "ls",
    seeds: Annotated[str, typer.Option(help="Comma-separated.")] = "0,1,2",
    lr: Annotated[str, typer.Option(help="Comma-separated; of several, each variant's best on validation data.")] = "",
    profile: Profile = "cpu",
    epochs: Epochs = None,
    schedule: Schedule = None,
    results: Results = Path("results"),
    format: Annotated[str, typer.Option(help="text, markdown, latex, csv or json.")] = "text",
    engine: Engine = "process",
    workers: Workers = None,
    threads: Threads = 1,
    data_dir: DataDir = None,
) -> None:
    """The paper's ablation (ramp-up, pair sampling, off-diagonals) and ours, run where missing, as a table."""
    from ._render import check_format
    from .analysis import VARIANTS, ablation_rows, render_ablation
    from .problems import get
    from .runs import read_records
    from .training import grid

    check_format(format)  # told before the runs, not after
    configs = grid(
        benchmark,
        solvers=[solver],
        optimizers=list(dict.fromkeys(v.optimizer for v in VARIANTS)),
        seeds=[int(s) for s in _listed(seeds)],
        rates=[float(r) for r in _listed(lr)] or [None],
        profile=profile,
        epochs=epochs,
        schedule=schedule,
    )
    _do(configs, results, engine, workers, threads, data_dir)
    found = ablation_rows(read_records(results), get(benchmark), configs)
    typer.echo(render_ablation(found, get(benchmark), format), nl=False)


@plainly
def front(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs that learned a front, or packed files.")],
    out: Annotated[Path, typer.Option(help="A page (.html) or a picture (.svg, .png, .pdf).")] = Path("front.html"),
    split: Annotated[str, typer.Option(help="test or validation.")] = "test",
) -> None:
    """Draw the fronts of several runs in one figure, with their hypervolumes."""
    from madamoo.pareto import draw_fronts

    from .analysis import fronts_of
    from .runs import read_records

    found, reference, title = fronts_of(read_records(*runs), split)
    draw_fronts(found, out, reference=reference, title=title)
    for label, one in found.items():
        typer.echo(f"{one.hypervolume(reference):.4f}  {label}")
    typer.echo(f"Figure: {out}", err=True)


@plainly
def collect(
    runs: Annotated[Path, typer.Argument(help="Folder of the runs.", exists=True, file_okay=False)],
    into: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("results"),
) -> None:
    """Pack finished runs into one small file a benchmark, to keep or to share; `table` and `sweep` read it too."""
    from .runs import collect

    typer.echo(f"{collect(runs, into)} runs in {into}")


@plainly
def data(data_dir: DataDir = None) -> None:
    """The benchmarks, and whether their data are here."""
    from .problems import CACHE_VARIABLE, MissingData, available, cache_root, data_root, get

    root = data_root(data_dir)
    typer.echo(f"Data:  {root or 'no folder (give --data-dir, or set MADAMOO_DATA)'}")
    typer.echo(f"Cache: {cache_root()} (change it with {CACHE_VARIABLE})\n")
    for name in available():
        problem = get(name)
        try:
            problem.locate(root)
            state = "here" if problem.layout else "embedded"
        except MissingData:
            state = "missing"
        typer.echo(f"{name:16} {len(problem.objectives):2} objectives  {state}")
        if state == "missing" and sys.stdout.isatty():
            typer.echo("\n".join(f"    {line}" for line in problem.layout.splitlines()))
