"""What processes agree on in a ``backward``, before any of them acts: losses, who reaches what, rows, and failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from ._losses import Losses
from ._processes import Processes
from ._rows import HeadRows, Rows
from ._shards import is_divided, shards_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")
Names = tuple[str, ...] | None


@dataclass(frozen=True)
class Batch:
    """What this process brings to a ``backward``: its losses, the samples behind each, and the preference."""

    losses: Losses
    counts: Tensor | None = None  # [C]; None is one for each loss that is here
    preference: Tensor | None = None

    @property
    def shares(self) -> Tensor:
        """What each loss counts for: [C], zero where it is not here."""
        here = torch.zeros(len(self.losses.roots), dtype=torch.float64, device="cpu")
        here[list(self.losses.here)] = 1.0
        return here if self.counts is None else self.counts * here


class Exchange:
    """All that the processes of a run tell each other; in one process, each verb is the identity.

    A ``backward`` of every process meets the others three times: to agree on losses, on who reaches what (and then the
    rows), and on whether to write ``.grad``. If one of them fails on the way, it says so at the next meeting, and all
    raise. Two replicas under DDP: :meth:`losses` gives both the mean of their losses, :meth:`rows` the mean rows.
    """

    def __init__(self, group: ProcessGroup | None = None) -> None:
        self.group = group

    @property
    def processes(self) -> Processes:
        """Looked up each time: torch.distributed may start after the optimizer was built."""
        return Processes.of(self.group)

    def __deepcopy__(self, memo: dict[int, Any]) -> Exchange:
        return Exchange(self.group)

    def losses(
        self,
        read: Callable[[Names], Batch],
        known: tuple[Names, int | None],
        params: Sequence[Tensor],
        settings: Callable[[], Mapping[str, Any]],
    ) -> Batch:
        """The batch with values and presence that hold for all processes, and its losses weighed for their mean.

        ``read`` reads this process' losses, given the names of the objectives if these are known. As long as nothing is
        known of the objectives, processes first compare names, parameters and ``settings``, which nobody else asks for.
        """
        names, count = known
        processes = self.processes
        if processes.count == 1:
            return _agreed(batch := read(names), batch.shares, None, 1)
        if count is None:
            names, count = self._introduce(read, params, settings)
            known_read = read

            def read(_: Names) -> Batch:
                return known_read(names)

        def tell() -> tuple[Batch, Tensor]:
            batch = read(names)
            here, shares = torch.zeros_like(batch.losses.values), batch.shares
            here[list(batch.losses.here)] = 1.0
            weighed = torch.where(shares > 0, shares * batch.losses.values, 0.0)
            wish = torch.zeros_like(shares) if batch.preference is None else batch.preference
            extra = torch.tensor([float(batch.losses.extra is not None), float(batch.preference is not None)])
            return batch, torch.cat([extra.to(here), here, shares, weighed, wish, wish.square()])

        batch, told = self.meet(tell, 2 + 5 * count, torch.float64)
        (extras, wishes), (here, total, weighed, wish, squares) = told[:2], told[2:].view(5, count)
        spread = processes.count * squares - wish.square()
        if wishes not in (0, processes.count) or bool((spread > 1e-9 * wish.square().clamp_min(1e-300)).any()):
            raise ValueError("preference must be the same in every process: draw it from a generator of the same seed")
        if any(map(is_divided, params)):
            some = [batch.losses.label(i) for i, n in enumerate(here.tolist()) if n not in (0, processes.count)]
            some += ["extra"] if extras not in (0, processes.count) else []
            if some:
                raise ValueError(
                    f"{', '.join(some)}: only some processes have this loss in the batch, and parameters are sharded, "
                    "which takes a backward pass of all of them. Give a connected zero where there are no labels, "
                    "0.0 * output.sum(), and counts= with 0 samples for it"
                )
        return _agreed(batch, total, weighed, processes.count)

    def _introduce(
        self, read: Callable[[Names], Batch], params: Sequence[Tensor], settings: Callable[[], Mapping[str, Any]]
    ) -> tuple[Names, int]:
        """Compare what all processes must have alike. The names are those of all first batches together."""

        def facts() -> dict[str, Any]:
            losses = read(None).losses
            kinds = [f"{tuple(p.shape)} {p.dtype}" for p in params]
            order = None if losses.names is None else list(losses.names)
            return {"names": order, "count": len(losses.roots), "parameters": kinds, **settings()}

        everyone = self._all(facts)
        first, order = everyone[0], [f["names"] for f in everyone]
        if all(names is not None for names in order):
            names = tuple(dict.fromkeys(name for some in order for name in some))
            first = {**first, "names": None, "count": None}
            everyone = [{**f, "names": None, "count": None} for f in everyone]
        else:
            names = None
        for rank, other in enumerate(everyone):
            differs = [key for key in first if other.get(key) != first[key]]
            if differs:
                key = differs[0]
                raise ValueError(
                    f"process {rank} has other {key} than process 0: {other.get(key)!r}, not {first[key]!r}; every "
                    "process must build the same model, optimizer, solver and metric, and give the same objectives"
                )
        for param in params:
            shards = shards_of(param)  # raises for what is not supported
            if is_divided(param) and param.device_mesh.size() != self.processes.count:
                raise ValueError(
                    f"parameters are divided over {param.device_mesh.size()} processes ({shards.count} shards), and "
                    f"the optimizer's group has {self.processes.count}: give process_group=, the group of that mesh"
                )
        return names, len(names) if names is not None else first["count"]

    def meet(self, work: Callable[[], tuple[T, Tensor]], size: int, dtype: torch.dtype) -> tuple[T, Tensor]:
        """Do ``work``, which may fail, and combine the ``size`` numbers that it tells with those of the others.

        Floating-point numbers are summed; of integers, the largest counts. Where one process fails, all raise.
        """
        processes = self.processes
        if processes.count == 1:
            return work()
        error: Exception | None = None
        told = torch.zeros(size, dtype=dtype, device="cpu")
        try:
            result, told = work()
        except Exception as caught:
            error = caught
        sent = torch.cat([told.new_tensor([error is not None]), told.reshape(-1)])
        heard = processes.sum(sent) if dtype.is_floating_point else processes.largest(sent)
        if heard[0]:
            self._raise(error)
        return result, heard[1:]

    def _all(self, work: Callable[[], T]) -> list[T]:
        """What ``work`` gives in each process."""
        error: Exception | None = None
        result: T | None = None
        try:
            result = work()
        except Exception as caught:
            error = caught
        everyone = self.processes.gather((error is not None, result))
        if any(failed for failed, _ in everyone):
            self._raise(error)
        return [found for _, found in everyone]  # type: ignore[misc]

    def _raise(self, error: Exception | None) -> None:
        """The error of this process, or that of the first that has one."""
        said = self.processes.gather(None if error is None else f"{type(error).__name__}: {error}")
        if error is not None:
            raise error
        rank, text = next((rank, text) for rank, text in enumerate(said) if text is not None)
        raise RuntimeError(f"process {rank} of {len(said)} has failed, so all of them stop here: {text}")

    def rows(self, rows: Sequence[Rows]) -> Sequence[Rows]:
        """The mean of the rows of all processes. Rows of sharded parameters are that already."""
        processes = self.processes
        if processes.count == 1:
            return rows
        sent = [k for k, r in enumerate(rows) if not is_divided(r.block.params[0])]
        stacks = [rows[k].stack for k in sent]
        rests = [(k, r.rest) for k in sent if isinstance(r := rows[k], HeadRows) and r.rest is not None]
        means = processes.means([*stacks, *(rest for _, rest in rests)])
        result = [*rows]
        for k, stack in zip(sent, means, strict=False):
            result[k] = replace(result[k], stack=stack)
        for (k, _), rest in zip(rests, means[len(sent) :], strict=True):
            result[k] = replace(result[k], rest=rest)  # type: ignore[arg-type]
        return result


def _agreed(batch: Batch, total: Tensor, weighed: Tensor | None, processes: int) -> Batch:
    """The batch with losses that are means over ``total`` samples; an objective without samples is not there."""
    losses, listed = batch.losses, total.tolist()
    present = tuple(i for i, n in enumerate(listed) if n > 0)
    if not present:
        raise ValueError("losses must hold at least one objective with samples, got counts of zero")
    if weighed is None:
        values = torch.where(total > 0, losses.values, torch.nan)
    else:
        values = torch.where(total > 0, weighed / total, torch.nan)
    factors = [processes * n / listed[i] if listed[i] > 0 else 0.0 for i, n in enumerate(batch.shares.tolist())]
    return replace(batch, losses=losses.agreed(values, present, factors))
