"""``python on_emulated_device.py NAME...``: these checks in a process with a second device, as lines of JSON."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

import emulated_device
from madamoo.selftest import CHECKS, run_checks

if __name__ == "__main__":
    torch.set_num_threads(1)
    emulated_device.start()
    for outcome in run_checks({name: CHECKS[name] for name in sys.argv[1:]}, torch.device(emulated_device.NAME)):
        print(json.dumps(asdict(outcome)))
