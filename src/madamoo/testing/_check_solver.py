"""The promises of every solver, checked one after the other."""

from __future__ import annotations

import copy
import inspect
import io
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..solvers import Solver
from ._steps import Step, hostile_steps, ordinary_steps

Claim = Literal["simplex", "equivariant", "loss_scale", "gram_scale", "local"]
CLAIMS: tuple[str, ...] = get_args(Claim)
"""What only some solvers promise: weights that are not negative and sum to 1; that another order of the objectives
only reorders them; that they stay when all losses, or all gradients, are multiplied by one number; that for a batch
which lacks objectives they are those of a solver that knows the others only."""

FAMILIES = ("loss", "gradient", "preference")
COUNTS = (1, 2, 3, 7)


def check_solver(
    make: Callable[[], Solver], *, claims: Collection[Claim] = (), device: torch.device | str = "cpu"
) -> None:
    """Raise an AssertionError that names the first promise of solvers which this one breaks.

    Args:
        make: the solver class, or a function that builds a new solver: ``lambda: MySolver(beta=0.5)``.
        claims: what this solver promises beyond, among :data:`CLAIMS`.
        device: where losses, Gram matrices and preferences are; it needs float64.

    Example:
        >>> from madamoo.solvers import Solver
        >>> class Wrong(Solver):
        ...     def weights(self, losses, gram=None, preference=None):
        ...         return losses / losses.sum()
        >>> check_solver(Wrong)
        Traceback (most recent call last):
        ...
        AssertionError: Wrong: weights that depend on the losses of the same step are declared by uses_losses = True
    """
    for claim in claims:
        if claim not in CLAIMS:
            raise ValueError(f"claims must be among {', '.join(CLAIMS)}, got {claim!r}")
    solver = make()
    if not isinstance(solver, Solver):
        raise TypeError(f"make must build a Solver, got {solver!r}")
    checker = _Checker(make, type(solver).__name__, torch.device(device))
    checker.check_declarations()
    checker.check_options()
    checker.check_shape_and_dtype()
    checker.check_inputs()
    checker.check_determinism()
    checker.check_number_of_objectives()
    checker.check_static()
    checker.check_copies()
    checker.check_what_decides()
    checker.check_statistics()
    checker.check_masks()
    checker.check_missing_objectives()
    checker.check_state()
    checker.check_hostile_input(simplex="simplex" in claims)
    for claim in claims:
        getattr(checker, f"check_{claim}")()


class _Checker:
    def __init__(self, make: Callable[[], Solver], name: str, device: torch.device) -> None:
        self.make = make
        self.name = name
        self.device = device

    def ordinary_steps(self, count: int, steps: int = 5, seed: int = 0) -> list[Step]:
        return [step.to(self.device) for step in ordinary_steps(count, steps, seed)]

    def hostile_steps(self, count: int) -> Iterator[tuple[str, Step]]:
        return ((name, step.to(self.device)) for name, step in hostile_steps(count))

    def demand(self, holds: bool, promise: str, found: str = "") -> None:
        if not holds:
            raise AssertionError(f"{self.name}: {promise}" + (f"; {found}" if found else ""))

    @contextmanager
    def promise(self, promise: str) -> Any:
        """Turn any error inside into a broken promise."""
        try:
            yield
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"{self.name}: {promise}; {type(error).__name__}: {error}") from error

    # Declarations -----------------------------------------------------------------------------------------------------

    def check_declarations(self) -> None:
        solver = self.make()
        self.demand(solver.family in FAMILIES, f"family is one of {', '.join(FAMILIES)}", f"it is {solver.family!r}")
        for flag in ("needs_gram", "uses_losses", "per_coordinate", "static", "uses_preference"):
            value = getattr(solver, flag)
            self.demand(isinstance(value, bool), f"{flag} is True or False", f"it is {value!r}")
        self.demand(isinstance(solver.wants_rows, bool), "wants_rows is True or False")
        self.demand(solver.n_objectives is None, "a new solver does not know the number of objectives yet")
        taken = inspect.signature(solver.weights).parameters
        wanted = ["losses", "gram", "preference", *solver.row_statistics]
        self.demand(list(taken) == wanted, f"weights takes {', '.join(wanted)}", f"it takes {', '.join(taken)}")
        solver.ensure(3)
        for name in solver.per_objective:
            buffer = dict(solver.named_buffers()).get(name)
            self.demand(buffer is not None, "setup registers the buffers that per_objective names", f"no {name!r}")
            assert buffer is not None
            square = buffer.dim() > 0 and set(buffer.shape) == {3}
            found = f"{name} has shape {tuple(buffer.shape)} for 3 objectives"
            self.demand(square, "every dimension of a buffer in per_objective is the number of objectives", found)

    def check_options(self) -> None:
        solver = self.make()
        options = solver.options()
        self.demand(_is_plain(options), "options() holds plain Python values", f"it is {options}")
        shown = repr(solver)
        self.demand(shown.startswith(f"{type(solver).__name__}("), "repr shows class and options", f"it is {shown}")
        if inspect.isclass(self.make):
            with self.promise("options() rebuild the solver"):
                again = type(solver)(**options)
                self.demand(again.options() == options, "options() rebuild the solver", f"{again!r}, not {shown}")

    # One call ---------------------------------------------------------------------------------------------------------

    def check_shape_and_dtype(self) -> None:
        promise = "solve returns one number per objective, in the dtype of the losses and detached"
        for count in COUNTS:
            for dtype in (torch.float64, torch.float32):
                solver = self.make()
                for step in self.ordinary_steps(count, 3):
                    losses = step.losses.to(dtype)
                    with self.promise(promise):
                        found = Step(losses, step.gram, step.preference.to(dtype), step.statistics).solve(solver)
                    says = f"for {count} losses of {dtype} it returned {found}"
                    right = found.shape == (count,) and found.dtype == dtype and not found.requires_grad
                    self.demand(right, promise, says)
                    self.demand(bool(found.isfinite().all()), "weights are finite", says)

    def check_determinism(self) -> None:
        promise = "new solvers with the same options give the same weights, bit for bit"
        drawn = torch.random.get_rng_state()
        steps, runs = self.ordinary_steps(3), []
        try:
            for seed in (0, 1):
                torch.manual_seed(seed)
                before = torch.random.get_rng_state()
                solver = self.make()
                runs.append([step.solve(solver) for step in steps])
                untouched = torch.equal(before, torch.random.get_rng_state())
                self.demand(untouched, "random draws come from self.generator, not from torch's global one")
        finally:
            torch.random.set_rng_state(drawn)
        self.demand(_same(*runs), promise)

    def check_inputs(self) -> None:
        solver, other = self.make(), self.make()
        for step in self.ordinary_steps(3):
            given = step.copy()
            weights = given.solve(solver)
            unchanged = _same(_tensors(given), _tensors(step))
            self.demand(unchanged, "losses, Gram matrix, preference and statistics stay as they are")
            wanted = step.solve(other)
            for tensor in (weights, *_tensors(given)):
                tensor.fill_(7.0)  # who owns the tensor may write to it
            same = _same(solver.state_dict(), other.state_dict())
            self.demand(same, "the solver keeps no view of its inputs, nor of the weights that it returned")
            self.demand(bool(wanted.isfinite().all()), "weights are finite")

    def check_number_of_objectives(self) -> None:
        solver = self.make()
        self.ordinary_steps(3, 1)[0].solve(solver)
        self.demand(solver.n_objectives == 3, "solve learns the number of objectives", f"it is {solver.n_objectives}")
        try:
            self.ordinary_steps(4, 1)[0].solve(solver)
        except ValueError:
            return
        self.demand(False, "another number of objectives than before is refused with a ValueError")

    def check_what_decides(self) -> None:
        """What is not declared has no influence on this step's weights."""
        for count in (2, 3):
            solver = self.make()
            for step, other in zip(self.ordinary_steps(count), self.ordinary_steps(count, seed=1), strict=True):
                twin = copy.deepcopy(solver)
                weights = step.solve(solver)
                if not solver.uses_losses:
                    changed = Step(other.losses, step.gram, step.preference, step.statistics).solve(twin)
                    promise = "weights that depend on the losses of the same step are declared by uses_losses = True"
                    self.demand(_same(weights, changed), promise)
        if self.make().needs_gram:
            promise = "a solver with needs_gram refuses a call without the Gram matrix, with an error that names it"
            solver, step = self.make(), self.ordinary_steps(2, 1)[0]
            solver.ensure(2)
            statistics: dict[str, Any] = {name: step.statistics[name] for name in solver.row_statistics}
            try:
                solver.weights(step.losses, None, step.preference, **statistics)
            except Exception as error:
                named = isinstance(error, TypeError | ValueError) and "gram" in str(error).lower()
                self.demand(named, promise, f"{type(error).__name__}: {error}; self.require(gram) does it")
            else:
                self.demand(False, promise, "it returned weights; self.require(gram) does it")

    def check_static(self) -> None:
        if self.make().static:
            solver = self.make()
            found = [step.solve(solver) for step in self.ordinary_steps(3)]
            same = all(_same(weights, found[0]) for weights in found)
            self.demand(same, "static means that the weights never change", f"they were {[w.tolist() for w in found]}")

    def check_statistics(self) -> None:
        solver, step = self.make(), self.ordinary_steps(3, 1)[0]
        if not solver.row_statistics:
            return
        try:
            solver.solve(step.losses, step.gram, step.preference if solver.uses_preference else None)
        except ValueError as error:
            named = all(name in str(error) for name in solver.row_statistics)
            self.demand(named, "missing row_statistics are named", str(error))
        else:
            self.demand(not solver.wants_rows, "missing row_statistics are refused with a ValueError")

    def check_masks(self) -> None:
        solver = self.make()
        if not solver.per_coordinate:
            return
        self.ordinary_steps(3, 1)[0].solve(solver)
        generator = torch.Generator("cpu").manual_seed(0)
        rows = torch.randn(2, 4, 5, generator=generator, dtype=torch.float64, device="cpu").to(self.device)
        given = rows.clone()
        masks = solver.masks(given, [0, 2])
        self.demand(masks.shape == rows.shape, "masks has the shape of the rows", f"it is {tuple(masks.shape)}")
        self.demand(bool(masks.isfinite().all()), "masks are finite")
        self.demand(_same(rows, given), "masks leaves the rows as they are")

    # Several calls ----------------------------------------------------------------------------------------------------

    def check_missing_objectives(self) -> None:
        solver, steps, present = self.make(), self.ordinary_steps(4), [0, 1, 3]
        steps[0].solve(solver)
        before = {name: getattr(solver, name).clone() for name in solver.per_objective}
        for step in steps[1:]:
            partial = step.copy()
            partial.losses[2] = torch.nan
            partial.gram[2] = partial.gram[:, 2] = 0.0
            for statistic in partial.statistics.values():
                statistic[2] = 0.0
            with self.promise("a batch may lack objectives"):
                weights = partial.solve(solver, present)
            found = f"they are {weights.tolist()}"
            self.demand(float(weights[2]) == 0.0, "the weight of a missing objective is 0", found)
            self.demand(bool(weights.isfinite().all()), "a missing objective leaves the other weights finite", found)
            self.demand(solver.n_objectives == 4, "a missing objective still counts in n_objectives")
            for name, old in before.items():
                new = getattr(solver, name)
                rests = new.shape == old.shape and all(
                    _same(new.select(dim, 2), old.select(dim, 2)) for dim in range(old.dim())
                )
                self.demand(rests, "the state of a missing objective rests", f"{name} was {old}, is {new}")
            partial.losses[2] = torch.nan
            solver.observe(partial.losses)
        self.demand(bool(steps[0].solve(solver).isfinite().all()), "weights stay finite when an objective comes back")

    def check_state(self) -> None:
        promise = "a state dict restores the solver, bit for bit"
        steps, old = self.ordinary_steps(4, 8), self.make()
        for k, step in enumerate(steps[:4]):
            step.solve(old, [0, 1, 3] if k == 1 else None)
        file = io.BytesIO()
        with self.promise("the state dict holds tensors and plain Python values"):
            torch.save(old.state_dict(), file)
            file.seek(0)
            state = torch.load(file, weights_only=True)
        fresh, used, unused = self.make(), self.make(), self.make()
        for step in self.ordinary_steps(4, 3, seed=1):
            step.solve(used)
        with self.promise(promise):
            for solver in (fresh, used):
                solver.load_state_dict(state)
        wanted = [step.solve(old) for step in steps[4:]]
        for how, solver in (("a new solver", fresh), ("a solver that was used before", used)):
            found = [step.solve(solver) for step in steps[4:]]
            self.demand(_same(found, wanted), promise, f"{how} goes on with other weights after load_state_dict")
        with self.promise("the state of an unused solver can be loaded too"):
            used.load_state_dict(unused.state_dict())
        self.demand(used.n_objectives is None, "the state of an unused solver can be loaded too")
        found, wanted = ([step.solve(solver) for step in steps] for solver in (used, unused))
        self.demand(_same(found, wanted), promise, "back to the state of an unused solver, it is not like a new one")

    def check_copies(self) -> None:
        solver, steps = self.make(), self.ordinary_steps(3)
        steps[0].solve(solver)
        with self.promise("copy.deepcopy copies the solver"):
            twin = copy.deepcopy(solver)
        before = copy.deepcopy(solver.state_dict())
        ahead = [step.solve(twin) for step in steps[1:]]
        alone = _same(before, solver.state_dict())
        self.demand(alone, "a deep copy shares nothing: the optimizer tries a step on a copy and may drop it")
        without_state = not solver.has_state
        found = [step.solve(solver) for step in steps[1:]]
        self.demand(_same(ahead, found), "a deep copy goes on with the same weights as the original")
        kept = not without_state or _same(before, solver.state_dict())
        self.demand(kept, "a solver without has_state leaves nothing behind in solve")

    def check_hostile_input(self, simplex: bool) -> None:
        for count in COUNTS:
            used = self.make()
            for name, step in self.hostile_steps(count):
                for solver in (self.make(), used):
                    with self.promise(f"weights are finite for every finite input, also for {count} with {name}"):
                        weights = step.solve(solver)
                    found = f"for {count} objectives, {name}: {weights.tolist()}"
                    self.demand(bool(weights.isfinite().all()), "weights are finite for every finite input", found)
                    if simplex:
                        self.demand(_on_simplex(weights), "weights are not negative and sum to 1 (simplex)", found)
            ordinary = self.ordinary_steps(count, 1)[0].solve(used)
            self.demand(bool(ordinary.isfinite().all()), "hostile input leaves no damage behind in the state")

    # Claims -----------------------------------------------------------------------------------------------------------

    def check_simplex(self) -> None:
        for count in COUNTS:
            solver = self.make()
            for step in self.ordinary_steps(count):
                weights = step.solve(solver)
                found = f"they are {weights.tolist()}"
                self.demand(_on_simplex(weights), "weights are not negative and sum to 1 (simplex)", found)

    def check_equivariant(self) -> None:
        order = [2, 0, 3, 1]
        self._compare(
            lambda step: step.select(order),
            lambda weights: weights[order],
            "another order of the objectives gives the same weights in that order (equivariant)",
        )

    def check_loss_scale(self) -> None:
        for scale in (1e-6, 1e6):

            def scaled(step: Step, scale: float = scale) -> Step:
                return Step(scale * step.losses, step.gram, step.preference, step.statistics)

            promise = f"losses times {scale:g} give the same weights (loss_scale)"
            self._compare(scaled, lambda weights: weights, promise)

    def check_gram_scale(self) -> None:
        for scale in (1e-6, 1e6):

            def scaled(step: Step, scale: float = scale) -> Step:
                statistics = {name: scale * value for name, value in step.statistics.items()}
                return Step(step.losses, scale * scale * step.gram, step.preference, statistics)

            promise = f"gradients times {scale:g} give the same weights (gram_scale)"
            self._compare(scaled, lambda weights: weights, promise)

    def check_local(self) -> None:
        present = [0, 1, 3]
        whole, part = self.make(), self.make()
        for step in self.ordinary_steps(4):
            found, wanted = step.solve(whole, present)[present], step.select(present).solve(part)
            same = bool(torch.allclose(found, wanted, rtol=1e-9, atol=1e-12))
            promise = "for a batch that lacks objectives, weights are those of a solver for the others only (local)"
            self.demand(same, promise, f"{found.tolist()} and {wanted.tolist()}")

    def _compare(self, change: Callable[[Step], Step], expect: Callable[[Tensor], Tensor], promise: str) -> None:
        """The same steps, changed, give the expected direction."""
        for seed in range(3):
            plain, changed = self.make(), self.make()
            for step in self.ordinary_steps(4, seed=seed):
                wanted = expect(step.solve(plain))
                altered = change(step)
                found = altered.solve(changed)
                gap, K = found - wanted, altered.gram
                size = float(wanted.abs() @ K.diagonal().sqrt())
                close = float((gap @ K @ gap).clamp_min(0).sqrt()) <= 1e-6 * size
                self.demand(close, promise, f"{wanted.tolist()} became {found.tolist()}")


def _tensors(step: Step) -> list[Tensor]:
    return [step.losses, step.gram, step.preference, *step.statistics.values()]


def _on_simplex(weights: Tensor) -> bool:
    return bool((weights >= 0).all()) and abs(float(weights.sum()) - 1.0) <= 1e-6


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _same(a: Any, b: Any) -> bool:
    """Whether two nests of containers, numbers and tensors are equal; NaN equals NaN."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(_bits(a), _bits(b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
