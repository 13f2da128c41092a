"""What every solver shares: its contract, its state, and objectives that a batch lacks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class Solver(nn.Module):
    """Reconciles C objectives: a map from losses and Gram matrix to weights lambda, so that d = sum_i lambda_i g_i.

    A subclass implements :meth:`weights`. One that keeps something for each objective makes it in :meth:`setup`, as
    buffers whose every dimension is C, and lists their names in ``per_objective``; one that draws at random calls
    :meth:`seed_generator` in its constructor. Buffers and generator are saved, restored and, when a batch lacks some
    objectives, restricted to the others by this class. :meth:`weights` is called once a step and may update them.
    """

    family: ClassVar[str] = "loss"
    """``"loss"``, ``"gradient"`` or ``"preference"``: what it balances. A gradient-balancing solver weighs the shared
    parameters only, and heads follow their own objective; the others weigh every parameter."""
    needs_gram: bool = False
    """Whether the weights depend on the gradients, through their Gram matrix."""
    uses_losses: ClassVar[bool] = False
    """Whether the weights depend on the losses of this very step, not on earlier ones only."""
    per_coordinate: ClassVar[bool] = False
    """Whether the weights differ from coordinate to coordinate: see :meth:`masks`."""
    static: ClassVar[bool] = False
    """Whether the weights never change during training."""
    uses_preference: ClassVar[bool] = False
    """Whether the weights depend on a preference vector given with the step."""
    per_objective: ClassVar[tuple[str, ...]] = ()
    """Names of the buffers that hold one entry for each objective (or each pair of them)."""

    generator: torch.Generator | None = None
    n_objectives: int | None = None

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        """The weights lambda [C] from the losses [C], the Gram matrix [C, C] and the preference vector [C]."""
        raise NotImplementedError

    def require(self, gram: Tensor | None) -> Tensor:
        """The Gram matrix, or an error that says it is missing."""
        if gram is None:
            raise ValueError(f"{type(self).__name__} needs the Gram matrix of the gradients: weights(losses, gram)")
        return gram.detach()

    def setup(self, n_objectives: int) -> None:
        """Create the buffers for ``n_objectives`` objectives; called once, before the first :meth:`weights`."""

    def masks(self, rows: Tensor, keys: Sequence[int]) -> Tensor:
        """A factor for each entry of the gradients [R, *shape] of one shared parameter, if ``per_coordinate``.

        ``rows[k]`` belongs to the objective ``keys[k]``.
        """
        raise NotImplementedError

    def forget(self) -> None:
        """The step in the making is over, taken or not: let go of what was gathered for it outside :meth:`weights`."""

    def observe(self, losses: Tensor) -> None:
        """The losses [C] of the same batch after the step, for solvers that learn from the change; others ignore it."""

    def seed_generator(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def solve(
        self,
        losses: Tensor,
        gram: Tensor | None = None,
        preference: Tensor | None = None,
        present: Sequence[int] | None = None,
    ) -> Tensor:
        """:meth:`weights` for a batch that may lack objectives: those get weight 0 and their state rests."""
        count = len(losses)
        self.ensure(count)
        if present is None or len(present) == count:
            return self._checked(self.weights(losses, gram, preference), count)
        index = torch.as_tensor(list(present), device=losses.device)
        whole = {name: getattr(self, name) for name in self.per_objective}
        for name, buffer in whole.items():
            setattr(self, name, _restrict(buffer, index))
        self.n_objectives = len(index)
        try:
            part = self.weights(
                losses[index],
                None if gram is None else _restrict(gram, index),
                None if preference is None else preference[index],
            )
            for name, buffer in whole.items():
                grid = torch.meshgrid(*[index.to(buffer.device)] * buffer.dim(), indexing="ij")
                whole[name] = buffer.index_put(grid, getattr(self, name))
        finally:
            self.n_objectives = count
            for name, buffer in whole.items():
                setattr(self, name, buffer)
        result = losses.new_zeros(count)
        result[index] = self._checked(part, len(index)).to(result)
        return result

    def ensure(self, count: int) -> None:
        """Set up for ``count`` objectives, or check that this is what it was set up for."""
        if self.n_objectives is None:
            self._make_buffers(count)
            self.n_objectives = count
        elif self.n_objectives != count:
            raise ValueError(
                f"{type(self).__name__} was set up for {self.n_objectives} objectives, got {count}; use a new solver"
            )

    def _make_buffers(self, count: int) -> None:
        with torch.device("cpu"):  # where losses and Gram matrix are, whatever torch's default device
            self.setup(count)

    def _checked(self, weights: Tensor, count: int) -> Tensor:
        if weights.shape != (count,):
            raise ValueError(
                f"{type(self).__name__}.weights must return a tensor of shape ({count},), got {tuple(weights.shape)}"
            )
        return weights.detach()

    @property
    def needs_rows(self) -> bool:
        """Whether every objective has to be differentiated by itself."""
        return self.needs_gram or self.per_coordinate

    @property
    def has_state(self) -> bool:
        """Whether a call of :meth:`solve` may leave something behind."""
        if self.n_objectives is None:
            return True
        return not self.static and (
            self.generator is not None or any(True for _ in chain(self.buffers(), self.parameters()))
        )

    # The number of objectives and the generator travel in the state dict; the buffers are made to fit before they
    # are loaded, so that a checkpoint goes into a solver that has seen no losses yet.
    def get_extra_state(self) -> dict[str, Any]:
        generator = None if self.generator is None else self.generator.get_state()
        return {"n_objectives": self.n_objectives, "generator": generator}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.n_objectives = state["n_objectives"]
        if self.generator is not None and state["generator"] is not None:
            self.generator.set_state(state["generator"].cpu())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        count = state_dict.get(f"{prefix}_extra_state", {}).get("n_objectives")
        if count is not None and self.n_objectives is None:
            self._make_buffers(count)
        elif count is None and self.n_objectives is not None:  # back to before the first step
            for name in [name for name in self._buffers if f"{prefix}{name}" not in state_dict]:
                del self._buffers[name]
        super()._load_from_state_dict(state_dict, prefix, *args)


def _restrict(tensor: Tensor, index: Tensor) -> Tensor:
    for dim in range(tensor.dim()):
        tensor = tensor.index_select(dim, index.to(tensor.device))
    return tensor
