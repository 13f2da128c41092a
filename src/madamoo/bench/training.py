"""One training run: from its folder's last checkpoint to its final record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ._benchmark import Benchmark, Data, Profile, Split
from ._config import Config, problem_of
from ._contenders import build_optimizer, build_solver
from ._cost import describe_environment, peak_memory, reset_peak_memory, state_bytes
from ._data import data_root
from ._folder import ENDED, RunFolder
from ._registry import build_model
from ._schedules import build_schedule
from ._weights import WeightLog

CHECKPOINT_EVERY = 10.0  # seconds at most, where a checkpoint is quickly written
EVALUATION_BATCH = 1024

Report = Callable[[dict[str, Any]], None]


class Training:
    """Model, optimizer and data of a run, and how far it has come.

    The initial weights and the order of the data depend on the seed alone, so that all optimizers of a pair start alike
    and see the same batches.
    """

    def __init__(
        self, config: Config, benchmark: Benchmark, profile: Profile, data: Data, device: torch.device
    ) -> None:
        self.config, self.benchmark, self.profile, self.device = config, benchmark, profile, device
        torch.manual_seed(config.seed)
        self.data = Data(*(part.to(device) for part in (data.train, data.validation, data.test)))
        self.model: nn.Module = build_model(config.model, *benchmark.shape(data)).to(device)
        self.batch = min(config.batch, len(data.train))
        self.steps_per_epoch = len(data.train) // self.batch  # what is left over comes in another epoch
        self.optimizer = build_optimizer(
            config.optimizer,
            self.model.parameters(),
            lr=config.lr,
            solver=build_solver(config.solver, benchmark, config.seed),
            seed=config.seed,
            total_steps=config.epochs * self.steps_per_epoch,
        )
        self.schedule = build_schedule(config.schedule, self.steps_per_epoch, config.epochs * self.steps_per_epoch)
        self.generator = torch.Generator().manual_seed(config.seed)  # of the order and the augmentation
        self.order = Tensor()  # of this epoch
        self.step = 0
        self.seconds = 0.0  # of training, without evaluation
        self.loss_sums = torch.zeros(len(benchmark.objectives), dtype=torch.float64)  # over this epoch
        self.weights = WeightLog(len(benchmark.objectives))
        self.epochs: list[dict[str, Any]] = []
        self.best: dict[str, Any] | None = None  # the epoch whose metrics count, and these

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "global_generator": torch.get_rng_state(),  # of dropout
            "order": self.order,
            "step": self.step,
            "seconds": self.seconds,
            "loss_sums": self.loss_sums,
            "weights": self.weights.state_dict(),
            "epochs": self.epochs,
            "best": self.best,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        torch.set_rng_state(state["global_generator"])
        self.weights.load_state_dict(state["weights"])
        for name in ("order", "step", "seconds", "loss_sums", "epochs", "best"):
            setattr(self, name, state[name])

    @property
    def ended(self) -> bool:
        return self.diverged or len(self.epochs) == self.config.epochs

    @property
    def diverged(self) -> bool:
        return bool(self.epochs) and self.epochs[-1]["validation_loss"] is None

    def advance(self) -> bool:
        """One step, and at the end of an epoch its evaluation; tells whether an epoch ended."""
        begin = time.perf_counter()
        position = self.step % self.steps_per_epoch
        if position == 0:
            self.order = torch.randperm(len(self.data.train), generator=self.generator)
            self.loss_sums.zero_()
        index = self.order[position * self.batch : (position + 1) * self.batch].to(self.device)
        batch = self.benchmark.prepare(self.data.train[index], self.generator)
        losses = torch.stack(self.benchmark.losses(self.model(batch.inputs), batch.targets))
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * self.schedule(self.step)
        self.optimizer.zero_grad()
        self.optimizer.backward(losses)
        self.optimizer.step()
        self.weights.add(getattr(self.optimizer, "weights", None))
        self.loss_sums += losses.detach().to("cpu", torch.float64)
        self.step += 1
        self.seconds += time.perf_counter() - begin
        if self.step % self.steps_per_epoch:
            return False
        self._end_epoch()
        return True

    def _end_epoch(self) -> None:
        metrics, losses = self.evaluate(self.data.validation)
        loss = sum(losses) / len(losses)
        finite = math.isfinite(loss) and all(map(math.isfinite, metrics.values()))
        train = [float(x) for x in self.loss_sums / self.steps_per_epoch]
        row = {
            "epoch": len(self.epochs) + 1,
            "step": self.step,
            "train_losses": [x if math.isfinite(x) else None for x in train],
            "validation_losses": losses if finite else None,
            "validation_loss": loss if finite else None,
            "validation": metrics if finite else None,
            **self.weights.take(),
            "seconds": round(self.seconds, 3),
        }
        self.epochs.append(row)
        if finite and self._counts(metrics, len(self.epochs)):
            test, _ = self.evaluate(self.data.test)
            known = all(map(math.isfinite, test.values()))  # if not, the epoch still counts: test data do not choose
            self.best = {
                "epoch": row["epoch"],
                "metrics": test if known else None,
                "validation": metrics,
                "validation_loss": loss,
            }

    def _counts(self, validation: dict[str, float], epoch: int) -> bool:
        """Whether this epoch's metrics are, so far, the run's; validation data alone decide."""
        if self.profile.keep == "last":
            return epoch == self.config.epochs
        primary = self.benchmark.primary
        sign = 1 if primary.higher_is_better else -1
        return self.best is None or sign * (validation[primary.name] - self.best["validation"][primary.name]) > 0

    @torch.no_grad()
    def evaluate(self, split: Split) -> tuple[dict[str, float], list[float]]:
        """The metrics, and the mean of each loss."""
        self.model.eval()
        tally: dict[str, Tensor] = {}
        sums = torch.zeros(len(self.benchmark.objectives), dtype=torch.float64)
        size = max(1, min(EVALUATION_BATCH, 4 * self.batch))
        for start in range(0, len(split), size):
            batch = self.benchmark.prepare(split[start : start + size], None)
            outputs = self.model(batch.inputs)
            sums += torch.stack(self.benchmark.losses(outputs, batch.targets)).double().cpu() * len(batch)
            for name, value in self.benchmark.tally(outputs, batch.targets).items():
                tally[name] = tally[name] + value.cpu() if name in tally else value.cpu()
        self.model.train()
        return self.benchmark.summarise(tally), (sums / len(split)).tolist()


def train(
    config: Config,
    folder: Path,
    *,
    data_dir: Path | None = None,
    threads: int | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    keep_checkpoint: bool = True,
    report: Report | None = None,
) -> dict[str, Any]:
    """Do the run, or what is left of it, and return its record. ``report`` gets each epoch's row."""
    files = RunFolder(folder)
    with files.locked():
        record = files.read(config)
        if record is not None and record["status"] in ENDED:
            return record
        benchmark, profile = problem_of(config)
        data = benchmark.load(data_root(data_dir), profile, config.seed)
        state = files.load(config)
        if state is not None:
            threads = state["threads"]  # on another number the sums are not the same to the last bit
        with _environment(threads or profile.threads):
            threads = torch.get_num_threads()
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            training = Training(config, benchmark, profile, data, device)
            resumed = None
            if state is not None:
                training.load_state_dict(state["training"])
                resumed = training.step
            record = {
                "config": asdict(config),
                "status": "running",
                "metrics": None,
                "validation": None,
                "validation_loss": None,
                "resumed_from": resumed,
                "reductions": list(profile.reductions),
                "objectives": list(benchmark.objectives),
                "metric": repr(getattr(training.optimizer, "metric", None)),  # in full, should a default change one day
                "parameters": sum(p.numel() for p in training.model.parameters()),
                "environment": describe_environment(device),
            }
            files.write(record)
            files.write_epochs(training.epochs)  # those after the checkpoint come again

            def save() -> None:
                files.save(config, {"training": training.state_dict(), "threads": threads})

            reset_peak_memory(device)
            _run(training, files, save, checkpoint_every, report)
            record |= _outcome(training, device)
        save()
        files.write(record)
        if not keep_checkpoint:
            files.drop_checkpoint()
        return record


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
        "steps": training.step,
        "weights_moved": _mean([row["weights_moved"] for row in training.epochs]),
        "refused_steps": getattr(training.optimizer, "skipped", 0),
        "cost": {
            "seconds": last["seconds"],
            "seconds_per_step": training.seconds / training.step,
            "peak_memory_bytes": peak_memory(device),
            "state_bytes": state_bytes(training.optimizer.state_dict()),
            "curve": [[row["seconds"], row["validation_loss"]] for row in training.epochs],
        },
    }


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
