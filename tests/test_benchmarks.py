"""Every script in benchmarks/ runs, at its smallest: what it measures is in results/, and its command beside it."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "benchmarks"
SMALLEST = {
    "diagnostics_cost": "--blocks 1 --cpu --width 16 --batch 8",
    "feature_gram": "digits --solvers mgda --seeds 0 --epochs 1",
    "forms": "digits:restless --rates 3e-3 --seeds 0 --epochs 1 --forms 'Shampoo of lambda'",
    "front_metrics": "--contenders MSOAP --seeds 1 --epochs 1",
    "memory": "state",
    "pinn_basis": "--contenders Adam --rates 1e-2 --seeds 0 --steps 5",
    "pinn_derivatives": "--points 64 --rounds 1 --cases burgers",
    "processes": "--rounds 1 --width 16",
    "several_rays": "digits pamal --seeds 0 --epochs 1",
    "solve_times": "ls cagrad --counts 2 --seconds 0.01",
    "speed": "--threads 1 --rounds 1 --cpu --only PINN --out here",
    "tune_false_positives": "--searches 1 --budget 2 --seeds 2 --finalists 1",
}
PARTS = {"metric_alone", "problems", "ratios", "speed_plot", "steps", "timing"}  # of speed.py
LONG = {"kills", "pinn_uw"}


def test_all_are_here():
    assert {path.stem for path in ROOT.glob("*.py")} == {*SMALLEST} | PARTS | LONG


@pytest.mark.parametrize("name", SMALLEST)
def test_it_runs(name, tmp_path):
    command = [sys.executable, str(ROOT / f"{name}.py"), *shlex.split(SMALLEST[name])]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip()
