"""What every solver shares: its contract, its state, its options, and objectives that a batch lacks."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..checks import check_integer
from ._options import PerObjective, PerObjectiveCheck, plain

STATISTICS = ("max_abs", "mean_abs", "block_norms")
"""What ``row_statistics`` may name: per objective the largest and the mean |entry| of its gradient [C], and the norms
of its parts by parameter tensor [C, number of tensors]."""

LARGEST_WEIGHT = 1e30
"""No weight is larger, so that it fits the parameters' dtype, float32 and bfloat16 included: beyond 3e38 it would be
infinite there. Only a gradient 1e30 times shorter than another, or shorter than 1e-30, ever asks for more."""


class Solver(nn.Module):
    """Balances C objectives: maps losses and Gram matrix to weights lambda, so that d = sum_i lambda_i g_i.

    A subclass implements :meth:`weights`. State with one entry per objective is made in :meth:`setup`, as buffers
    whose every dimension is C, and listed in ``per_objective``; a solver that draws at random calls
    :meth:`seed_generator` in its constructor. This class saves and restores buffers and generator and, when a batch
    lacks some objectives, restricts the buffers to the others. :meth:`weights` is called once per step and may update
    them. See ``docs/writing-a-solver.md``, and :func:`madamoo.testing.check_solver`, which checks all promises.

    Example:
        >>> class InverseLoss(Solver):
        ...     uses_losses = True
        ...     def weights(self, losses, gram=None, preference=None):
        ...         return 1 / losses
        >>> InverseLoss().solve(torch.tensor([4.0, 1.0]))
        tensor([0.2500, 1.0000])
    """

    family: ClassVar[str] = "loss"
    """``"loss"``, ``"gradient"`` or ``"preference"``: what it balances. A gradient-balancing solver weighs the shared
    parameters only, and heads follow their own objective; the others weigh every parameter."""
    needs_gram: bool = False
    """Whether the weights depend on the gradients, through their Gram matrix."""
    row_statistics: ClassVar[tuple[str, ...]] = ()
    """Statistics of the gradients beyond the Gram matrix that :meth:`weights` takes as keyword arguments, among
    ``"max_abs"`` [C], ``"mean_abs"`` [C] and ``"block_norms"`` [C, number of parameter tensors]."""
    uses_losses: bool = False
    """Whether the weights depend on the losses of this very step, not on earlier ones only."""
    per_coordinate: ClassVar[bool] = False
    """Whether the weights differ from coordinate to coordinate: see :meth:`masks`."""
    static: ClassVar[bool] = False
    """Whether the weights never change during training."""
    uses_preference: ClassVar[bool] = False
    """Whether the weights depend on a preference vector given with the step."""
    per_objective: ClassVar[tuple[str, ...]] = ()
    """Names of the buffers that hold one entry per objective (or per pair of objectives)."""

    generator: torch.Generator | None = None
    n_objectives: int | None = None
    objective_names: tuple[str, ...] | None = None

    def __init__(self) -> None:
        super().__init__()
        for name in self.row_statistics:
            if name not in STATISTICS:
                raise ValueError(
                    f"{type(self).__name__}.row_statistics names {name!r}; there are {', '.join(map(repr, STATISTICS))}"
                )
        self._by_objective: dict[str, PerObjective] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _recording_options(cls.__init__)  # type: ignore[method-assign]

    # What a subclass implements ---------------------------------------------------------------------------------------

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        """The weights lambda [C] from the losses [C], the Gram matrix [C, C] and the preference vector [C].

        With ``row_statistics = ("max_abs",)`` the signature is
        ``weights(self, losses, gram=None, preference=None, *, max_abs=None)``.
        """
        raise NotImplementedError

    def setup(self, n_objectives: int) -> None:
        """Create the buffers for ``n_objectives`` objectives; called once, before the first :meth:`weights`."""

    def masks(self, rows: Tensor, keys: Sequence[int]) -> Tensor:
        """A factor for each entry of the gradients ``[R, *shape]`` of one shared parameter, if ``per_coordinate``.

        ``rows[k]`` belongs to the objective ``keys[k]``.
        """
        raise NotImplementedError

    def forget(self) -> None:
        """The step in progress is over, taken or not: drop what was gathered for it outside :meth:`weights`."""

    def observe(self, losses: Tensor) -> None:
        """The losses [C] of the same batch after the step, for solvers that learn from the change; others ignore it."""

    # What a subclass calls --------------------------------------------------------------------------------------------

    def require(self, gram: Tensor | None) -> Tensor:
        """The Gram matrix, or an error that says it is missing.

        Rounding of tiny numbers can leave K_ii < 0, or |K_ij| far above |g_i| |g_j|: such entries are cut to what
        gradients can have. All others stay as they are.
        """
        if gram is None:
            raise ValueError(f"{type(self).__name__} needs the Gram matrix of the gradients: weights(losses, gram)")
        gram = gram.detach()
        norms = gram.diagonal().clamp_min(0).sqrt()
        limit = torch.outer(norms, norms) * (1 + 1e-6)
        return gram.clamp(-limit, limit)

    def seed_generator(self, seed: int) -> None:
        """Draw from a generator of the solver's own, which is saved with it."""
        self.generator = torch.Generator().manual_seed(check_integer("seed", seed))

    def take_per_objective(
        self, name: str, given: Mapping[str, Any] | Sequence[Any] | Tensor | None, check: PerObjectiveCheck
    ) -> None:
        """In the constructor: accept the option ``name``, in the order of the objectives or as a dict by name.

        ``check(name, values, count)`` returns a tensor [C] or raises; ``count`` is None while C is not known.
        """
        self._by_objective[name] = PerObjective(type(self).__name__, name, given, check)

    def values_per_objective(self, name: str, n_objectives: int) -> Tensor | None:
        """In :meth:`setup`: the option ``name`` in the order of the objectives; None if it was not given."""
        return self._by_objective[name].resolve(n_objectives, self.objective_names)

    # What the optimizer calls -----------------------------------------------------------------------------------------

    def name_objectives(self, names: Sequence[str], ordered: bool) -> None:
        """The names of the objectives, before the first :meth:`solve`.

        ``ordered`` says that the user or a checkpoint fixed their order; else it is that of the first dict of losses,
        and an option given by position is refused.
        """
        names = tuple(names)
        if self.n_objectives not in (None, len(names)):
            raise ValueError(
                f"{type(self).__name__} was set up for {self.n_objectives} objectives, got {len(names)}: "
                f"{', '.join(map(repr, names))}; use a new solver"
            )
        if self.objective_names not in (None, names):
            raise ValueError(
                f"{type(self).__name__} was set up for the objectives {self.objective_names}, got {names}; "
                "use a new solver"
            )
        for option in self._by_objective.values():
            option.check_names(names, ordered)
        self.objective_names = names

    def solve(
        self,
        losses: Tensor,
        gram: Tensor | None = None,
        preference: Tensor | None = None,
        present: Sequence[int] | None = None,
        statistics: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """:meth:`weights` for a batch that may lack objectives: those get weight 0 and their state rests.

        Weights that are finite come back with at most :data:`LARGEST_WEIGHT` in size. NaN or infinity among them says
        that the solver has failed: the optimizer then skips the step and keeps the solver's old state.
        """
        count = len(losses)
        self.ensure(count)
        known = self._declared(statistics)
        if present is None or len(present) == count:
            return self._checked(self.weights(losses, gram, preference, **known), count)
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
                **{name: None if x is None else x[index.to(x.device)] for name, x in known.items()},
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

    @property
    def needs_rows(self) -> bool:
        """Whether the gradient of every objective is ever needed by itself."""
        return self.needs_gram or self.per_coordinate or bool(self.row_statistics)

    @property
    def wants_rows(self) -> bool:
        """Whether the coming :meth:`solve` needs the gradients; if not, it gets neither Gram matrix nor statistics.

        A solver that looks at the gradients only every k steps says so here, from its state.
        """
        return self.needs_rows

    @property
    def has_state(self) -> bool:
        """Whether a call of :meth:`solve` may leave something behind."""
        if self.n_objectives is None:
            return True
        return not self.static and (
            self.generator is not None or any(True for _ in chain(self.buffers(), self.parameters()))
        )

    def options(self) -> dict[str, Any]:
        """The options of the constructor, defaults included, as plain Python values.

        Example:
            >>> from madamoo import solvers
            >>> solvers.CAGrad(0.2).options()
            {'c': 0.2}
        """
        return copy.deepcopy(vars(self).get("_options", {}))

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        shown = {
            name: value
            for name, value in self.options().items()
            if value is not None or (name in defaults and defaults[name].default is not None)
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    # State dict: the number and the names of the objectives and the generator travel in it. The buffers are made to fit
    # before they are loaded, so that a checkpoint goes into a solver that has seen no losses yet.

    def get_extra_state(self) -> dict[str, Any]:
        generator = None if self.generator is None else self.generator.get_state()
        names = None if self.objective_names is None else list(self.objective_names)
        return {"n_objectives": self.n_objectives, "objective_names": names, "generator": generator}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.n_objectives = state["n_objectives"]
        if self.generator is not None and state["generator"] is not None:
            self.generator.set_state(state["generator"].cpu())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        extra = state_dict.get(f"{prefix}_extra_state", {})
        count, names = extra.get("n_objectives"), extra.get("objective_names")
        self.objective_names = None if names is None else tuple(names)
        if count is not None and self.n_objectives is None:
            self._make_buffers(count)
        elif count is None and self.n_objectives is not None:  # back to before the first step
            for name in [name for name in self._buffers if f"{prefix}{name}" not in state_dict]:
                self._buffers[name] = None
        super()._load_from_state_dict(state_dict, prefix, *args)

    # ------------------------------------------------------------------------------------------------------------------

    def _make_buffers(self, count: int) -> None:
        with torch.device("cpu"):  # where losses and Gram matrix are, whatever torch's default device
            self.setup(count)

    def _declared(self, statistics: Mapping[str, Tensor] | None) -> dict[str, Tensor | None]:
        """The statistics that the solver has declared, for this call."""
        known = {name: (statistics or {}).get(name) for name in self.row_statistics}
        missing = [name for name, value in known.items() if value is None]
        if missing and self.wants_rows:
            raise ValueError(
                f"{type(self).__name__} needs {', '.join(missing)} of the gradients: "
                f"solve(losses, gram, statistics={{{', '.join(f'{name!r}: ...' for name in missing)}}})"
            )
        return known

    def _checked(self, weights: Tensor, count: int) -> Tensor:
        if weights.shape != (count,):
            raise ValueError(
                f"{type(self).__name__}.weights must return a tensor of shape ({count},), got {tuple(weights.shape)}"
            )
        weights = weights.detach()
        return torch.where(weights.isfinite(), weights.clamp(-LARGEST_WEIGHT, LARGEST_WEIGHT), weights)


def _restrict(tensor: Tensor, index: Tensor) -> Tensor:
    for dim in range(tensor.dim()):
        tensor = tensor.index_select(dim, index.to(tensor.device))
    return tensor


def _recording_options(init: Callable[..., None]) -> Callable[..., None]:
    """The constructor, which first notes its arguments; within those of subclasses it notes nothing."""
    signature = inspect.signature(init)

    @wraps(init)
    def recording(self: Solver, *args: Any, **kwargs: Any) -> None:
        if "_options" not in vars(self):
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            options = dict(list(bound.arguments.items())[1:])
            for name, parameter in signature.parameters.items():
                if parameter.kind is parameter.VAR_KEYWORD:
                    options.update(options.pop(name))
            vars(self)["_options"] = plain(options)
        init(self, *args, **kwargs)

    return recording
