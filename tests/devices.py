"""The device that tests of the core run on: ``MADAMOO_TEST_DEVICE=cuda make test``; the CPU by default.

Tensors that a test makes land there, as with ``torch.set_default_device``. ``emulated`` is a device for machines
without a GPU (``emulated_device.py``). A test that is about the CPU, or about processes, carries the mark ``cpu``.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode

# The test files that follow the device. Others compare with NumPy or draw on the CPU: they need a look each before they
# can be added, with ``MADAMOO_TEST_DEVICE=emulated pytest tests/...``.
FILES = (
    "gradients/test_rows.py",
    "metric/test_paper.py",
    "optimizer/test_accumulation.py",
    "test_direction.py",
)
NAME = os.environ.get("MADAMOO_TEST_DEVICE", "cpu")

if NAME == "emulated":
    import emulated_device

    emulated_device.start()

DEVICE = torch.device(NAME)
DRAWS = (torch.rand, torch.randn, torch.randint, torch.randperm)


class _DrawnOnTheCpu(TorchFunctionMode):
    """With a generator of the CPU, numbers are drawn there and then moved: the same ones on every device."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        generator = kwargs.get("generator")
        if function not in DRAWS or generator is None or generator.device.type != "cpu" or "device" in kwargs:
            return function(*args, **kwargs)
        return function(*args, **kwargs, device="cpu").to(DEVICE)


@contextmanager
def on_device() -> Iterator[None]:
    """Tensors made inside land on the device of the tests."""
    with DEVICE, _DrawnOnTheCpu():
        yield
