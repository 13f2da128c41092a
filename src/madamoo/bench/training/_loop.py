"""Model, optimizer and data of one run, from step to step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from madamoo.gradients import Processes
from madamoo.solvers import Solver

from ..problems import Benchmark, Evaluation, Profile, build_model
from ..runs import Config
from ._contenders import build_optimizer, build_solver, hidden_matrices
from ._cost import clock
from ._schedules import build_schedule
from ._together import even_buffers
from ._weights import WeightLog


class Training:
    """Model, optimizer and data of a run, and how far it has come. How a batch is made and judged is the benchmark's.

    The initial weights and the order of the data depend on the seed alone, so that all optimizers of a pair start alike
    and see the same batches.
    """

    def __init__(self, config: Config, benchmark: Benchmark, profile: Profile, data: Any, device: torch.device) -> None:
        self.config, self.benchmark, self.profile, self.device = config, benchmark, profile, device
        self.processes = Processes()  # those that do the run together
        torch.manual_seed(config.seed)
        self.data = benchmark.move(data, device)
        self.model = self.build_model(data).to(device)
        self.batches = benchmark.batches(self.data, config.batch)
        self.optimizer = build_optimizer(
            config.optimizer,
            self.parameter_groups(),
            hidden=hidden_matrices(self.model),
            lr=config.lr,
            solver=self.build_solver(),
            seed=config.seed,
            total_steps=self.total_steps,
        )
        self.rates = [group["lr"] for group in self.optimizer.param_groups]  # before the schedule
        self.schedule = build_schedule(config.schedule, self.batches.steps, self.total_steps)
        self.generator = torch.Generator().manual_seed(config.seed)  # of the batches: their order, their augmentation
        self.step = 0
        self.clock, self.now = clock(device, torch.get_num_threads())
        self.seconds = 0.0  # of training, without evaluation
        self.loss_sums = torch.zeros(len(benchmark.objectives), dtype=torch.float64)  # over this epoch
        self.weights = WeightLog(len(benchmark.objectives))
        self.epochs: list[dict[str, Any]] = []
        self.best: dict[str, Any] | None = None  # the epoch whose metrics count, and these

    # What kinds of training differ in.
    def build_model(self, data: Any) -> nn.Module:
        return build_model(self.config.model, *self.benchmark.shape(data))

    def build_solver(self) -> Solver:
        return build_solver(self.config.solver, self.benchmark, self.config.seed)

    def parameter_groups(self) -> Any:
        return self.model.parameters()

    def losses(self, batch: Any) -> tuple[list[Tensor], Tensor | None]:
        """The losses of a batch, and the preference for the optimizer, if any."""
        return self.benchmark.losses(self.model, batch), None

    def result(self, validation: dict[str, float]) -> dict[str, Any]:
        """What counts in the end, given the validation metrics: these, and the test metrics."""
        return {"metrics": self.evaluate("test").metrics, "validation": validation}

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "global_generator": torch.get_rng_state(),  # of dropout
            "batches": self.batches.state_dict(),
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
        self.batches.load_state_dict(state["batches"])
        self.weights.load_state_dict(state["weights"])
        _check_progress(state, self.config.epochs, self.batches.steps)
        for name in ("step", "seconds", "loss_sums", "epochs", "best"):
            setattr(self, name, state[name])

    @property
    def total_steps(self) -> int:
        return self.config.epochs * self.batches.steps

    @property
    def ended(self) -> bool:
        return self.diverged or len(self.epochs) == self.config.epochs

    @property
    def diverged(self) -> bool:
        return bool(self.epochs) and self.epochs[-1]["validation_loss"] is None

    def advance(self) -> bool:
        """One step, and at the end of an epoch its evaluation; tells whether an epoch ended."""
        begin = self.now()
        position = self.step % self.batches.steps
        if position == 0:
            self.loss_sums.zero_()
        batch, given = self._share(self.batches.draw(position, self.generator))
        self.benchmark.before_step(self.model, batch, self.optimizer)
        losses, preference = self.losses(batch)
        self.set_rates()
        self.optimizer.zero_grad()
        given |= {} if preference is None else {"preference": preference}
        self.optimizer.backward(losses, **given)
        self.optimizer.step()
        self.weights.add(getattr(self.optimizer, "weights", None))
        self.loss_sums += self._mean_over_processes(losses)
        self.step += 1
        if self.step == self.total_steps:
            self.benchmark.finish(self.model, batch)
        self.seconds += self.now() - begin
        if self.step % self.batches.steps:
            return False
        self._end_epoch()
        return True

    def _share(self, batch: Any) -> tuple[Any, dict[str, Any]]:
        """This process' part of a batch, and what the optimizer has to know of it."""
        if self.processes.count == 1:
            return batch, {}
        part, samples = self.benchmark.share(batch, self.processes.rank, self.processes.count)
        return part, {"counts": [samples] * len(self.benchmark.objectives)}

    def _mean_over_processes(self, losses: list[Tensor]) -> Tensor:
        if self.processes.count > 1:
            return torch.tensor([*self.optimizer.losses_by_name.values()], dtype=torch.float64)
        return torch.stack([loss.detach() for loss in losses]).to("cpu", torch.float64)

    def set_rates(self) -> None:
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * self.schedule(self.step)

    def _end_epoch(self) -> None:
        metrics, losses = self.evaluate("validation")
        loss = sum(losses) / len(losses)
        finite = math.isfinite(loss) and all(map(math.isfinite, metrics.values()))
        train = [float(x) for x in self.loss_sums / self.batches.steps]
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
            result = self.result(metrics)
            if not all(map(math.isfinite, result["metrics"].values())):
                result["metrics"] = None  # the epoch still counts: test data do not choose
            self.best = {"epoch": row["epoch"], "validation_loss": loss, **result}

    def _counts(self, validation: dict[str, float], epoch: int) -> bool:
        """Whether this epoch's metrics are, so far, the run's; validation data alone decide."""
        if self.profile.keep == "last":
            return epoch == self.config.epochs
        primary = self.benchmark.primary
        sign = 1 if primary.higher_is_better else -1
        return self.best is None or sign * (validation[primary.name] - self.best["validation"][primary.name]) > 0

    def evaluate(self, split: str) -> Evaluation:
        """Metrics and losses on the "validation" or "test" data."""
        even_buffers(self.model, self.processes)
        self.model.eval()
        try:
            return self.benchmark.evaluate(self.model, self.data, split, self.config.batch)
        finally:
            self.model.train()

    def maps(self) -> list[dict[str, Any]]:
        """What the benchmark shows of the trained model."""
        self.model.eval()
        return self.benchmark.maps(self.model, self.data, self.config.batch)


def _check_progress(state: dict[str, Any], epochs: int, steps: int) -> None:
    """Raise ValueError unless the counts of a checkpoint fit each other."""
    step, rows = state["step"], state["epochs"]
    if not isinstance(step, int) or not isinstance(rows, list) or not 0 <= len(rows) <= epochs:
        raise ValueError(f"its progress is step {step!r} and {type(rows).__name__} of epochs")
    if step // steps != len(rows):
        raise ValueError(f"it has {len(rows)} epochs at step {step}, of {steps} steps per epoch")
    if any(not isinstance(row, dict) or "validation_loss" not in row or "seconds" not in row for row in rows):
        raise ValueError("its epochs are not rows of epochs")
