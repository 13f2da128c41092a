"""Hugging Face's Trainer with several objectives: say what they are in ``compute_objectives``, the rest is as usual.

Example: fine-tune a language model and stay near what it was, with LoRA::

    class Finetuning(MultiObjectiveTrainer):
        def compute_objectives(self, model, inputs, num_items_in_batch=None):
            outputs = model(**inputs, num_items_in_batch=num_items_in_batch)
            with torch.no_grad(), model.disable_adapter():
                before = model(**inputs).logits
            return {"task": outputs.loss, "near": divergence(outputs.logits, before, num_items_in_batch)}, outputs

    Finetuning(get_peft_model(model, LoraConfig()), args, train_dataset=data, solver="cagrad").train()
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer

from ..metric import Metric, PreferenceMetric
from ..optimizer import MultiObjective
from ..solvers import Solver
from ._losses import LossesT, detach, divide, total

try:
    from transformers import Trainer
except ImportError as error:
    raise ImportError(
        "madamoo.integrations.transformers needs Hugging Face's libraries: pip install 'madamoo[transformers]'"
    ) from error
from .accelerate import backward, check_backend, prepared

__all__ = ["MultiObjectiveTrainer"]


class MultiObjectiveTrainer(Trainer):
    """``Trainer`` whose subclasses say in :meth:`compute_objectives` what the objectives are.

    The optimizer is the Trainer's own (``args.optim``, ``optimizers``), with solver and metric in front of it. Rate,
    decay, schedule, accumulation, precision, checkpoints and evaluation are the Trainer's. With a metric,
    ``args.max_grad_norm`` clips the direction before the metric: behind it every entry is of order 1. Logs hold
    ``objective/<name>`` and ``weight/<name>`` of the last step; ``eval_loss`` is the sum of the objectives.

    Set ``remove_unused_columns=False`` in the arguments where an objective needs columns that the model does not take.
    DeepSpeed, FSDP and Megatron-LM are refused.

    Args:
        args, kwargs: those of ``Trainer``.
        solver: weighs the objectives; :class:`~madamoo.solvers.LS` if None, a name with options works too.
        metric: :class:`~madamoo.PreferenceMetric` with its defaults; None is no metric, the baseline.
        objective_options: options of :class:`~madamoo.MultiObjective`: objectives, shared, rows, ...
    """

    args: Any
    optimizer: Any

    def __init__(
        self,
        *args: Any,
        solver: Solver | str | None = None,
        metric: Metric | Literal["default"] | None = "default",
        objective_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        check_backend(self.accelerator)
        if isinstance(self.optimizer, MultiObjective):
            raise TypeError(
                "optimizers must hold a torch optimizer, around which the Trainer puts solver and metric; got "
                f"{type(self.optimizer).__name__}. Give its solver and metric to the Trainer instead"
            )
        self.solver = solver
        self.metric = PreferenceMetric() if isinstance(metric, str) else metric
        self.objective_options = dict(objective_options or {})
        if self.metric is not None:
            self.objective_options.setdefault("max_norm", self.args.max_grad_norm or None)
            self.args = copy.copy(self.args)
            self.args.max_grad_norm = 0.0

    def compute_objectives(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> tuple[LossesT, Any]:
        """The losses of a micro-batch, as a dict by name (or a sequence or 1-D tensor), and the model's outputs.

        ``num_items_in_batch`` is the number of labels in all micro-batches of the step, per process. Where it is given,
        losses are sums over labels divided by it, as in the library's models, and accumulation is exact; a loss that is
        a mean over the micro-batch has to be divided by ``self.current_gradient_accumulation_steps``. Where it is None,
        losses are means, and the Trainer divides them; with ``loss_is_scaled_for_ga = False`` in the class, always.
        """
        raise NotImplementedError(f"{type(self).__name__} must define compute_objectives(model, inputs, ...)")

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Optimizer:
        if not isinstance(getattr(self.optimizer, "optimizer", None), Optimizer):  # neither ours nor prepared yet
            inner = super().create_optimizer(*args, **kwargs)
            solver, metric = copy.deepcopy((self.solver, self.metric))  # each trial of a search has its own
            self.optimizer = MultiObjective(inner, solver, metric, **self.objective_options)
        return self.optimizer

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        model.train()
        self.optimizer.train()
        inputs = self._prepare_inputs(inputs)
        with self.compute_loss_context_manager():
            losses, _ = self._objectives(model, inputs, num_items_in_batch)
        scaled = getattr(self, "loss_is_scaled_for_ga", None)
        if not (num_items_in_batch is not None if scaled is None else scaled):
            losses = divide(losses, self.current_gradient_accumulation_steps)
        backward(self.accelerator, self.optimizer, losses)
        return total(detach(losses))

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The sum of the objectives, for evaluation."""
        losses, outputs = self._objectives(model, inputs, num_items_in_batch)
        return (total(losses), outputs) if return_outputs else total(losses)

    def _objectives(self, model: nn.Module, inputs: dict[str, Any], count: Any) -> tuple[LossesT, Any]:
        """With the number of labels per process: gradients are averaged over processes, which divides by theirs."""
        if count is not None and self.args.average_tokens_across_devices and self.accelerator.num_processes > 1:
            count = count / self.accelerator.num_processes
        return self.compute_objectives(model, inputs, count)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        if "loss" in logs:
            optimizer: Any = prepared(self.optimizer)
            for kind, values in (("objective", optimizer.losses_by_name), ("weight", optimizer.weights_by_name)):
                logs.update({f"{kind}/{name}": value for name, value in values.items()})
        super().log(logs, *args, **kwargs)
