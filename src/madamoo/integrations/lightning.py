"""Lightning: ``training_step`` returns several losses, and the rest is as usual.

    class Net(LightningModule):
        def training_step(self, batch, batch_idx):
            ...
            return {"depth": depth_loss, "normals": normals_loss}  # was: return depth_loss + normals_loss

        def configure_optimizers(self):
            return MAdam(self.parameters(), lr=1e-3, solver="cagrad")

    Trainer(callbacks=[SeveralLosses()]).fit(Net(), loader)

Schedulers, accumulation, mixed precision, clipping and checkpoints stay as they are. Under manual optimisation, call
:func:`backward` in place of ``self.manual_backward(loss)``.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from torch import Tensor

from ..optimizer import MultiObjective
from ..relatives import PerObjective
from ._losses import LossesT, detach, divide, total

# Lightning is published under two names, with classes of their own: take those that the user has.
try:
    if "lightning.pytorch" in sys.modules:
        from lightning.pytorch import Callback
    else:
        from pytorch_lightning import Callback
except ImportError as error:
    raise ImportError("madamoo.integrations.lightning needs Lightning: pip install 'madamoo[lightning]'") from error

__all__ = ["SeveralLosses", "backward"]


def backward(module: Any, losses: LossesT, **options: Any) -> None:
    """``opt.backward(losses)`` for the optimizer of a module, with the scaler of the Trainer's precision plugin.

    Args:
        module: a ``LightningModule`` whose ``configure_optimizers`` returns one madamoo optimizer.
        losses: a 1-D tensor, a sequence or a dict of scalars; divided by you where you accumulate.
        options: those of :meth:`~madamoo.MultiObjective.backward`: preference, retain_graph, features, extra.

    Example: manual optimisation, with a preference drawn for each step::

        def training_step(self, batch, batch_idx):
            opt = self.optimizers()
            opt.zero_grad()
            backward(self, self.losses(batch), preference=torch.rand(2))
            opt.step()
    """
    scaler = getattr(module.trainer.precision_plugin, "scaler", None)
    _optimizer(module).backward(losses, scaler=scaler, **options)


class SeveralLosses(Callback):
    """Lets ``training_step`` return what ``opt.backward`` takes: a 1-D tensor, a sequence or a dict of losses.

    It is for automatic optimisation. The losses are divided by ``accumulate_grad_batches``, as Lightning divides one.
    Their sum is the ``loss`` that progress bars show; hooks find all of them in ``outputs["objectives"]``. An objective
    that a batch has no labels for is left out of the dict, or None; a step that returns None is skipped.

    ``Trainer(gradient_clip_val=...)`` clips what the metric has made of order 1: to clip the direction itself, build
    the optimizer with ``max_norm=...``.
    """

    def __init__(self) -> None:
        self.losses: LossesT | None = None  # of the batch between its training_step and its backward
        self.replaced: dict[str, Any] = {}  # what the module had of its own before

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if not pl_module.automatic_optimization:
            raise ValueError(
                "SeveralLosses is for automatic optimisation: under manual optimisation leave it out, and call "
                "madamoo.integrations.lightning.backward(self, losses)"
            )
        kinds = {kind.__name__ for kind in type(trainer.strategy).__mro__}
        if unsupported := kinds & {"DeepSpeedStrategy", "FSDPStrategy", "ModelParallelStrategy"}:
            raise ValueError(
                f"{unsupported.pop()} is not supported: it shards parameters, or runs the backward pass itself, and "
                "several losses need passes of their own. Take strategy='auto'"
            )
        _optimizer(pl_module)
        step = pl_module.training_step

        @functools.wraps(step)
        def training_step(*args: Any, **kwargs: Any) -> Any:
            self.losses = step(*args, **kwargs)
            if self.losses is None:
                return None
            losses = detach(self.losses)
            return {"loss": total(losses), "objectives": losses}

        def backward_of_all(loss: Tensor, *args: Any, **kwargs: Any) -> None:
            losses, self.losses = self.losses, None
            assert losses is not None
            backward(pl_module, divide(losses, trainer.accumulate_grad_batches))

        # On the object, as Lightning does for a compiled module: the class and its other methods stay as they are.
        for name, method in (("training_step", training_step), ("backward", backward_of_all)):
            self.replaced[name] = vars(pl_module).get(name)
            setattr(pl_module, name, method)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        while self.replaced:
            name, method = self.replaced.popitem()
            delattr(pl_module, name)
            if method is not None:
                setattr(pl_module, name, method)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.teardown(trainer, pl_module, "fit")


def _optimizer(module: Any) -> MultiObjective | PerObjective:
    optimizer = module.optimizers(use_pl_optimizer=False)
    if not isinstance(optimizer, MultiObjective | PerObjective):
        found = f"{len(optimizer)} optimizers" if isinstance(optimizer, list) else type(optimizer).__name__
        raise TypeError(f"configure_optimizers must return one MAdam or MultiObjective, got {found}")
    return optimizer
