"""Many runs: the grid, what of it is missing, and three engines to do that."""

from __future__ import annotations

import itertools
import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..runs import Busy, Config, RunFolder, canonical, identity, parse, read_records
from ._configure import configure
from ._contenders import balances_alone, is_static
from ._run import train
from ._workers import cores, workers

ENGINES = ("process", "serial", "ray")
Outcome = tuple[Config, dict[str, Any] | Exception]


class Failed(RuntimeError):
    """What went wrong in a run."""


def grid(
    benchmark: str,
    *,
    solvers: Sequence[str],
    optimizers: Sequence[str],
    seeds: Sequence[int],
    rates: Sequence[float | None] = (None,),
    **sizes: Any,
) -> list[Config]:
    """The configurations, pair by pair, so that a sweep that is stopped has whole pairs.

    Left out, for they say nothing new: the control under constant weights, where it is MAdam itself, and optimizers
    that balance by themselves under any solver but LS.
    """
    found = []
    for seed, lr, solver, optimizer in itertools.product(seeds, rates, solvers, optimizers):
        name, _ = parse(optimizer)
        if name == "marginal" and is_static(solver):
            continue
        if balances_alone(optimizer) and canonical(solver) != "ls":
            continue
        found.append(configure(benchmark, solver=solver, optimizer=optimizer, seed=seed, lr=lr, **sizes))
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Plan:
    """What a sweep has to do."""

    missing: list[Config]
    done: int
    seconds: float | None  # expected for what is missing, on one core; None where nothing is known yet


def plan(configs: Sequence[Config], root: Path) -> Plan:
    """What of the grid is not among the records below ``root``."""
    records = read_records(root) if root.exists() else []
    done = {identity(record["config"]) for record in records}
    missing = [config for config in configs if identity(asdict(config)) not in done]
    return Plan(missing, len(configs) - len(missing), _expected(missing, records))


def _expected(missing: Sequence[Config], records: Sequence[dict[str, Any]]) -> float | None:
    """Mean time of the records that are most like each run: same solver and optimizer, else same benchmark."""
    paces: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)  # seconds per epoch
    for record in records:
        if record.get("cost"):
            config = record["config"]
            pace = record["cost"]["seconds"] / config["epochs"]
            paces[config["benchmark"],].append(pace)
            paces[config["benchmark"], config["solver"], parse(config["optimizer"])[0]].append(pace)
    total = 0.0
    for run in missing:
        alike = paces.get((run.benchmark, run.solver, parse(run.optimizer)[0])) or paces.get((run.benchmark,))
        if not alike:
            return None
        total += run.epochs * sum(alike) / len(alike)
    return total


def sweep(
    configs: Sequence[Config],
    root: Path,
    *,
    engine: str = "process",
    count: int | None = None,
    threads: int = 1,
    device: str | None = None,
    data_dir: Path | None = None,
    keep_checkpoints: bool = False,
    diagnose: bool = False,
) -> Iterator[Outcome]:
    """Do the runs, each in its folder below ``root``; yields each one's record, or what went wrong with it."""
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    root = root.absolute()  # a worker may be elsewhere
    data_dir = None if data_dir is None else data_dir.expanduser().absolute()
    work: Work = partial(
        _run_one,
        root=root,
        data_dir=data_dir,
        threads=threads,
        device=device,
        keep_checkpoint=keep_checkpoints,
        diagnose=diagnose,
    )
    if engine == "serial":
        for config in configs:
            yield config, work(config)
    elif engine == "ray":
        yield from _on_ray(work, configs, root, count, threads)
    else:
        yield from _in_processes(work, configs, min(count or max(1, cores() // threads), max(1, len(configs))))


def _run_one(config: Config, *, root: Path, **options: Any) -> dict[str, Any] | Exception:
    """One run; its failure is a result, so that it stops no other."""
    try:
        return train(config, config.folder(root), **options)
    except Busy as error:
        return error
    except Exception as error:  # in words: not every exception can be sent from one process to another
        return Failed(f"{type(error).__name__}: {error}")


Work = Callable[[Config], "dict[str, Any] | Exception"]


def _in_processes(work: Work, configs: Sequence[Config], count: int) -> Iterator[Outcome]:
    """Processes, each a pool of its own, so that it is known what a killed one did: that run is tried once more."""
    left = deque((config, 1) for config in configs)
    with ExitStack() as stack:
        idle = [stack.enter_context(workers(1)) for _ in range(count)]
        under_way: dict[Future[Any], tuple[Executor, Config, int]] = {}
        while left or under_way:
            while left and idle:
                pool, (config, attempt) = idle.pop(), left.popleft()
                under_way[pool.submit(work, config)] = (pool, config, attempt)
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                pool, config, attempt = under_way.pop(future)
                try:
                    outcome = future.result()
                except BrokenProcessPool as error:
                    pool = stack.enter_context(workers(1))
                    outcome = Failed(f"its process was killed twice: {error}")
                    if attempt == 1:
                        left.append((config, 2))
                        outcome = None
                idle.append(pool)
                if outcome is not None:
                    yield config, outcome


def _on_ray(work: Work, configs: Sequence[Config], root: Path, count: int | None, threads: int) -> Iterator[Outcome]:
    """A Ray cluster: the one that ``RAY_ADDRESS`` names, or a local one. Nodes need not share a file system."""
    import ray

    mine = not ray.is_initialized()
    if mine:
        here = None if os.environ.get("RAY_ADDRESS") else count  # a cluster that is there has its own number
        ray.init(num_cpus=here, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        remote: Any = ray.remote(num_cpus=threads, max_retries=2)(lambda config: work(config))
        waiting = {remote.remote(config): config for config in configs}
        while waiting:
            (done, *_), _ = ray.wait(list(waiting))
            config = waiting.pop(done)
            try:
                outcome = ray.get(done)
            except ray.exceptions.RayError as error:
                outcome = error
            folder = RunFolder(config.folder(root))
            if isinstance(outcome, dict) and not folder.record_file.exists():
                folder.write(outcome)
            yield config, outcome
    finally:
        if mine:
            ray.shutdown()


def is_busy(outcome: dict[str, Any] | Exception) -> bool:
    """Whether another process is doing this run."""
    return isinstance(outcome, Busy)
