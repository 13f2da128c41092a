"""A second device where there is no GPU: its tensors are computed on the CPU, and obey the rules of a GPU.

A tensor of the CPU next to one of the device, a generator of the CPU that fills a tensor of the device, ``numpy()`` of
such a tensor: each is an error, as with CUDA. So the tests find code that forgets the device, without having one. What
it cannot find is wrong arithmetic of a real device; ``madamoo selftest`` looks for that.
It has neither a generator nor autocast.
"""

import copy

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

NAME = "emulated"
aten = torch.ops.aten
MOVES = (aten.copy_.default, aten._to_copy.default, aten._foreach_copy_.default)
# CUDA takes indices of the CPU too.
INDEXES = (aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default)
# These make the tensor on the CPU and move it where no dispatch mode can see it.
MADE_INSIDE = (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor)


class Emulated(torch.Tensor):
    """A tensor of the device; ``inner`` has its values."""

    inner: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner):
        result = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=f"{NAME}:0",
        )
        result.inner = inner
        return result

    def data_ptr(self):
        return self.inner.data_ptr()

    def tolist(self):
        return self.inner.tolist()

    def __repr__(self):
        return f"{self.inner!r} on {self.device}"

    def __reduce_ex__(self, protocol):
        return _restored, (self.inner, self.requires_grad, isinstance(self, torch.nn.Parameter))

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            make, options = self.__reduce_ex__(2)
            memo[id(self)] = make(options[0].clone(), *options[1:])
            memo[id(self)].grad = copy.deepcopy(self.grad, memo)
        return memo[id(self)]

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


def _restored(inner, requires_grad, is_param):
    result = Emulated(inner)
    return torch.nn.Parameter(result, requires_grad) if is_param else result.requires_grad_(requires_grad)


class _Dispatch(TorchDispatchMode):
    """For calls without a tensor of the device among their arguments, such as ``torch.zeros(3, device=...)``."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


class _Made(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function not in MADE_INSIDE:
            return function(*args, **kwargs)
        device = kwargs.pop("device", None)
        if function is torch.Tensor.new_tensor:
            like, *args = args
            device, kwargs["dtype"] = device or like.device, kwargs.get("dtype") or like.dtype
            function = torch.tensor
        elif function is torch.as_tensor and isinstance(args[0], torch.Tensor):
            return args[0].to(device or args[0].device, kwargs.get("dtype") or args[0].dtype)
        wants_grad = kwargs.pop("requires_grad", False)
        made = function(*args, **kwargs, device="cpu")
        return (made if device is None else made.to(device)).requires_grad_(wants_grad)


def _is_emulated(device):
    return torch.device(device).type == NAME


def _run(function, args, kwargs):
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    here = [x for x in tensors if isinstance(x, Emulated)]
    if kwargs.get("device") is not None:
        lands = _is_emulated(kwargs["device"])
        kwargs = {**kwargs, "device": torch.device("cpu")}
    else:
        lands = isinstance(tensors[0], Emulated) if function in MOVES else bool(here)
    if here and function not in MOVES:
        _check_devices(function, tensors)
    if kwargs.get("generator") is not None and lands:
        raise RuntimeError(f"{function}: Expected a '{NAME}' device type for generator but found 'cpu'")
    out = function(*tree_map(_inner, args), **tree_map(_inner, kwargs))
    if here and torch.Tag.inplace_view in function.tags:  # such as squeeze_, which matmul calls: the outside follows
        with no_dispatch():
            function(*args, **kwargs)
    known = {id(x.inner): x for x in here}  # what is changed in place stays the same object

    def outer(x):
        return known.get(id(x), Emulated(x) if lands else x) if isinstance(x, torch.Tensor) else x

    return tree_map(outer, out)


def _check_devices(function, tensors):
    """A single number of the CPU may stand beside tensors of the device; an array may not."""
    if function in INDEXES:
        tensors = tensors[:1]
    if any(x.dim() > 0 and not isinstance(x, Emulated) for x in tensors):
        raise RuntimeError(f"{function}: Expected all tensors to be on the same device, found {NAME}:0 and cpu")


def _inner(x):
    return x.inner if isinstance(x, Emulated) else x


def start() -> None:
    """Give torch the device, for the rest of the process."""
    from torch.utils import backend_registration  # which has this since torch 2.10

    class Module(backend_registration._DummyBackendModule):
        def synchronize(self, device=None):
            """All is done when a call returns."""

        def get_rng_state(self, device=None):
            """There is no generator, but torch.random.fork_rng asks."""
            return torch.empty(0)

        def set_rng_state(self, state, device=None):
            pass

    backend_registration._setup_privateuseone_for_python_backend(NAME, Module())
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # net.to(dtype): param.data has no inner tensor
    torch.serialization.add_safe_globals([_restored])
    _Made().__enter__()
    _Dispatch().__enter__()
