"""Model, optimizer and data of one run, from step to step."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor, nn

from madamoo.solvers import Solver

from ._benchmark import Benchmark, Data, Profile, Split
from ._config import Config
from ._contenders import build_optimizer, build_solver
from ._registry import build_model
from ._schedules import build_schedule
from ._weights import WeightLog

EVALUATION_BATCH = 1024


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
        self.model = self.build_model(data).to(device)
        self.batch = min(config.batch, len(data.train))
        self.steps_per_epoch = len(data.train) // self.batch  # what is left over comes in another epoch
        self.optimizer = build_optimizer(
            config.optimizer,
            self.parameter_groups(),
            lr=config.lr,
            solver=self.build_solver(),
            seed=config.seed,
            total_steps=self.total_steps,
        )
        self.rates = [group["lr"] for group in self.optimizer.param_groups]  # before the schedule
        self.schedule = build_schedule(config.schedule, self.steps_per_epoch, self.total_steps)
        self.generator = torch.Generator().manual_seed(config.seed)  # of the order and the augmentation
        self.order = Tensor()  # of this epoch
        self.step = 0
        self.seconds = 0.0  # of training, without evaluation
        self.loss_sums = torch.zeros(len(benchmark.objectives), dtype=torch.float64)  # over this epoch
        self.weights = WeightLog(len(benchmark.objectives))
        self.epochs: list[dict[str, Any]] = []
        self.best: dict[str, Any] | None = None  # the epoch whose metrics count, and these

    # What kinds of training differ in.
    def build_model(self, data: Data) -> nn.Module:
        return build_model(self.config.model, *self.benchmark.shape(data))

    def build_solver(self) -> Solver:
        return build_solver(self.config.solver, self.benchmark, self.config.seed)

    def parameter_groups(self) -> Any:
        return self.model.parameters()

    def losses(self, batch: Split) -> tuple[list[Tensor], Tensor | None]:
        """The losses of a batch, and the preference for the optimizer, if any."""
        return self.benchmark.losses(self.model(batch.inputs), batch.targets), None

    def result(self, validation: dict[str, float]) -> dict[str, Any]:
        """What counts in the end, given the validation metrics: these, and the test metrics."""
        return {"metrics": self.evaluate(self.data.test)[0], "validation": validation}

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
    def total_steps(self) -> int:
        return self.config.epochs * self.steps_per_epoch

    @property
    def ended(self) -> bool:
        return self.diverged or len(self.epochs) == self.config.epochs

    @property
    def diverged(self) -> bool:
        return bool(self.epochs) and self.epochs[-1]["validation_loss"] is None

    def advance(self) -> bool:
        """One step, and at the end of an epoch its evaluation; tells whether an epoch ended."""
        begin = time.perf_counter()
        losses, preference = self.losses(self.next_batch())
        self.set_rates()
        self.optimizer.zero_grad()
        given = {} if preference is None else {"preference": preference}
        self.optimizer.backward(losses, **given)
        self.optimizer.step()
        self.weights.add(getattr(self.optimizer, "weights", None))
        self.loss_sums += torch.stack([loss.detach() for loss in losses]).to("cpu", torch.float64)
        self.step += 1
        self.seconds += time.perf_counter() - begin
        if self.step % self.steps_per_epoch:
            return False
        self._end_epoch()
        return True

    def next_batch(self) -> Split:
        """The batch of this step, in the epoch's own order."""
        position = self.step % self.steps_per_epoch
        if position == 0:
            self.order = torch.randperm(len(self.data.train), generator=self.generator)
            self.loss_sums.zero_()
        index = self.order[position * self.batch : (position + 1) * self.batch].to(self.device)
        return self.benchmark.prepare(self.data.train[index], self.generator)

    def set_rates(self) -> None:
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * self.schedule(self.step)

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
