"""Kill processes of a distributed run at random, again and again, and compare with a run that nobody kills.

``python benchmarks/kills.py --kills 100`` runs examples/fsdp.py under ``torchrun --max-restarts`` until so many
processes have died by SIGKILL: in a backward pass, while they wait for each other, while they write a checkpoint. Every
run that was killed has to end with the parameters, averages and weights of the unbroken run, bit for bit.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any

import torch

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "fsdp.py"
STEPS, PER_RUN, PROCESSES = 60, 10, 2
PAUSE = 0.2  # seconds at most between a step and the kill: about as long as it takes to write a checkpoint


def worker(seed: int, kills: int, longest: float, arguments: list[str]) -> None:
    """The example in one process of the group; one of them will not see the end, for the first ``kills`` starts.

    It dies at most ``longest`` seconds after a step that is less than a checkpoint away.
    """
    from madamoo import MAdam

    start = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    draw = random.Random(1000 * seed + start)
    victim, steps, pause = draw.randrange(PROCESSES), draw.randrange(1, 10), draw.uniform(0.0, longest)
    if start < kills and int(os.environ["RANK"]) == victim:
        step, done = MAdam.step, [0]

        def counting(self: MAdam, *args: Any) -> Any:
            done[0] += 1
            if done[0] == steps and longest:
                threading.Timer(pause, os.kill, (os.getpid(), signal.SIGKILL)).start()
            elif done[0] == steps:
                os.kill(os.getpid(), signal.SIGKILL)
            return step(self, *args)

        MAdam.step = counting  # type: ignore[method-assign]
    sys.argv = [str(EXAMPLE), *arguments]
    runpy.run_path(str(EXAMPLE), run_name="__main__")


def run(folder: Path, seed: int, kills: int, steps: int = STEPS, longest: float = PAUSE) -> int:
    """Do a run in which ``kills`` processes are killed, and tell how many were."""
    launch = ["--standalone", "--nproc-per-node", str(PROCESSES)]
    launch += ["--max-restarts", str(kills), "--monitor-interval", "0.1"]
    script = [str(Path(__file__).resolve()), "--worker", str(seed), "--kills", str(kills), "--pause", str(longest)]
    command = [sys.executable, "-m", "torch.distributed.run", *launch, *script]
    command += ["--folder", str(folder), "--steps", str(steps)]
    # Else the store of the attempt before is used again, and gloo finds the addresses of dead processes in it.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"the run failed:\n{done.stdout}\n{done.stderr}")
    return done.stderr.count("failed (exitcode: -9)")


def end_of(folder: Path) -> dict[str, Any]:
    """All that is in the last checkpoint, whole."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    last = max(p for p in folder.iterdir() if p.suffix != ".part")
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp_to_torch_save(str(last), str(Path(place, "all.pt")))
        state: dict[str, Any] = torch.load(Path(place, "all.pt"), weights_only=False)
    for group in state["optimizer"]["param_groups"]:
        if "multi_objective" in group:
            group["multi_objective"] = torch.load(io.BytesIO(group["multi_objective"]), weights_only=True)
    return state


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def main(kills: int, longest: float) -> None:
    with tempfile.TemporaryDirectory() as place:
        run(Path(place, "unbroken"), 0, 0)
        wanted, done, runs = end_of(Path(place, "unbroken")), 0, 0
        while done < kills:
            folder = Path(place, str(runs))
            died = run(folder, runs, min(PER_RUN, kills - done), longest=longest)
            equal = same(end_of(folder), wanted)
            runs, done = runs + 1, done + died
            print(
                f"run {runs}: {died} killed, {done} in all; the end is {'the same' if equal else 'ANOTHER'}", flush=True
            )
            if not equal or not died:
                raise SystemExit("a run that was killed ended with other numbers, or was not killed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--pause", type=float, default=PAUSE, help="seconds between a step and the kill, at most")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    known, others = parser.parse_known_args()
    if known.worker is None:
        main(known.kills, known.pause)
    else:
        worker(known.worker, known.kills, known.pause, others)
