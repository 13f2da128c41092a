"""Parameters that ``fully_shard`` divides over processes (DTensor), and what this process has of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torch import Tensor
from typing_extensions import TypeIs

from ._processes import ONE, Processes

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_divided(x: Tensor) -> TypeIs[DTensor]:
    """Whether it is a DTensor; without an import, which takes its time, since who has one has imported it."""
    module: Any = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(x, module.DTensor)


def local(x: Tensor) -> Tensor:
    """What this process has of a tensor: a view."""
    return x.to_local() if is_divided(x) else x


def division_of(param: Tensor) -> Any:
    """What is equal for parameters that are divided alike; None for one that every process has as a whole."""
    return (param.device_mesh, param.placements) if is_divided(param) else None


def shards_of(param: Tensor) -> Processes:
    """The processes that have a part of the parameter each."""
    if not is_divided(param):
        return ONE
    dims = [k for k, placement in enumerate(param.placements) if not placement.is_replicate()]
    if not dims:
        return ONE
    if len(dims) > 1 or not param.placements[dims[0]].is_shard():
        raise ValueError(
            f"a parameter of shape {tuple(param.shape)} has the placements {param.placements}: parameters may be "
            "sharded along one dimension of the mesh, as fully_shard does it; together with tensor parallelism, or "
            "with partial sums, they are not supported"
        )
    group = param.device_mesh.get_group(dims[0])
    return ONE if param.device_mesh.size(dims[0]) == 1 else Processes(group)


def first_row(param: Tensor) -> int:
    """Which row (index in dimension 0) of the parameter is the first that this process has."""
    shards = shards_of(param)
    if shards is ONE or not param.dim() or _dim(param) != 0:
        return 0
    return min(shards.rank * -(-param.shape[0] // shards.count), param.shape[0])


def as_divided(param: Tensor, part: Tensor) -> Tensor:
    """``part`` as what this process has of a tensor divided like ``param``."""
    if not is_divided(param):
        return part
    return type(param).from_local(
        part, param.device_mesh, param.placements, run_check=False, shape=param.shape, stride=param.stride()
    )


def gathered(param: Tensor, part: Tensor, leading: int = 0) -> Tensor:
    """The whole of a tensor divided like ``param``, beyond ``leading`` more dimensions, on the CPU where it is divided.

    Every process has to call this.
    """
    shards = shards_of(param)
    if shards is ONE:
        return part
    dim = _dim(param)
    return shards.joined(part, dim + leading, param.shape[dim]).cpu()


def own_part(param: Tensor, whole: Tensor, leading: int = 0) -> Tensor:
    """What this process has of a whole tensor that is to be divided like ``param``: a view."""
    shards = shards_of(param)
    if shards is ONE:
        return whole
    dim = _dim(param) + leading
    size = -(-whole.shape[dim] // shards.count)
    start = min(shards.rank * size, whole.shape[dim])
    return whole.narrow(dim, start, min(size, whole.shape[dim] - start))


def _dim(param: Tensor) -> int:
    """The dimension along which a parameter is sharded."""
    assert is_divided(param)
    placements: list[Any] = [*param.placements]
    return next(int(x.dim) for x in placements if x.is_shard())
