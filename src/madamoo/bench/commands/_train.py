"""The commands that train: ``run``, ``sweep`` and ``ablation``."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ._options import (
    RUNS,
    Batch,
    Benchmark,
    Benchmarks,
    DataDir,
    Device,
    Diagnose,
    Engine,
    Epochs,
    Images,
    Masks,
    Model,
    Perceptual,
    Profile,
    Results,
    Schedule,
    Threads,
    Volumes,
    Workers,
    count,
    number,
    parts,
    plainly,
    seconds,
    whole,
)

N = TypeVar("N", int, float)


@plainly
def run(
    benchmark: Benchmark,
    solver: Annotated[str | None, typer.Option(help="Name with options, as cagrad:c=0.4; default: ls.")] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Learn a whole front: pamal, palora, cosmos, phn, paretomtl, epo or ferero, with options."),
    ] = None,
    optimizer: Annotated[
        str,
        typer.Option(help="adam, sgd, soap, muon, madam, madam-paper, msoap, marginal, mtadam, adatask; with options."),
    ] = "madam",
    seed: Annotated[int, typer.Option(help="Of the weights and the batches.", parser=whole, metavar="NUMBER")] = 0,
    profile: Profile = "cpu",
    lr: Annotated[float | None, typer.Option(help="Default: the profile's.", parser=number, metavar="NUMBER")] = None,
    epochs: Epochs = None,
    batch: Batch = None,
    model: Model = None,
    schedule: Schedule = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; default: a name of its own in runs/.")] = None,
    data_dir: DataDir = None,
    threads: Annotated[int | None, typer.Option(help="Default: the profile's.", parser=count, metavar="COUNT")] = None,
    device: Device = None,
    checkpoint_every: Annotated[
        float, typer.Option(help="Seconds between checkpoints, at most.", parser=seconds, metavar="SECONDS")
    ] = 10.0,
    diagnose: Diagnose = True,
    images: Images = None,
    masks: Masks = None,
    volumes: Volumes = None,
    perceptual: Perceptual = None,
) -> None:
    """Train once. Killed and started again, it goes on where it was; a finished run is not repeated.

    Under torchrun, several processes do the run together, each with a part of every batch; the record is that of one.
    """
    from ..problems import with_folders
    from ..runs import naming
    from ..training import choose_device, configure, problem_of, solver_of, together, train
    from ._progress import Progress, describe

    if method is not None and solver is not None:
        raise ValueError("give --solver or --method, not both: a method brings its own solver")
    with naming("method", method):
        chosen = solver_of(method) if method is not None else solver or "ls"
    choose_device(device)  # what is wrong is said before anything is read
    with naming("benchmark", benchmark):
        folders = {"images": images, "masks": masks, "volumes": volumes, "perceptual": perceptual}
        benchmark = with_folders(benchmark, folders)
    config = configure(
        benchmark,
        solver=chosen,
        optimizer=optimizer,
        seed=seed,
        profile=profile,
        lr=lr,
        epochs=epochs,
        batch=batch,
        model=model,
        schedule=schedule,
    )
    with together() as processes:
        folder = out or config.folder(RUNS)
        problem, size = problem_of(config)
        for line in describe(config, size, folder):
            typer.echo(line)
        with Progress(problem, config.epochs) as progress:
            record = train(
                config,
                folder,
                data_dir=data_dir,
                threads=threads,
                device=device,
                checkpoint_every=checkpoint_every,
                diagnose=diagnose,
                report=None if processes.rank else progress.epoch,
                processes=processes,
            )
        if processes.rank:
            return
        if not progress.rows:
            typer.echo("Already done; nothing was run.")
        for note in record.get("notes") or ():
            typer.echo(f"Note: {note}", err=True)
        typer.echo(_result(problem, record))
        if record["status"] == "diverged":
            raise typer.Exit(1)


def _result(problem: Any, record: dict[str, Any]) -> str:
    if record["status"] == "diverged":
        return "The run diverged: its validation loss is not finite."
    from ..training import metrics_of

    shown = metrics_of(problem, record["config"]["solver"])
    metrics = ", ".join(f"{m.name} {record['metrics'][m.name]:.{m.digits}f}" for m in shown)
    return f"Test: {metrics}  ({record['cost']['seconds']:.0f} s of training, {record['steps']} steps)"


@plainly
def sweep(
    benchmark: Benchmarks,
    solvers: Annotated[str, typer.Option(help="Comma-separated.")] = "ls,uw,dwa,imtl,cagrad",
    optimizers: Annotated[
        str, typer.Option(help="Comma-separated; adam:beta2=0.9|0.99 is both, and one contender for --tune-seeds.")
    ] = "adam,madam,marginal",
    seeds: Annotated[str, typer.Option(help="Comma-separated.")] = "0,1,2",
    lr: Annotated[str, typer.Option(help="Comma-separated; default: the profile's.")] = "",
    tune_seeds: Annotated[
        str, typer.Option(help="Try all rates on these seeds, then run --seeds at each one's best on validation data.")
    ] = "",
    widen: Annotated[
        int,
        typer.Option(metavar="TIMES", help="So often, double or halve a best rate that is at an end of those tried."),
    ] = 0,
    profile: Profile = "cpu",
    epochs: Epochs = None,
    batch: Batch = None,
    model: Model = None,
    schedule: Schedule = None,
    results: Results = RUNS,
    engine: Engine = "process",
    workers: Workers = None,
    threads: Threads = 1,
    device: Device = None,
    data_dir: DataDir = None,
    keep_checkpoints: Annotated[bool, typer.Option(help="Keep the checkpoints of finished runs.")] = False,
    diagnose: Diagnose = False,
    dry_run: Annotated[bool, typer.Option(help="Print the plan and stop.")] = False,
) -> None:
    """Train a whole grid. Stopped and started again, it does only what is missing."""
    from ..analysis import finalists, wider
    from ..problems import members
    from ..runs import BadValue, alternatives, canonical, read_records
    from ..training import grid

    if widen < 0 or (widen and not tune_seeds):
        raise BadValue("widen", widen, "it is a number of times, and goes with --tune-seeds")

    contenders = {one: name for name in parts(optimizers) for one in alternatives(name)}
    final = _numbers("seeds", seeds, int)
    tuning = _numbers("tune_seeds", tune_seeds, int)
    configs = [
        config
        for name in members(benchmark)
        for config in grid(
            name,
            solvers=parts(solvers),
            optimizers=list(contenders),
            seeds=tuning or final,
            rates=_numbers("lr", lr, float) or [None],
            profile=profile,
            epochs=epochs,
            batch=batch,
            model=model,
            schedule=schedule,
        )
    ]
    do = partial(
        _do,
        root=results,
        engine=engine,
        workers=workers,
        threads=threads,
        device=device,
        data_dir=data_dir,
        keep_checkpoints=keep_checkpoints,
        diagnose=diagnose,
        dry_run=dry_run,
    )
    named = {canonical(one): name for one, name in contenders.items()}
    missing = do(configs)
    for _ in range(widen):
        if missing or not (further := wider(read_records(results), configs, named)):
            break
        configs += further
        missing = do(configs)
    if tuning and missing:
        typer.echo(f"The rates are chosen when the {missing} runs that are missing are there", err=True)
    elif tuning:
        do(finalists(read_records(results), configs, final, named))


def _numbers(argument: str, text: str, kind: type[N]) -> list[N]:
    from ..runs import BadValue

    try:
        return [kind(part) for part in parts(text)]
    except ValueError:
        words = "whole numbers" if kind is int else "numbers"
        raise BadValue(argument, text, f"it must be {words}, separated by commas") from None


def _do(
    configs: list[Any],
    root: Path,
    engine: str,
    workers: int | None,
    threads: int,
    device: str | None,
    data_dir: Path | None,
    keep_checkpoints: bool = False,
    diagnose: bool = False,
    dry_run: bool = False,
) -> int:
    """Do the missing runs behind a progress bar, and return how many are still missing; an error if one failed."""
    from ..problems import build_model, data_root
    from ..training import ENGINES, choose_device, cores, is_busy, plan, problem_of, reductions, sweep
    from ._progress import Runs

    if engine not in ENGINES:
        raise ValueError(f"--engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    choose_device(device)
    if root.exists() and not root.is_dir():
        raise ValueError(f"{root} is a file, not a folder for runs")
    todo = plan(configs, root)
    count = workers or max(1, cores() // threads)
    expected = "time not known yet" if todo.seconds is None else f"about {todo.seconds / count / 60:.0f} min"
    typer.echo(
        f"{len(configs)} runs, {todo.done} done, {len(todo.missing)} to do, {count} at a time: {expected}", err=True
    )
    if dry_run or not todo.missing:
        return len(todo.missing)
    problem, size = problem_of(todo.missing[0])
    for line in reductions(todo.missing[0], size):
        typer.echo(f"Reduced: {line}", err=True)
    # What is missing or cannot be built is said now, once; prepared data are cached.
    found = problem.load(data_root(data_dir), size, todo.missing[0].seed)
    build_model(todo.missing[0].model, *problem.shape(found))
    failed, busy = [], 0
    notes: Counter[str] = Counter()
    with Runs(len(todo.missing)) as progress:
        for config, outcome in sweep(
            todo.missing,
            root,
            engine=engine,
            count=workers,
            threads=threads,
            device=device,
            data_dir=data_dir,
            keep_checkpoints=keep_checkpoints,
            diagnose=diagnose,
        ):
            progress.done(config, outcome)
            if is_busy(outcome):
                busy += 1
            elif isinstance(outcome, Exception):
                failed.append((config, outcome))
            else:
                notes.update(outcome.get("notes") or ())
    for note, times in notes.items():
        typer.echo(f"Note, of {times} runs: {note}", err=True)
    if busy:
        typer.echo(f"{busy} runs were left to another process, which is at work on them", err=True)
    for config, error in failed:
        typer.echo(f"failed: {config.name}: {error}", err=True)
    if failed:
        raise typer.Exit(1)
    return busy


@plainly
def ablation(
    benchmark: Annotated[str, typer.Argument(help="Name of a benchmark.")] = "sarcos-small",
    solver: Annotated[str, typer.Option(help="Name with options.")] = "ls",
    seeds: Annotated[str, typer.Option(help="Comma-separated.")] = "0,1,2",
    lr: Annotated[str, typer.Option(help="Comma-separated; of several, each variant's best on validation data.")] = "",
    profile: Profile = "cpu",
    epochs: Epochs = None,
    schedule: Schedule = None,
    results: Results = RUNS,
    format: Annotated[str, typer.Option(help="text, markdown, latex, csv or json.")] = "text",
    engine: Engine = "process",
    workers: Workers = None,
    threads: Threads = 1,
    device: Device = None,
    data_dir: DataDir = None,
) -> None:
    """The paper's ablation (ramp-up, pair sampling, off-diagonals) and ours, run where missing, as a table."""
    from madamoo.presentation.tables import check_format

    from ..analysis import VARIANTS, ablation_rows, render_ablation
    from ..problems import get
    from ..runs import read_records
    from ..training import grid

    check_format(format)  # said before the runs, not after
    configs = grid(
        benchmark,
        solvers=[solver],
        optimizers=list(dict.fromkeys(v.optimizer for v in VARIANTS)),
        seeds=_numbers("seeds", seeds, int),
        rates=_numbers("lr", lr, float) or [None],
        profile=profile,
        epochs=epochs,
        schedule=schedule,
    )
    _do(configs, results, engine, workers, threads, device, data_dir)
    found = ablation_rows(read_records(results), get(benchmark), configs)
    typer.echo(render_ablation(found, get(benchmark), format), nl=False)
