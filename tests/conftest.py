"""What every test may rely on: one thread, so that runs can be compared bit for bit, and the two usual precisions."""

import os
from pathlib import Path

import pytest
import torch

import devices

torch.set_num_threads(1)

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
if "MADAMOO_DATA" not in os.environ and SHARED.is_dir():
    os.environ["MADAMOO_DATA"] = str(SHARED)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory):
    """No test reads or writes the user's cache of prepared data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MADAMOO_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _device(request: pytest.FixtureRequest):
    """Tests of the core make their tensors on the device that MADAMOO_TEST_DEVICE names."""
    file = request.path.relative_to(Path(__file__).parent).as_posix()
    if devices.DEVICE.type == "cpu" or file not in devices.FILES or request.node.get_closest_marker("cpu"):
        yield
    else:
        with devices.on_device():
            yield


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture
def passes(monkeypatch):
    """Counts the runs of autograd's engine; ``passes()`` gives the count since it was last asked."""
    run, calls = torch.autograd._engine_run_backward, []

    def counted(*args, **kwargs):
        calls.append(1)
        return run(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "_engine_run_backward", counted)

    def count():
        result = len(calls)
        calls.clear()
        return result

    return count
