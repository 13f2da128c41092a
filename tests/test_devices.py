"""MADAMOO_TEST_DEVICE: tensors of the tests land on the device, and code that forgets the device is found out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import devices

HERE = Path(__file__).parent
PROBE = """
import torch, devices, emulated_device
with devices.on_device():
    drawn = torch.rand(3, generator=torch.Generator().manual_seed(0))
    print(torch.ones(2).device.type, drawn.device.type, torch.nn.Linear(2, 2).weight.device.type)
print(torch.equal(drawn.cpu(), torch.rand(3, generator=torch.Generator().manual_seed(0))), torch.ones(2).device.type)
for forgets in (lambda x: x + torch.ones(3), lambda x: x.numpy(), lambda x: x.normal_(generator=torch.Generator())):
    try:
        forgets(drawn)
    except RuntimeError:
        print("refused")
"""

emulation = pytest.mark.skipif(
    not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch cannot emulate a device",
)


def run(*command):
    environment = {**os.environ, "MADAMOO_TEST_DEVICE": "emulated"}
    return subprocess.run([sys.executable, *command], cwd=HERE, env=environment, capture_output=True, text=True)


@emulation
def test_tensors_land_on_the_device_and_forgetting_it_is_refused():
    found = run("-c", PROBE)
    assert found.stdout.split() == ["emulated"] * 3 + ["True", "cpu"] + ["refused"] * 3, found.stderr


@emulation
def test_a_file_of_tests_runs_there():
    found = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_direction.py")
    assert found.returncode == 0, found.stdout


def test_the_files_exist():
    assert all((HERE / file).is_file() for file in devices.FILES)
