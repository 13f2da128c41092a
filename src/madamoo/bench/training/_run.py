"""One training run: from its folder's last checkpoint to its final record."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from madamoo import diagnostics
from madamoo.gradients import Processes

from ..problems import Benchmark, data_root
from ..runs import ENDED, Config, RunFolder
from ._configure import problem_of, reductions
from ._cost import describe_environment, peak_memory, reset_peak_memory
from ._device import choose_device
from ._diagnosis import attach
from ._fronts import FrontTraining, RayTraining, train_rays
from ._loop import Training
from ._methods import is_conditioned, is_of_all_rays, is_of_one_ray, metrics_of
from ._together import Onlooker, check

CHECKPOINT_EVERY = 10.0  # seconds at most, where a checkpoint is quickly written

Report = Callable[[dict[str, Any]], None]


def kind_of(config: Config) -> type[Training]:
    if is_conditioned(config.solver):
        return FrontTraining
    return RayTraining if is_of_one_ray(config.solver) else Training


def train(
    config: Config,
    folder: Path,
    *,
    data_dir: Path | None = None,
    threads: int | None = None,
    device: str | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    keep_checkpoint: bool = True,
    diagnose: bool = False,
    report: Report | None = None,
    processes: Processes | None = None,
) -> dict[str, Any]:
    """Do the run, or what is left of it, and return its record.

    Args:
        folder: the run's own; if nothing comes of the run, for its data are missing, say, none is left behind.
        device: cpu, cuda, cuda:1 or mps; None is a GPU if torch finds one.
        diagnose: leave ``diagnostics.jsonl`` in the folder as well; the run is the same, bit for bit, but for its time.
        report: gets each epoch's row.
        processes: those that do the run together, each with a part of every batch; the first one reads and writes. The
            run is not diagnosed then.
    """
    place = choose_device(device)
    processes = Processes() if processes is None else processes
    check(config, processes)
    diagnose = diagnose and processes.count == 1
    files: Any = Onlooker() if processes.rank else RunFolder(folder)
    with files.locked():
        record = processes.gather(files.read(config))[0]
        benchmark, profile = problem_of(config)
        if record is not None and record["status"] in ENDED:
            absent = _absent(record, benchmark)
            if not absent:
                return record
            files.refuse_record(f"it lacks {', '.join(absent)}")
        if is_of_all_rays(config.solver):
            again = partial(
                train,
                data_dir=data_dir,
                threads=threads,
                device=device,
                checkpoint_every=checkpoint_every,
                keep_checkpoint=keep_checkpoint,
                diagnose=diagnose,
                report=report,
            )
            record = train_rays(config, benchmark, folder, again)
            files.write(record)
            return record
        data = benchmark.load(data_root(data_dir), profile, config.seed)
        state = processes.gather(files.load(config))[0]
        if state is not None and not _is_thread_count(state.get("threads")):
            files.refuse_checkpoint("it has no number of threads")
            state = None
        if state is not None:
            threads = state["threads"]  # on another number the sums are not the same to the last bit
        with _environment(threads or profile.threads):
            threads = torch.get_num_threads()

            def begin() -> tuple[Training, diagnostics.Probe | None]:
                training = kind_of(config)(config, benchmark, profile, data, place)
                training.processes = processes
                if state is not None:
                    training.load_state_dict(state["training"])
                return training, attach(training, folder, state and state.get("probe")) if diagnose else None

            try:
                training, probe = begin()
            except Exception as error:
                if state is None:
                    raise
                # A checkpoint of an earlier version, or one that only looks like a checkpoint: begin again without.
                files.refuse_checkpoint(f"the run cannot go on from it: {type(error).__name__}: {error}")
                state = None
                training, probe = begin()
            resumed = None if state is None else training.step
            record = {
                "config": asdict(config),
                "status": "running",
                "metrics": None,
                "validation": None,
                "validation_loss": None,
                "resumed_from": resumed,
                "reductions": reductions(config, profile),
                "objectives": list(benchmark.objectives),
                "metric": repr(getattr(training.optimizer, "metric", None)),  # in full, should a default change one day
                "parameters": sum(p.numel() for p in training.model.parameters()),
                "environment": {**describe_environment(place), "processes": processes.count},
                "notes": _notes(training),
                "diagnosed": probe and probe.every,  # one step in so many, which takes longer
            }
            files.write(record)
            files.write_epochs(training.epochs)  # those after the checkpoint come again

            def save() -> None:
                # The probe first: it writes the row that it still holds, which a run resumed from here would not see.
                watching = {} if probe is None else {"probe": probe.state_dict()}
                files.save(config, {"training": training.state_dict(), "threads": threads, **watching})

            reset_peak_memory(place)
            _run(training, files, save, checkpoint_every, report)
            record |= _outcome(training, place)
            if record["status"] == "finished":
                files.write_maps(training.maps())
        save()
        files.write(record)
        if not keep_checkpoint:
            files.drop_checkpoint()
        return record


def _absent(record: dict[str, Any], benchmark: Benchmark) -> list[str]:
    """What the record of a finished run lacks: metrics of the benchmark, the cost."""
    if record["status"] == "diverged":
        return []
    wanted = [metric.name for metric in metrics_of(benchmark, record["config"]["solver"])]
    absent = [
        f"{kind}.{name}" for kind in ("metrics", "validation") for name in wanted if record[kind].get(name) is None
    ]
    return [*absent, *(key for key in ("cost", "steps") if record.get(key) is None)]


def _notes(training: Training) -> list[str]:
    """What a user should know of a run before its numbers are believed."""
    rampup = getattr(getattr(training.optimizer, "metric", None), "rampup", 0)
    if rampup <= training.total_steps:
        return []
    return [
        f"the metric's ramp-up of {rampup} steps is longer than the run of {training.total_steps}, which ends before "
        f"the metric acts in full: train longer, or try madam:rampup={max(1, training.total_steps // 5)}"
    ]


def _is_thread_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 4096


def _run(
    training: Training, files: RunFolder, save: Callable[[], None], checkpoint_every: float, report: Report | None
) -> None:
    shortest = min(1.0, checkpoint_every)
    pause, last = shortest, time.perf_counter()
    while not training.ended:
        if training.advance():
            files.write_epochs(training.epochs)
            if report is not None:
                report(training.epochs[-1])
        begin = time.perf_counter()
        if begin - last >= pause:
            save()
            last = time.perf_counter()
            # Two per cent of the time are for writing; a large model may write less often, and for five per cent.
            cost = last - begin
            pause = min(max(shortest, 50 * cost), max(checkpoint_every, 20 * cost))


def _outcome(training: Training, device: torch.device) -> dict[str, Any]:
    best = training.best
    if training.diverged or best is None or best["metrics"] is None:
        best = None
    last = training.epochs[-1]
    return {
        "status": "diverged" if best is None else "finished",
        "metrics": best and best["metrics"],
        "validation": best and best["validation"],
        "validation_loss": best and best["validation_loss"],
        "epoch": best and best["epoch"],
        **({"front": best["front"]} if best and "front" in best else {}),
        "steps": training.step,
        "weights_moved": _mean([row["weights_moved"] for row in training.epochs]),
        "refused_steps": getattr(training.optimizer, "skipped", 0),
        "cost": {
            "clock": training.clock,
            "seconds": last["seconds"],
            "seconds_per_step": training.seconds / training.step,
            "peak_memory_bytes": peak_memory(device),
            "state_bytes": diagnostics.state_bytes(training.optimizer.state_dict()),
            "curve": [[row["seconds"], row["validation_loss"]] for row in training.epochs],
            "training": [[row["step"], row["seconds"], _whole_mean(row["train_losses"])] for row in training.epochs],
        },
    }


def _whole_mean(values: list[float | None]) -> float | None:
    """None if one is."""
    return None if None in values else _mean(values)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


@contextmanager
def _environment(threads: int | None) -> Any:
    """A number of threads and a global generator of the run's own; both are given back."""
    before = torch.get_num_threads()
    with torch.random.fork_rng():
        try:
            torch.set_num_threads(threads or before)
            yield
        finally:
            torch.set_num_threads(before)
