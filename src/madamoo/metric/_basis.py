"""The basis in which the averages are kept: the parameters' own, or one that follows the gradients of a matrix.

A diagonal metric depends on the basis in which a matrix happens to be written. With L and R the running averages of
D D' and D' D, D the direction of a matrix parameter, and Q_L and Q_R their eigenvectors, a gradient G becomes
Q_L' G Q_R: coordinates in which the curvature is closest to diagonal (Shampoo, SOAP). The averages see these alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from ..checks import check_choice, check_fraction, check_integer
from ..direction import Direction
from ..gradients import Block

BasisName: TypeAlias = Literal["identity", "eigen"]
Sides: TypeAlias = Literal["both", "shorter"]
NOTHING = 1e-10  # an eigenvalue below this share of the largest is none


@dataclass(frozen=True)
class EigenBasis:
    """Options of ``PreferenceMetric(basis=...)``; ``"eigen"`` has the defaults.

    A parameter of more than two dimensions, as of a convolution, is taken for the matrix [outputs, all the rest].

    Args:
        every: number of steps between two refreshes of the eigenvectors, each one QR decomposition per side.
        beta: decay of the averages of D D' and D' D.
        longest: a side with more entries keeps its own basis; so does one with a single entry.
        sides: ``"both"``, or only the ``"shorter"`` of the two (the inputs', if they are equally long), at half the
            cost.

    Example:
        >>> EigenBasis().turned((64, 32)), EigenBasis().turned((1, 64)), EigenBasis().turned((64, 2048))
        ((True, True), (False, True), (True, False))
    """

    every: int = 10
    beta: float = 0.95
    longest: int = 1024
    sides: Sides = "both"

    def __post_init__(self) -> None:
        check_integer("every", self.every, minimum=1)
        check_fraction("beta", self.beta)
        check_integer("longest", self.longest, minimum=1)
        check_choice("sides", self.sides, ("both", "shorter"))

    def turned(self, shape: Sequence[int]) -> tuple[bool, bool]:
        """Whether the left and the right side of such a parameter are rotated."""
        if len(shape) < 2 or 0 in shape:
            return False, False
        m, n = matrix_shape(shape)
        left, right = (1 < side <= self.longest for side in (m, n))
        if self.sides == "shorter":
            return left and m < n, right and m >= n
        return left, right

    def options(self) -> dict[str, Any]:
        return asdict(self)


def matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """[outputs, all the rest]."""
    return shape[0], math.prod(shape[1:])


@dataclass(frozen=True)
class Side:
    """One side of a matrix: L, and an orthonormal Q close to its eigenvectors, the largest eigenvalue first."""

    average: Tensor
    Q: Tensor

    @classmethod
    def first(cls, D: Tensor) -> Side:
        """The eigenvectors of the first D D', and a completion where it has fewer than its side is long; L is zero.

        The completion is a smooth function of the eigenvectors, where eigh would leave it to rounding: runs that differ
        by rounding stay together.
        """
        D = D.double() / D.abs().amax().clamp_min(torch.finfo(D.dtype).tiny)
        values, vectors = torch.linalg.eigh(D @ D.T)
        known = vectors[:, values > NOTHING * values[-1]].flip(1)
        return cls(torch.zeros_like(vectors), torch.linalg.qr(known, mode="complete").Q)

    def to(self, dtype: torch.dtype) -> Side:
        return Side(self.average.to(dtype), self.Q.to(dtype))

    def taken(self, D: Tensor, beta: float) -> Side:
        """L with this D D' in it; no sum of squares overflows, for ``largest_gradient`` lets no such D in."""
        return Side(torch.addmm(self.average, D, D.T, beta=beta, alpha=1.0 - beta), self.Q)

    def refreshed(self) -> tuple[Side, Tensor | None]:
        """One step of orthogonal iteration, and the new order of the columns; None if they stay where they are.

        Orthogonal iteration turns the first column to the largest eigenvalue whatever it was before, so the columns
        are put in order first: else the averages would be of other directions than they were made of.
        """
        L, Q = self.average, self.Q
        LQ = L @ Q
        values = (Q * LQ).sum(0)
        order = torch.argsort(values, descending=True, stable=True)
        moves = not bool((order[1:] > order[:-1]).all())
        if moves:
            LQ, Q = LQ[:, order], Q[:, order]
        # Directions that L does not have would be rounding error; with this they stay where they are.
        shift = values.amax() * (1e-10 if L.dtype == torch.float64 else 1e-6)
        return Side(L, torch.linalg.qr(torch.addcmul(LQ, Q, shift)).Q), order if moves else None


@dataclass(frozen=True)
class Frame:
    """The basis of one matrix parameter; it never changes, a step makes another."""

    shape: tuple[int, int]
    left: Side | None
    right: Side | None
    is_first: bool = False  # made of the very direction that it is about to rotate
    step: int | None = None  # the number of the last step that is in it; None is the one before this

    @classmethod
    def first(cls, D: Tensor, left: bool, right: bool) -> Frame:
        """From the first direction of a parameter, of the sides that are rotated."""
        first = [Side.first(A).to(D.dtype) if turned else None for A, turned in ((D, left), (D.T, right))]
        return cls((D.shape[0], D.shape[1]), first[0], first[1], is_first=True)

    def rotate(self, rows: Tensor) -> Tensor:
        """Q_L' G Q_R for each row G."""
        G = rows.view(-1, *self.shape)
        if self.left is not None:
            G = self.left.Q.T @ G
        if self.right is not None:
            G = G @ self.right.Q
        return G.reshape(rows.shape)

    def rotate_back(self, rows: Tensor) -> Tensor:
        G = rows.view(-1, *self.shape)
        if self.left is not None:
            G = self.left.Q @ G
        if self.right is not None:
            G = G @ self.right.Q.T
        return G.reshape(rows.shape)

    def after(self, d: Tensor, options: EigenBasis, step: int) -> tuple[Frame, Tensor | None]:
        """The basis once the step is taken, and where each of its coordinates was before; None if all stay."""
        D = d.view(self.shape)
        left = None if self.left is None else self.left.taken(D, options.beta)
        right = None if self.right is None else self.right.taken(D.T, options.beta)
        rows = columns = None
        # A step that is due may not reach the parameter, as where objectives take turns: then the next one that does.
        before = step - 1 if self.step is None else self.step
        refresh = step // options.every > before // options.every
        if refresh and left is not None:
            left, rows = left.refreshed()
        if refresh and right is not None:
            right, columns = right.refreshed()
        frame = Frame(self.shape, left, right, step=step)
        if rows is None and columns is None:
            return frame, None
        places = torch.arange(d.numel(), device=d.device).view(self.shape)
        places = places if rows is None else places[rows]
        return frame, (places if columns is None else places[:, columns]).reshape(-1)

    def tensors(self) -> dict[str, Tensor]:
        sides = {"left": self.left, "right": self.right}
        return {
            f"{name}_{part}": value
            for name, side in sides.items()
            if side is not None
            for part, value in (("average", side.average), ("Q", side.Q))
        }


@dataclass(frozen=True)
class Turn:
    """The bases of the parameters of a block in one step; None is a parameter's own.

    Of sharded parameters every process has the bases, and of what is rotated its part.
    """

    block: Block
    frames: tuple[Frame | None, ...]

    @property
    def is_identity(self) -> bool:
        return all(frame is None for frame in self.frames)

    def first_parts(self) -> list[slice]:
        """Where the parameters are whose basis is made of this step's direction.

        In it a direction is diagonal: all else is rounding error, which no average may bring to the size of the rest.
        """
        parts = zip(self.block.parts(), self.frames, strict=True)
        return [part for (_, part), frame in parts if frame is not None and frame.is_first]

    def whole(self, rows: Tensor) -> Tensor:
        """The rows [..., entries of all shards] of which this process has a part: only as such they can be rotated."""
        return rows if self.is_identity else self.block.whole(rows)

    def rotate(self, rows: Tensor) -> Tensor:
        """The rows [..., entries] in the basis of the averages."""
        return self._each(self.whole(rows), Frame.rotate)

    def rotate_back(self, rows: Tensor) -> Tensor:
        return self._each(self.whole(rows), Frame.rotate_back)

    def _each(self, whole: Tensor, verb: Callable[[Frame, Tensor], Tensor]) -> Tensor:
        if self.is_identity:
            return whole
        out = torch.empty_like(whole)
        for (_, part), frame in zip(self.block.parts(whole=True), self.frames, strict=True):
            piece = whole[..., part]
            out[..., part] = piece if frame is None else verb(frame, piece.contiguous())
        return self.block.own(out)

    def see(self, x: Direction, whole: Tensor, *, alone: bool, rows: bool) -> Direction:
        """x in the basis of the averages, with its rows if asked for, or with d ``alone`` as its row; d as a whole."""
        if self.is_identity:
            return x
        d = self._each(whole, Frame.rotate)
        seen = d.unsqueeze(0) if alone else self.rotate(x.rows) if rows else x.rows
        return replace(x, d=d, rows=seen, memo={})

    def after(self, whole: Tensor, options: EigenBasis, step: int) -> tuple[Turn, Tensor | None]:
        """The bases once the step is taken, and where each coordinate of the block was before; None if all stay."""
        if self.is_identity:
            return self, None
        frames: list[Frame | None] = []
        moved: dict[int, Tensor] = {}
        for (_, part), frame in zip(self.block.parts(whole=True), self.frames, strict=True):
            if frame is not None:
                frame, order = frame.after(whole[part].contiguous(), options, step)
                if order is not None:
                    moved[part.start] = order
            frames.append(frame)
        turn = replace(self, frames=tuple(frames))
        if not moved:
            return turn, None
        places = torch.arange(len(whole), device=whole.device)
        for start, order in moved.items():
            places[start : start + len(order)] = start + order
        return turn, places


class Bases:
    """The bases of all parameters; without options, each keeps its own."""

    def __init__(self, options: EigenBasis | None, frames: dict[Tensor, Frame] | None = None) -> None:
        self.options = options
        self.frames = frames or {}

    def turn(self, x: Direction) -> Turn:
        """Those of a block, as they are, or from this first direction; nothing is kept.

        Weights that differ from coordinate to coordinate, as GradDrop's, are those of a parameter's own coordinates.
        """
        none = (None,) * len(x.block.params)
        if self.options is None or x.mask is not None:
            return Turn(x.block, none)
        turned = [self.options.turned(param.shape) for param in x.block.params]
        frames = [self.frames.get(param) for param in x.block.params]
        new = [frame is None and any(sides) for frame, sides in zip(frames, turned, strict=True)]
        if not any(new):
            return Turn(x.block, tuple(frames))
        # A parameter that no gradient has moved yet, as behind the zeros of an adapter, has no eigenvectors.
        moved = [x.rows[:, part].any() | x.d[part].any() for _, part in x.block.parts()]
        moves = x.block.shards.largest(torch.stack(moved).to(x.d.dtype)).tolist()
        d = x.block.whole(x.d)
        for k, (param, part) in enumerate(x.block.parts(whole=True)):
            if new[k] and moves[k]:
                frames[k] = Frame.first(d[part].reshape(matrix_shape(param.shape)), *turned[k])
        return Turn(x.block, tuple(frames))

    def after(self, turn: Turn, whole: Tensor, step: int) -> tuple[Turn, Tensor | None]:
        """Those of a block once the step number ``step`` is taken; see :meth:`Turn.after`."""
        if self.options is None:
            return turn, None
        return turn.after(whole, self.options, step)

    def keep(self, turn: Turn) -> None:
        self.frames.update(
            {p: frame for p, frame in zip(turn.block.params, turn.frames, strict=True) if frame is not None}
        )

    def bytes(self, param: Tensor, dtype: torch.dtype) -> int:
        """What the basis of such a parameter takes: its average and its eigenvectors, per side."""
        if self.options is None:
            return 0
        sides = zip(self.options.turned(param.shape), matrix_shape(param.shape or (1,)), strict=True)
        return sum(2 * size * size * dtype.itemsize for turned, size in sides if turned)

    def state_dict(self, params: Sequence[Tensor]) -> dict[int, dict[str, Any]]:
        frames = {i: self.frames[p] for i, p in enumerate(params) if p in self.frames}
        return {
            i: {**{key: value.clone() for key, value in frame.tensors().items()}, "step": frame.step}
            for i, frame in frames.items()
        }

    def loaded(
        self,
        state: Mapping[int, Mapping[str, Any]],
        params: Sequence[Tensor],
        dtype_of: Callable[[Tensor], torch.dtype],
    ) -> Bases:
        """Those of such a state, in the precision of each parameter; raises ValueError if it is none."""
        frames: dict[Tensor, Frame] = {}
        for index, entry in state.items():
            if self.options is None or not 0 <= index < len(params):
                raise ValueError(f"the checkpoint has a basis of parameter {index}, which has none here")
            param = params[index]
            sides: list[Side | None] = []
            shape = matrix_shape(param.shape)
            for name, turned, size in zip(("left", "right"), self.options.turned(param.shape), shape, strict=True):
                found = [entry.get(f"{name}_{part}") for part in ("average", "Q")]
                shapes = [None if t is None else tuple(t.shape) for t in found]
                wanted = (size, size) if turned else None
                if shapes != [wanted, wanted]:
                    raise ValueError(
                        f"the checkpoint's basis of parameter {index} has shapes {shapes} on its {name}, not {wanted}"
                    )
                average, Q = (
                    None if t is None else t.to(device=param.device, dtype=dtype_of(param), copy=True) for t in found
                )
                sides.append(None if average is None or Q is None else Side(average, Q))
            left, right = sides
            frames[param] = Frame(shape, left, right, step=entry.get("step"))  # an older checkpoint has none
        return Bases(self.options, frames)
