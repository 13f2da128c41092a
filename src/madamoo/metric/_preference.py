"""The preference-conditioned metric: options, averages of every parameter, and the two verbs on them."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..direction import Direction
from ._averages import Averages, Make, Pair, all_pairs, metric_of
from ._memory import Room, bytes_of_new, check_room
from ._pairwise import Pairwise
from ._rounding import DROPPED
from ._separable import Separable
from ._store import Store

ESTIMATORS = ("auto", "pair", "full", "diagonal", "separable", "separable_pair", "collapsed", "marginal")
EVERY_ROW = ("full", "diagonal", "separable")  # estimators that need the gradient of each objective by itself
TWO_ROWS = ("pair", "separable_pair")  # those that draw a pair of objectives each step
ONE_BUFFER = ("separable", "separable_pair")
DTYPES = (None, torch.float64, torch.float32, *DROPPED)
RAMPS = ("largest", "matched", "paper")
RAMPUP = 300
MOST_IN_FULL = 8  # objectives for which "auto" keeps all pairs up to date
PIECE = 1 << 18  # coordinates at a time: what is computed from them on the way stays in the cache


@dataclass(frozen=True)
class Measurement:
    """What the metric does in one step; nothing is kept before the step is taken."""

    estimator: str
    active: bool  # whether the averages are updated in this step
    pair: Pair | None = None
    generator_state: Tensor | None = None
    restart: bool = False
    norms: Mapping[int, float] | None = None  # |g_i|, if the averages are of normalised gradients

    @property
    def takes_every_row(self) -> bool:
        return self.active and self.estimator in EVERY_ROW

    def needed(self, present: Sequence[int]) -> tuple[int, ...]:
        """The objectives whose own gradient the averages need."""
        if self.takes_every_row:
            return tuple(present)
        return () if self.pair is None else tuple(i for i in dict.fromkeys(self.pair) if i in present)

    def pairs(self, keys: Sequence[int]) -> list[Pair]:
        """The averages to update in a parameter that the objectives ``keys`` reach."""
        if self.estimator == "diagonal":
            return [(i, i) for i in keys]
        chosen = keys if self.pair is None else [i for i in keys if i in self.pair]
        return all_pairs(chosen)


class PreferenceMetric:
    """Divides the direction by the root of the preference-conditioned curvature, C = sum_ij lambda_i lambda_j F_ij.

    F_ij is, per coordinate, the running average of g_i g_j. The direction becomes d / M with
    M = alpha sqrt(C + eps) + (1 - alpha) s, where alpha rises from 0 to 1 over the ramp-up.

    Args:
        estimator: which averages are kept and when they are updated.
            ``"full"`` all pairs, each step; ``"pair"`` the averages of one pair drawn at random each step, as in the
            paper; ``"diagonal"`` without cross terms; ``"separable"`` one buffer for any C, the average v of d^2,
            and for each row of a weight the averages S_ij of g_i . g_j and T of |d|^2 over the row: C is taken for
            (lambda' S lambda / T) v; ``"separable_pair"`` the same with one pair drawn at random each step, so that a
            step needs two gradients and not C; ``"collapsed"`` the average of d^2, which is the same as full,
            in one buffer, as long as lambda is constant (it refuses other solvers) and no batch lacks an objective;
            ``"marginal"`` the average of d^2 whatever lambda does, that is Adam twice: a control, not a method.
            ``"auto"`` is collapsed for a static solver; else full up to C = 8, separable beyond.
        beta: decay of the averages; None is the parameter group's ``betas[1]``, or 0.999 if it has none.
        eps: added to C inside the root.
        rampup: number of steps over which alpha rises; 0 is no ramp-up; a float below 1 is that fraction of
            ``total_steps``.
        ramp: what s is. ``"largest"``: the largest sqrt(C + eps) of the tensor; ``"matched"``: their mean; with both
            the scale of the losses does not matter. Under the mean, coordinates with large gradients enter the ramp-up
            at many times 1, and the optimizer's own second moment remembers that for a thousand steps.
            ``"paper"``: 1.
        bias_correction: divide each average by 1 - beta^n, n its number of updates.
        floor: keep C at or above (1 - beta) d^2, which bounds every entry of the result by 1 / sqrt(1 - beta) once the
            ramp-up is over.
        every: update the averages every so many steps only, with decay beta^every. An objective that is never in a
            batch of such a step has no average: choose another number than the period with which objectives take turns.
        dtype: in which the averages are kept and d / M is computed; None is that of the parameter, float32 at least.
            ``torch.bfloat16`` and ``torch.float8_e5m2`` (or their names) halve and quarter the averages: these are
            rounded at random, right in expectation, and d / M is computed as with None.
        seed: seed of the generators that draw the pairs and round.
        total_steps: length of the run, for a ``rampup`` that is a fraction.
        normalise: average g_i g_j / (|g_i| |g_j|) instead, |g_i| the norm over all parameters, and let lambda_i |g_i|
            stand for lambda_i; d stays the same. The size of a gradient, which moves fast and which many solvers
            answer with lambda, is then that of this step, and only its shape an average. An objective whose own
            gradient is not computed in a step keeps the norm that it had when it last was.

    The paper's plain form is ``PreferenceMetric("pair", eps=1e-8, ramp="paper", bias_correction=False, floor=False)``.
    """

    def __init__(
        self,
        estimator: str = "auto",
        beta: float | None = None,
        eps: float = 1e-16,
        rampup: int | float = RAMPUP,
        ramp: str = "largest",
        bias_correction: bool = True,
        floor: bool = True,
        every: int = 1,
        dtype: torch.dtype | str | None = None,
        seed: int = 0,
        total_steps: int | None = None,
        normalise: bool = False,
    ) -> None:
        if estimator not in ESTIMATORS:
            raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}, got {estimator!r}")
        if beta is not None and not 0.0 <= beta < 1.0:
            raise ValueError(f"beta must be in [0, 1), got {beta!r}")
        if not 0.0 < eps < float("inf"):
            raise ValueError(f"eps must be positive, got {eps!r}")
        if ramp not in RAMPS:
            raise ValueError(f"ramp must be one of {', '.join(RAMPS)}, got {ramp!r}")
        if not 1 <= every < float("inf") or every != int(every):
            raise ValueError(f"every must be a whole number of steps, at least 1, got {every!r}")
        given, dtype = dtype, getattr(torch, dtype, dtype) if isinstance(dtype, str) else dtype
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(map(str, DTYPES))}, got {given!r}")
        self.estimator = estimator
        self.beta = beta
        self.eps = eps
        self.rampup = _rampup_steps(rampup, total_steps)
        self.ramp = ramp
        self.bias_correction = bias_correction
        self.floor = floor
        self.every = int(every)
        self.dtype: torch.dtype | None = dtype
        self.seed = seed
        self.normalise = normalise

        self.steps = 0
        self.wait = 0  # steps until the averages are updated again
        self.generator = torch.Generator().manual_seed(seed)
        self.noise = torch.Generator().manual_seed(seed)  # of rounding at random
        self.averages = Store()
        self.used: str | None = None  # the estimator in use, once the first step has been taken
        self.constant: dict[int, float] = {}  # lambda_i of the objectives in the collapsed average
        self.norms: dict[int, float] = {}  # |g_i| as last measured, if the averages are normalised
        self._owner: weakref.ref[Any] | None = None

    def claim(self, owner: object) -> None:
        """Belong to ``owner``: two optimizers in turn would each have half of the steps, and the other's counts."""
        current = None if self._owner is None else self._owner()
        if current is not None and current is not owner:
            raise ValueError("this PreferenceMetric is in use by another optimizer: build one for each")
        self._owner = weakref.ref(owner)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_owner": None}  # a copy is free

    def __repr__(self) -> str:
        options = ["estimator", "beta", "eps", "rampup", "ramp", "bias_correction", "floor", "every", "dtype", "seed"]
        shown = (f"{name}={getattr(self, name)!r}" for name in [*options, "normalise"])
        return f"PreferenceMetric({', '.join(shown)})"

    @property
    def alpha(self) -> float:
        """How far the ramp-up has come, 0 to 1."""
        return min(1.0, self.steps / self.rampup) if self.rampup else 1.0

    def resolve(self, *, static: bool, count: int) -> str:
        """The estimator in use for such a solver and so many objectives."""
        if self.estimator == "collapsed" and not static:
            raise ValueError(
                "estimator='collapsed' holds for constant weights only, and this solver's weights change; "
                "use 'auto', 'full' or 'separable'"
            )
        if self.estimator != "auto":
            return self.estimator
        if static:
            return "collapsed"
        return "full" if count <= MOST_IN_FULL else "separable"

    @property
    def rounds(self) -> bool:
        """Whether the averages are kept in fewer bits than they are computed in."""
        return self.dtype in DROPPED

    def _maker(self, estimator: str | None) -> Make:
        """What makes the empty averages of a block."""
        return partial(Separable if estimator in ONE_BUFFER else Pairwise, dtype=self.dtype)

    def compute_dtype(self, param: Tensor) -> torch.dtype:
        if self.dtype is None or self.rounds:
            return torch.promote_types(param.dtype, torch.float32)
        return self.dtype

    def takes_heads_together(self, measurement: Measurement) -> bool:
        """Whether heads of different objectives may have averages in one row.

        Not if they are updated in different steps, nor if a row has one exponent, and their losses different sizes.
        """
        return measurement.estimator not in TWO_ROWS and self.dtype is not torch.float8_e5m2

    def measure(self, estimator: str, objectives: Sequence[int]) -> Measurement:
        """Decide what this step measures, without touching the state."""
        if self.used not in (None, estimator):
            raise ValueError(f"the averages were made with estimator {self.used!r}, this step asks for {estimator!r}")
        active = self.wait == 0
        if not active or estimator not in TWO_ROWS:
            return Measurement(estimator, active)
        generator = torch.Generator()
        generator.set_state(self.generator.get_state())
        drawn = torch.randint(len(objectives), (2,), generator=generator, device=generator.device).tolist()
        i, j = (objectives[k] for k in drawn)
        return Measurement(estimator, True, (min(i, j), max(i, j)), generator.get_state())

    def settle(
        self,
        measurement: Measurement,
        weights: Sequence[float],
        present: Sequence[int],
        directions: Sequence[Direction] = (),
    ) -> Measurement:
        """The measurement, once lambda and the directions are known.

        A collapsed average of another lambda has to start anew, and normalised ones need the norms. Raises MemoryError
        if what is to be kept is larger than the memory that is free.
        """
        self._check_room(measurement, directions)
        if self.normalise:
            measurement = replace(measurement, norms={**self.norms, **self._norms(measurement, directions)})
        if all(self.constant.get(i, weights[i]) == weights[i] for i in present):
            return measurement
        warnings.warn("the weights of a static solver were changed: the averages of d^2 start anew", stacklevel=4)
        return replace(measurement, restart=True, active=True)

    def _norms(self, measurement: Measurement, directions: Sequence[Direction]) -> dict[int, float]:
        """|g_i| over all parameters, for the objectives that the estimator sees by themselves in this step."""
        parts: dict[int, list[Tensor]] = {}
        for x in (self._as_seen(x, measurement) for x in directions):
            for key, row in x.by_objective():
                parts.setdefault(key, []).append(row)
        largest = torch.finfo(torch.float32).max ** 0.5  # where the sum of squares overflows, any large number will do
        return {key: min(float(torch.nn.utils.get_total_norm(rows)), largest) for key, rows in parts.items()}

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
        estimator = self.resolve(static=static, count=count)
        one = estimator in ("collapsed", "marginal")
        total = 0
        for part, keys in ((shared, range(1 if one else count)), (heads, range(1))):
            pairs = Measurement(estimator, True).pairs(keys)
            for p in part.parameters() if isinstance(part, nn.Module) else part:
                if p.requires_grad:
                    total += bytes_of_new(
                        self._maker(estimator)((p,)), pairs, 1 if one else count, self.compute_dtype(p)
                    )
        return total

    def _check_room(self, measurement: Measurement, directions: Sequence[Direction]) -> None:
        """Raise if this step would make averages for which there is no memory."""
        rooms: dict[torch.device, list[Room]] = {}
        for x in directions:
            averages, seen, pairs = self._measured(x, measurement)
            if missing := averages.missing(pairs):
                room = Room(x.params, [*averages.pairs, *missing], len(seen.weights), x.d.dtype, averages.tensors())
                rooms.setdefault(x.d.device, []).append(room)
        for device, new in rooms.items():
            check_room(new, device, self._maker(measurement.estimator), measurement.estimator)

    def precondition(self, x: Direction, beta: float, measurement: Measurement) -> Tensor:
        """d / M for one block, with this step's gradients in the averages; the averages stay as they are."""
        averages, seen, pairs = self._measured(x, measurement)
        curvature = averages.curvature(seen, pairs, beta**self.every, measurement.norms, self.bias_correction)
        floor = None if averages.needs_no_floor(seen, pairs) else (1.0 - beta) if self.floor else 0.0
        out = torch.empty_like(x.d)
        for columns in self._pieces(out):
            y = seen if columns is None else seen.part(columns)
            C = None if curvature is None else curvature(columns)
            M = metric_of(y, C, floor=floor, eps=self.eps, alpha=self.alpha, ramp=self.ramp)
            torch.div(y.d, M, out=out if columns is None else out[columns])
        return out

    def _pieces(self, out: Tensor) -> Iterator[slice | None]:
        """All coordinates together if they are few, or if the ramp-up asks for the largest root of a tensor."""
        if len(out) <= PIECE or self.alpha < 1.0:
            yield None
            return
        for start in range(0, len(out), PIECE):
            yield slice(start, start + PIECE)

    def curvature(self, x: Direction, beta: float, measurement: Measurement) -> Tensor | None:
        """C_lambda for one block, before floor, eps and ramp-up; None if there is no average yet."""
        averages, x, pairs = self._measured(x, measurement)
        curvature = averages.curvature(x, pairs, beta**self.every, measurement.norms, self.bias_correction)
        return None if curvature is None else curvature(None)

    def _measured(self, x: Direction, measurement: Measurement) -> tuple[Averages, Direction, list[Pair]]:
        """The averages of a block, the direction as they take it, and the pairs that this step measures."""
        make = self._maker(measurement.estimator)
        averages = make(x.params) if measurement.restart else self.averages.find(x.params, make)
        x = self._as_seen(x, measurement)
        return averages, x, measurement.pairs(x.keys) if measurement.active else []

    def update(self, x: Direction, beta: float, measurement: Measurement) -> None:
        """Take this step's gradients of one block into its averages."""
        if not measurement.active:
            return
        x = self._as_seen(x, measurement)
        averages = self.averages.take(x.params, self._maker(measurement.estimator))
        averages.update(x, measurement.pairs(x.keys), beta**self.every, measurement.norms, self.noise)

    def begin_update(self, measurement: Measurement) -> None:
        """Before the :meth:`update` of each block: let go of averages that no longer hold."""
        if measurement.restart:
            self.averages = Store()
            self.constant.clear()

    def end_update(self, measurement: Measurement, weights: Sequence[float], present: Sequence[int]) -> None:
        """After the :meth:`update` of each block: the step is taken."""
        self.steps += 1
        self.wait = (self.every if measurement.active else self.wait) - 1
        self.used = measurement.estimator
        if measurement.generator_state is not None:
            self.generator.set_state(measurement.generator_state)
        if measurement.estimator == "collapsed":
            self.constant.update({i: weights[i] for i in present})
        if measurement.norms is not None:
            self.norms = dict(measurement.norms)

    @staticmethod
    def _as_seen(x: Direction, measurement: Measurement) -> Direction:
        """What the estimator takes for objectives: the real ones, or d as if it were the only one."""
        if measurement.estimator not in ("collapsed", "marginal"):
            return x
        return Direction(x.params, x.d, (1.0,), (0,), x.d.unsqueeze(0), complete=True)

    def state_dict(self, params: Sequence[Tensor]) -> dict[str, Any]:
        """The state, with the averages numbered as the parameters are in ``params``."""
        index = {param: i for i, param in enumerate(params)}
        parts = (part for block in self.averages for part in block.split())
        averages = {index[a.params[0]]: a.state_dict() for a in parts if a.pairs and a.params[0] in index}
        return {
            "steps": self.steps,
            "wait": self.wait,
            "generator": self.generator.get_state(),
            "estimator": self.used,
            "constant": dict(self.constant),
            "averages": averages,
            **({"norms": dict(self.norms)} if self.normalise else {}),
            **({"noise": self.noise.get_state()} if self.rounds else {}),
        }

    def check_state_dict(self, state: dict[str, Any], params: Sequence[Tensor], estimator: str | None) -> None:
        """Raise if ``state`` lacks a piece, does not fit the parameters, or was made with another estimator."""
        for key in ("steps", "wait", "generator", "estimator", "constant", "averages"):
            if key not in state:
                raise ValueError(f"the checkpoint lacks the metric's {key!r}")
        if None not in (estimator, state["estimator"]) and state["estimator"] != estimator:
            raise ValueError(f"the checkpoint was made with estimator {state['estimator']!r}, here it is {estimator!r}")
        if ("norms" in state) != self.normalise:
            raise ValueError(f"the checkpoint's averages were not made with normalise={self.normalise}")
        if ("noise" in state) != self.rounds:
            raise ValueError(f"the checkpoint's averages were not made with dtype={self.dtype}")
        for index, entry in state["averages"].items():
            if index >= len(params):
                raise ValueError(f"the checkpoint has averages of parameter {index}; there are {len(params)}")
            try:
                self._maker(state["estimator"])((params[index],)).check_state_dict(entry)
            except ValueError as error:
                raise ValueError(f"the checkpoint's averages of parameter {index} {error}") from None

    def load_state_dict(
        self, state: dict[str, Any], params: Sequence[Tensor], blocks: Iterable[tuple[Tensor, ...]] = ()
    ) -> None:
        """Take on such a state, with the averages of each of the ``blocks`` joined; after an error, nothing of it."""
        averages, make = Store(), self._maker(state["estimator"])
        for index, entry in state["averages"].items():
            param = params[index]
            averages.take((param,), make).load_state_dict(entry, self.compute_dtype(param))
        for block in blocks:
            if any(param in averages for param in block):
                averages.take(block, make)
        generator = _generator(state["generator"])
        noise = _generator(state["noise"]) if self.rounds else self.noise
        constant, norms = dict(state["constant"]), dict(state.get("norms", {}))
        self.steps, self.wait, self.used = int(state["steps"]), int(state["wait"]), state["estimator"]
        self.generator, self.noise = generator, noise
        self.averages, self.constant, self.norms = averages, constant, norms


def _generator(state: Tensor) -> torch.Generator:
    result = torch.Generator()
    result.set_state(state.cpu())
    return result


def _rampup_steps(rampup: int | float, total_steps: int | None) -> int:
    if not 0 <= rampup < float("inf"):
        raise ValueError(f"rampup must be zero, a number of steps or a fraction below 1, got {rampup!r}")
    if rampup == int(rampup):
        return int(rampup)
    if rampup > 1:
        raise ValueError(f"rampup must be a whole number of steps or a fraction below 1, got {rampup!r}")
    if total_steps is None or total_steps < 1:
        raise ValueError(f"rampup={rampup!r} is a fraction of the run: give total_steps, got {total_steps!r}")
    return max(1, round(rampup * total_steps))
