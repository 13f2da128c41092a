"""DeepXDE's models, trained on their losses one by one instead of on the sum.

Two lines of a script change (pytorch backend)::

    from madamoo.integrations.deepxde import compile_model

    compile_model(model, MAdam(net.parameters(), lr=1e-3, solver="cagrad"))  # was model.compile("adam", lr=1e-3)

``model.train``, callbacks, resampling, ``predict``, and a later ``model.compile("L-BFGS")`` stay as they are.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import Tensor

from ..optimizer import MultiObjective
from ..solvers import NTK

__all__ = ["compile_model", "loss_names"]


def compile_model(model: Any, optimizer: MultiObjective, **options: Any) -> None:
    """``model.compile`` for an optimizer that balances the losses.

    The losses have names (:func:`loss_names`), in DeepXDE's order: equations, then conditions. ``loss_weights`` scale
    them before the solver sees them. An L1 regularizer of the network is no objective: its gradient is added.

    Args:
        model: a ``deepxde.Model``.
        optimizer: :class:`~madamoo.MAdam` or :class:`~madamoo.MultiObjective` over the network's parameters and, in
            inverse problems, the unknown variables: ``MAdam([*net.parameters(), C])``.
        options: of ``model.compile``: ``loss``, ``metrics``, ``decay``, ``loss_weights``,
            ``external_trainable_variables``, ``verbose``. The learning rate is the optimizer's.
    """
    from deepxde import config
    from deepxde.backend import backend_name

    if backend_name != "pytorch":
        raise RuntimeError(f"DeepXDE's backend must be pytorch, got {backend_name}: set DDE_BACKEND=pytorch")
    if not isinstance(optimizer, MultiObjective):
        raise TypeError(f"optimizer must be a MAdam or a MultiObjective, got {type(optimizer).__name__}")
    if isinstance(optimizer.solver, NTK):
        raise ValueError(
            f"{type(optimizer.solver).__name__} needs the residuals at each point, which DeepXDE does not give: take "
            "solvers.LRA, or declare the problem with madamoo.pinn"
        )
    if "lr" in options:
        raise ValueError(f"lr is the optimizer's: MAdam(net.parameters(), lr={options['lr']})")
    if config.mixed:
        raise ValueError("mixed precision (dde.config.set_default_float('mixed')) is not supported: take 'float32'")
    regularizer = model.net.regularizer
    if regularizer is not None and regularizer[0] == "l2":
        raise ValueError(f"an l2 regularizer is the optimizer's: weight_decay={regularizer[1]} there, none in the net")
    _check_parameters(model, optimizer, options.get("external_trainable_variables"))
    model.compile(optimizer, **options)

    def train_step(inputs: Any, targets: Any, auxiliary: Any) -> None:
        losses = model.outputs_losses_train(inputs, targets, auxiliary)[1]
        extra = None
        if regularizer is not None:
            losses, extra = losses[:-1], losses[-1]
        optimizer.zero_grad()
        optimizer.backward(dict(zip(loss_names(model, len(losses)), losses.unbind(), strict=True)), extra=extra)
        optimizer.step()
        if model.lr_scheduler is not None:
            model.lr_scheduler.step()

    model.train_step = train_step


def loss_names(model: Any, count: int) -> list[str]:
    """Names of a model's ``count`` losses: ``pde``, or ``pde_1``, ``pde_2``, then each condition by its class.

    Example: Burgers' equation with its conditions has ``["pde", "DirichletBC", "IC"]``.
    """
    conditions = [type(condition).__name__ for condition in getattr(model.data, "bcs", [])]
    if count < len(conditions) or not hasattr(model.data, "bcs"):  # data of another kind: operators, functions
        return [f"loss_{i + 1}" for i in range(count)] if count > 1 else ["loss"]
    return _numbered(["pde"] * (count - len(conditions))) + _numbered(conditions)


def _numbered(names: list[str]) -> list[str]:
    """Names that occur more than once get numbers: IC, IC is IC_1, IC_2."""
    total, seen = Counter(names), Counter[str]()
    result = []
    for name in names:
        seen[name] += 1
        result.append(name if total[name] == 1 else f"{name}_{seen[name]}")
    return result


def _check_parameters(model: Any, optimizer: MultiObjective, variables: Any) -> None:
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    wanted: list[tuple[str, Tensor]] = list(model.net.named_parameters())
    variables = [] if variables is None else variables if isinstance(variables, list) else [variables]
    wanted += [(f"external_trainable_variables[{i}]", variable) for i, variable in enumerate(variables)]
    missing = [name for name, tensor in wanted if tensor.requires_grad and id(tensor) not in held]
    if missing:
        raise ValueError(
            f"the optimizer does not hold {', '.join(missing)}: build it with MAdam([*net.parameters(), variable, ...])"
        )
