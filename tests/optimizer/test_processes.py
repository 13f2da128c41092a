"""Several processes: gradients are not averaged between them, and the user is warned."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys, warnings
import torch
from madamoo import MAdam

rank, file = int(sys.argv[1]), sys.argv[2]
count = int(sys.argv[3])
torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=count)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    MAdam([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
print([str(w.message) for w in caught])
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("count", [1, 2])
def test_replicas_are_warned_of(count, tmp_path):
    def start(rank):
        command = [sys.executable, "-c", SCRIPT, str(rank), str(tmp_path / "rendezvous"), str(count)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    for process in [start(rank) for rank in range(count)]:
        out, _ = process.communicate()
        assert process.returncode == 0
        assert ("2 processes" in out and "drift apart" in out) if count == 2 else out.strip() == "[]"
