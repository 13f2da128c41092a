"""The preference-conditioned metric: options, averages of every parameter, and the verbs on them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from ..checks import check_choice, check_flag, check_fraction, check_integer, check_positive
from ..direction import Direction
from ..gradients import Block, Layout
from ._averages import Averages, Averaging, Make, shrink_for
from ._basis import Bases, BasisName, EigenBasis
from ._checkpoint import check_state, load_state, save_state
from ._estimators import ESTIMATORS, Estimator, Marginal, choose
from ._measured import Measured, MeasuredBlock, check_shards, measure_block, norms_of, with_memory
from ._memory import bytes_for
from ._momentum import Momentum
from ._movement import Movement
from ._ramp import RAMPS, RAMPUP, Ramp, largest_entries, metric_of, rampup_steps
from ._rounding import DROPPED
from ._store import Store

EstimatorName: TypeAlias = Literal["auto", "pair", "full", "diagonal", "separable", "collapsed", "marginal"]
DTYPES = (None, torch.float64, torch.float32, *DROPPED)
YOUNG = 10  # averages that start in an eigenbasis, behind a momentum, or in the middle of a run: first so many in a row
PIECE = 1 << 18  # coordinates at a time: what is computed from them on the way stays in the cache


class PreferenceMetric:
    """Divides the direction by the root of the preference-conditioned curvature, C = sum_ij lambda_i lambda_j F_ij.

    F_ij is, per coordinate, the running average of g_i g_j. The direction becomes d / M with
    M = alpha sqrt(C + eps) + (1 - alpha) s, where alpha rises from 0 to 1 over the ramp-up.

    Args:
        estimator: which averages are kept and when they are updated.
            ``"full"`` all pairs, each step; ``"pair"`` the averages of one pair drawn at random each step, as in the
            paper; ``"diagonal"`` without cross terms; ``"separable"`` one buffer for any C, the average v of d^2,
            and for each row of a weight the averages S_ij of g_i . g_j and T of |d|^2 over the row: C is taken for
            (lambda' S lambda / T) v;
            ``"collapsed"`` the average of d^2, which is the same as full, in one buffer, as long as lambda is constant
            (it refuses other solvers) and no batch lacks an objective (it warns);
            ``"marginal"`` the average of d^2 whatever lambda does: the control of every comparison, not a method.
            ``"auto"`` is collapsed for a static solver; else full up to C = 8, separable beyond and in the eigenbasis,
            where it takes S and T of whole tensors and is as good, without a rotation per objective. Under a solver
            that needs no gradient of single objectives, it starts as marginal, and pays for these gradients only once
            the weights are measured to jump from step to step; the averages then start again. An
            :class:`~madamoo.metric.Estimator` of your own works too.
        beta: decay of the averages; None is the parameter group's ``betas[1]``, or 0.999 if it has none; in the
            eigenbasis it is that of the basis, 0.95: averages that outlive the basis are of other coordinates.
        eps: added to C inside the root.
        rampup: number of steps over which alpha rises; 0 is no ramp-up; a float below 1 is that fraction of
            ``total_steps``. None is 300, and 0 in the eigenbasis, where the averages remember fewer steps than that.
        ramp: what s is. ``"largest"``: the largest sqrt(C + eps) of the tensor, so that the scale of the losses does
            not matter, and no entry enters the ramp-up larger than it leaves it; ``"paper"``: 1.
        bias_correction: divide each average by 1 - beta^n, n its number of updates.
        floor: keep C at or above (1 - beta) d^2, which bounds every entry of the result by 1 / sqrt(1 - beta) once the
            ramp-up is over; at d^2 where there is no average yet, and where averages are zero in a step that is not
            measured.
        every: compute the gradients of single objectives for the averages every so many steps only; what is made of
            them decays by beta^every. Averages of d^2 (``"separable"``, ``"collapsed"``, ``"marginal"``) are updated in
            every step, and in the eigenbasis or with a momentum the first ten steps are all measured. An objective that
            is never in a batch of a measured step has no average: choose another number than the period with which
            objectives take turns.
        dtype: in which the averages are kept and d / M is computed; None is that of the parameter, float32 at least.
            ``torch.bfloat16`` and ``torch.float8_e5m2`` (or their names) halve and quarter the averages: these are
            rounded at random, right in expectation, and d / M is computed as with None.
        seed: seed of the generators that draw the pairs and round.
        total_steps: length of the run, for a ``rampup`` that is a fraction; with it, a longer ramp-up is warned of.
        normalise: average g_i g_j / (|g_i| |g_j|) instead, |g_i| the norm over all parameters, and let lambda_i |g_i|
            stand for lambda_i; d stays the same. The size of a gradient, which moves fast and which many solvers
            answer with lambda, is then that of this step, and only its shape an average. An objective whose own
            gradient is not computed in a step keeps the norm that it had when it last was. None is yes where
            ``"auto"`` keeps averages of every objective, and no elsewhere.
        basis: in which the averages are kept. ``"identity"``: that of the parameters. ``"eigen"``: for each matrix the
            eigenvectors of the running averages of D D' and D' D, D its direction; an :class:`EigenBasis` has further
            options. Vectors, and all parameters under weights that differ from coordinate to coordinate (GradDrop),
            keep their own.
        momentum: decay of a momentum before the metric, for an optimizer that has none: m, the average of d, is divided
            by the root of the curvature at the average of lambda over the same steps, the preference that m stands for.
            Before plain SGD, and under constant weights, that is Adam, and SOAP in the eigenbasis
            (:class:`~madamoo.MSOAP` is made of it). There is no ramp-up then unless asked for. None: the optimizer's
            own momentum comes after the metric.

    The paper's own form is :meth:`PreferenceMetric.paper`.

    Example:
        >>> metric = PreferenceMetric("full", rampup=100)
        >>> metric.state_bytes(torch.nn.Linear(100, 10), count=3)  # six averages of 1,010 numbers
        24240
    """

    def __init__(
        self,
        estimator: EstimatorName | Estimator = "auto",
        beta: float | None = None,
        eps: float = 1e-16,
        rampup: int | float | None = None,
        ramp: Ramp = "largest",
        bias_correction: bool = True,
        floor: bool = True,
        every: int = 1,
        dtype: torch.dtype | str | None = None,
        seed: int = 0,
        total_steps: int | None = None,
        normalise: bool | None = None,
        basis: BasisName | EigenBasis = "identity",
        momentum: float | None = None,
    ) -> None:
        if not isinstance(estimator, Estimator) and estimator != "auto" and estimator not in ESTIMATORS:
            known = ", ".join(("auto", *ESTIMATORS))
            raise ValueError(f"estimator must be one of {known}, or an Estimator, got {estimator!r}")
        if basis not in ("identity", "eigen") and not isinstance(basis, EigenBasis):
            raise ValueError(f"basis must be 'identity', 'eigen' or an EigenBasis, got {basis!r}")
        given, dtype = dtype, getattr(torch, dtype, dtype) if isinstance(dtype, str) else dtype
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(map(str, DTYPES))}, got {given!r}")
        self.estimator: str = estimator.name if isinstance(estimator, Estimator) else estimator
        self.basis: EigenBasis | None = EigenBasis() if basis == "eigen" else None if basis == "identity" else basis
        if self.basis is not None:
            beta = self.basis.beta if beta is None else beta
        self._momentum = None if momentum is None else Momentum(check_fraction("momentum", momentum))
        plain = self.basis is None and momentum is None
        if rampup is None:
            rampup = RAMPUP if plain else 0
        self.beta = None if beta is None else check_fraction("beta", beta)
        self.eps = check_positive("eps", eps)
        self.rampup = rampup_steps(rampup, total_steps)
        self.ramp = check_choice("ramp", ramp, RAMPS)
        self.bias_correction = check_flag("bias_correction", bias_correction)
        self.floor = check_flag("floor", floor)
        self.every = check_integer("every", every, minimum=1)
        self.dtype: torch.dtype | None = dtype
        self.seed = check_integer("seed", seed)
        if normalise is None and (estimator != "auto" or momentum is not None):
            normalise = False
        self.normalise = None if normalise is None else check_flag("normalise", normalise)
        if momentum is not None and self.normalise:
            raise ValueError(
                f"momentum={momentum!r} goes with averages of the gradients as they are: leave out normalise=True"
            )

        self.steps = 0
        # Steps until the averages are measured again; below zero, so many more are measured one after the other. In the
        # basis that the first direction makes, all averages of it but a few are zero: they need those that follow. And
        # a momentum of several steps, with no ramp-up, is not to be divided by one sample.
        self.wait = 0 if plain else 1 - YOUNG
        self.generator = torch.Generator().manual_seed(seed)
        self.noise = torch.Generator().manual_seed(seed)  # of rounding at random
        self.constant: dict[int, float] = {}  # lambda_i of the objectives in the collapsed average
        self.norms: dict[int, float] = {}  # |g_i| as last measured, if the averages are normalised
        self.movement = Movement()  # of the weights
        self._used: Estimator | None = None  # once the first step has been taken
        self._given = estimator if isinstance(estimator, Estimator) else None
        self._store: Store | None = None
        self._bases = Bases(self.basis)
        self._warned = False

    @classmethod
    def paper(cls, **options: Any) -> PreferenceMetric:
        """The metric as the paper has it: one pair drawn per step, its eps and ramp-up, no bias correction, no floor.

        Example:
            >>> metric = PreferenceMetric.paper(rampup=1000)
            >>> metric.estimator, metric.ramp, metric.eps
            ('pair', 'paper', 1e-08)
        """
        own = {"estimator": "pair", "eps": 1e-8, "ramp": "paper", "bias_correction": False, "floor": False}
        return cls(**{**own, **options})

    def __repr__(self) -> str:
        options = {**self.options(), "basis": self.basis or "identity", "seed": self.seed}
        shown = (f"{name}={value!r}" for name, value in options.items())
        return f"PreferenceMetric({', '.join(shown)})"

    def options(self) -> dict[str, Any]:
        return {
            "estimator": self.estimator,
            "beta": self.beta,
            "eps": self.eps,
            "rampup": self.rampup,
            "ramp": self.ramp,
            "bias_correction": self.bias_correction,
            "floor": self.floor,
            "every": self.every,
            "dtype": None if self.dtype is None else str(self.dtype).removeprefix("torch."),
            "normalise": self.normalise,
            "basis": "identity" if self.basis is None else self.basis.options(),
            "momentum": self.momentum,
        }

    @property
    def momentum(self) -> float | None:
        """The decay of the momentum before the metric, if there is one."""
        return None if self._momentum is None else self._momentum.beta

    @property
    def alpha(self) -> float:
        """How far the ramp-up has come, 0 to 1."""
        return min(1.0, self.steps / self.rampup) if self.rampup else 1.0

    @property
    def averages(self) -> Iterable[Averages]:
        """The averages of each block of parameters."""
        return () if self._store is None else self._store

    @property
    def used(self) -> str | None:
        """The estimator in use, once the first step has been taken."""
        return None if self._used is None else self._used.name

    def resolve(self, *, static: bool, count: int) -> Estimator:
        """The estimator in use for such a solver and so many objectives."""
        if self._given is None and self.estimator == "auto":
            return choose(static=static, count=count, turned=self.basis is not None)
        estimator = ESTIMATORS[self.estimator]() if self._given is None else self._given
        estimator.check_solver(static=static)
        return estimator

    def normalises(self, estimator: Estimator | None) -> bool:
        """Whether averages of this estimator are of normalised gradients."""
        return self.normalise if self.normalise is not None else estimator is not None and estimator.every_row

    def needs_rows(self, *, static: bool) -> bool:
        return not self.resolve(static=static, count=2).of_direction

    @property
    def rounds(self) -> bool:
        """Whether the averages are kept in fewer bits than they are computed in."""
        return self.dtype in DROPPED

    def compute_dtype(self, param: Tensor) -> torch.dtype:
        if self.dtype is None or self.rounds:
            return torch.promote_types(param.dtype, torch.float32)
        return self.dtype

    def largest_gradient(self, param: Tensor) -> float:
        """One whose square fits into the averages; what is rounded has the range of float32.

        A rotation may put the length of a whole matrix into one entry.
        """
        dtypes = (self.compute_dtype(param), *([torch.float32] if self.rounds else []))
        length = 1 if self.basis is None else max(param.numel(), 1) ** 0.5
        return min(torch.finfo(dtype).max for dtype in dtypes) ** 0.5 / (8 * length)

    def measure(self, count: int, *, static: bool, rows: bool = True) -> Measured:
        estimator, chooses = self.resolve(static=static, count=count), self.estimator == "auto" and not static
        if chooses and not rows and not self.movement.jumps:
            estimator = Marginal()
        restarts = chooses and isinstance(self._used, Marginal) and not isinstance(estimator, Marginal)
        if self._used is not None and self._used.name != estimator.name and not restarts:
            raise ValueError(
                f"the averages were made with estimator {self._used.name!r}, this step asks for {estimator.name!r}"
            )
        # Nor are heads laid together if a row has one exponent, and their losses different sizes.
        together = estimator.heads_together and self.dtype is not torch.float8_e5m2
        every = 1 if estimator.of_direction else self.every  # d is there in every step
        active = self.wait <= 0 or restarts
        if not (active and estimator.draws):
            return Measured(estimator, every, active, together, restarts=restarts)
        generator = torch.Generator()
        generator.set_state(self.generator.get_state())
        drawn = estimator.draw(count, generator)
        return Measured(estimator, every, True, together, drawn, generator.get_state())

    def settle(
        self,
        measurement: Measured,
        weights: Sequence[float],
        present: Sequence[int],
        directions: Sequence[Direction],
        layout: Layout,
    ) -> Measured:
        """The measurement with the averages that the step will keep: allocated, and in the blocks of the layout.

        A collapsed average of other weights starts from zero, and normalised ones need the norms. Raises MemoryError
        if what is to be kept is larger than the memory that is free.
        """
        store = self._store
        if measurement.estimator.needs_static:
            if any(self.constant.get(i, weights[i]) != weights[i] for i in present):
                warnings.warn(
                    "the weights of a static solver were changed: the averages of d^2 start again", stacklevel=7
                )
                store, measurement = None, replace(measurement, active=True, restarts=True)
            self._warn_of_missing(weights, present)
        if store is None or measurement.restarts:
            store = Store(self.make(measurement.estimator))
        store = store.repacked(layout)
        blocks = self._blocks(measurement, store, directions)
        norms = {**self.norms, **norms_of(blocks)} if self.normalises(measurement.estimator) else None
        return replace(measurement, store=store, blocks=blocks, norms=norms)

    def _warn_of_missing(self, weights: Sequence[float], present: Sequence[int]) -> None:
        if len(present) == len(weights) or self._warned:
            return
        self._warned = True
        warnings.warn(
            "a batch lacks objectives, and one average of d^2 for constant weights then mixes batches of different "
            "objectives: PreferenceMetric('full') keeps them apart",
            stacklevel=8,
        )

    def _blocks(
        self, measurement: Measured, store: Store, directions: Sequence[Direction]
    ) -> dict[Block, MeasuredBlock]:
        """What this step does to each block, the memory for it allocated; raises if there is not enough."""
        for x in directions:
            check_shards(x.block, self.dtype)
        step = self.steps + 1
        blocks = [measure_block(x, measurement, store, self._bases, self._momentum, step) for x in directions]
        return with_memory(blocks, measurement.estimator)

    def precondition(self, x: Direction, beta: float, measurement: Measured) -> Tensor:
        block = measurement.blocks[x.block]
        seen, averages, labels = block.seen, block.averages, block.labels
        shrink = shrink_for(seen, measurement.norms)
        curvature = averages.curvature(seen, labels, self._averaging(beta, measurement, shrink))
        floor = None
        if block.m is not None or not averages.needs_no_floor(seen, labels):
            floor = 1.0 - beta if self.floor else 0.0
        alpha = self.alpha
        eps = self.eps if shrink == 1.0 else max(self.eps * shrink * shrink, torch.finfo(seen.d.dtype).tiny)
        divided = seen.d if block.m is None else block.m
        d = divided if shrink == 1.0 else divided * shrink

        def divide(columns: slice | None) -> Tensor:
            part = d if columns is None else d[columns]
            C = None if curvature is None else curvature(columns)
            if floor and not labels:  # between two measurements, d^2 is all that is known where averages are zero
                square = part.square()
                C = square if C is None else torch.where(C == 0.0, square, C)
            M = metric_of(part, C, x.block, floor=floor, eps=eps, alpha=alpha, ramp=self.ramp, unit=shrink)
            if firsts:
                for first, s in zip(firsts, largest_entries([M[first] for first in firsts], x.block), strict=True):
                    M[first] = s
            return torch.div(part, M, out=M)

        firsts = block.turn.first_parts()
        if len(d) <= PIECE or alpha < 1.0 or firsts:  # these ask for the largest root of a tensor
            return block.turn.rotate_back(divide(None))
        out = torch.empty_like(d)
        for start in range(0, len(d), PIECE):
            columns = slice(start, start + PIECE)
            out[columns] = divide(columns)
        return block.turn.rotate_back(out)

    def curvature(self, x: Direction, beta: float, measurement: Measured) -> Tensor | None:
        """C_lambda for one block, before floor, eps and ramp-up, in the averages' basis; None if there is none yet."""
        block = measurement.blocks[x.block]
        curvature = block.averages.curvature(block.seen, block.labels, self._averaging(beta, measurement))
        return None if curvature is None else curvature(None)

    def _averaging(self, beta: float, measurement: Measured, shrink: float = 1.0) -> Averaging:
        return Averaging(beta, measurement.every, measurement.norms, self.bias_correction, shrink)

    def in_basis(self, block: Block, rows: Tensor, measurement: Measured) -> Tensor:
        """Rows [..., entries] of a block in the basis of its averages in this step."""
        return measurement.blocks[block].turn.rotate(rows)

    def commit(
        self,
        measurement: Measured,
        directions: Iterable[tuple[Direction, float]],
        weights: Sequence[float],
        present: Sequence[int],
    ) -> None:
        store = measurement.store
        assert store is not None
        for x, beta in directions:
            block = measurement.blocks[x.block]
            store.put(block.after)
            block.after.update(block.seen, block.labels, self._averaging(beta, measurement), self.noise)
            if block.moved is not None:
                block.after.reorder(block.moved)
            self._bases.keep(block.next)
            if self._momentum is not None and block.moving is not None:
                self._momentum.keep(block.moving)
        self._store, self._used = store, measurement.estimator
        self.movement = self.movement.after(weights, present)
        self.steps += 1
        self.wait = self._next_wait(measurement)
        if measurement.generator_state is not None:
            self.generator.set_state(measurement.generator_state)
        if measurement.estimator.needs_static:
            if measurement.restarts:
                self.constant.clear()
            self.constant.update({i: weights[i] for i in present})
        if measurement.norms is not None:
            self.norms = dict(measurement.norms)

    def _next_wait(self, measurement: Measured) -> int:
        wait = 1 - YOUNG if measurement.restarts else self.wait
        if not measurement.active:
            return wait - 1
        return wait + 1 if wait < 0 else measurement.every - 1

    def state_bytes(
        self,
        shared: nn.Module | Iterable[Tensor],
        count: int,
        heads: nn.Module | Iterable[Tensor] = (),
        *,
        static: bool = False,
    ) -> int:
        """The bytes that the averages will take for ``count`` objectives, without allocating them.

        Args:
            shared: the parameters that every objective reaches, or a module that holds them.
            count: the number of objectives.
            heads: those that one objective reaches.
            static: whether the solver's weights are constant, which decides what ``"auto"`` is.

        Exact once every pair of objectives was measured, which under ``"pair"`` takes a while; before, it is a bound.
        A parameter that some objectives reach, but not all, counts as shared. The optimizer's own state is not in it.
        """
        estimator, total = self.resolve(static=static, count=count), 0
        for part, each in ((shared, count), (heads, 1)):
            for p in part.parameters() if isinstance(part, nn.Module) else part:
                if p.requires_grad:
                    dtype = self.compute_dtype(p)
                    total += bytes_for(self.make(estimator)(Block((p,))), estimator, each, count, dtype)
                    total += self._bases.bytes(p, dtype)
                    total += 0 if self._momentum is None else self._momentum.bytes(p, dtype)
        return total

    def state_dict(self, params: Sequence[Tensor]) -> dict[str, Any]:
        """The state, with the averages numbered as the parameters are in ``params``."""
        return save_state(self, params)

    def check_state_dict(
        self, state: dict[str, Any], params: Sequence[Tensor], count: int | None, *, static: bool
    ) -> None:
        """Raise if ``state`` lacks a piece, does not fit the parameters, or was made with another estimator."""
        check_state(self, state, params, count, static=static)

    def load_state_dict(
        self, state: dict[str, Any], params: Sequence[Tensor], layout: Layout, count: int | None, *, static: bool
    ) -> None:
        """Take on such a state, with the averages in the blocks of ``layout``; after an error, nothing of it."""
        load_state(self, state, params, layout, count, static=static)

    def make(self, estimator: Estimator) -> Make:
        """What makes the averages of a block, before any update; it knows nothing of this metric's state."""
        return partial(estimator.empty, dtype=self.dtype, turned=self.basis is not None)
