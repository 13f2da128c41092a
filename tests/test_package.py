"""The package as a whole: what importing it costs, what it offers, and that its examples run."""

import doctest
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from importlib import metadata, resources

import pytest
import torch

import madamoo

MODULES = ["madamoo", *(m.name for m in pkgutil.walk_packages(madamoo.__path__, "madamoo."))]
EXTRAS = ("typer", "rich", "sklearn", "matplotlib", "moocore", "plotly", "scipy", "torchvision", "pandas", "cvxpy")
EXTRAS += ("skfem", "netgen", "deepxde", "pytorch_lightning", "accelerate", "transformers", "wandb", "mlflow")
EXTRAS += ("monai", "nibabel", "einops", "PIL", "optuna", "sqlalchemy", "filelock")

PROBE = """
import json, sys
import torch
before = set(sys.modules)
import madamoo
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_import_is_light():
    """torch and numpy only; how long it takes is for benchmarks/ratios.py to say."""
    result = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    found = {module.partition(".")[0] for module in json.loads(result.stdout)}
    assert "madamoo" in found and not found & set(EXTRAS)


def test_medical_imports_monai_only_when_it_is_used():
    probe = PROBE.replace("import madamoo\n", "import madamoo.medical\n")
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    found = {module.partition(".")[0] for module in json.loads(result.stdout)}
    assert "madamoo" in found and not found & set(EXTRAS)


def test_all_names_can_be_imported_without_an_extra():
    probe = PROBE.replace("import madamoo\n", "from madamoo import *\nfrom madamoo.tuning import *\n")
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    found = {module.partition(".")[0] for module in json.loads(result.stdout)}
    assert "madamoo" in found and not found & set(EXTRAS)


def test_public_names():
    assert {"MAdam", "MultiObjective", "PreferenceMetric", "solvers", "tune"} <= set(madamoo.__all__)
    for name in madamoo.__all__:
        assert hasattr(madamoo, name)
    assert madamoo.__version__ == metadata.version("madamoo")
    assert issubclass(madamoo.MAdam, madamoo.MultiObjective)
    assert issubclass(madamoo.MultiObjective, torch.optim.Optimizer)


SIGNATURES = {
    "MAdam": {
        "params": inspect.Parameter.empty,
        "lr": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": 0.0,
        "solver": None,
        "metric": "default",
    },
    "MultiObjective": {"optimizer": inspect.Parameter.empty, "solver": None, "metric": None},
    "MultiObjective.backward": {
        "losses": inspect.Parameter.empty,
        "preference": None,
        "retain_graph": False,
        "scaler": None,
        "features": None,
        "extra": None,
    },
    "PreferenceMetric": {
        "estimator": "auto",
        "beta": None,
        "eps": 1e-16,
        "rampup": ...,  # a number found by measurement
        "ramp": ...,  # likewise
        "bias_correction": True,
        "floor": True,
        "every": 1,
        "dtype": None,
        "seed": 0,
    },
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_the_designs(name):
    item = madamoo
    for part in name.split("."):
        item = getattr(item, part)
    found = {key: p.default for key, p in inspect.signature(item).parameters.items() if key != "self"}
    wanted = SIGNATURES[name]
    assert list(found)[: len(wanted)] == list(wanted)
    for key, default in wanted.items():
        assert default is ... or found[key] == default, key
    rest = {key for key in found if key not in wanted and key != "options"}
    assert all(found[key] is not inspect.Parameter.empty for key in rest)


# fmt: off
DESIGNED = [
    "LS", "RLW", "UW", "DWA", "IMTLL", "IMTLG", "IMTL", "MGDA", "PCGrad", "CAGrad", "GradNorm", "GradVac",
    "GradDrop", "NashMTL", "AlignedMTL", "UPGrad", "FAMO", "DBMTL", "GeometricMean", "Tchebycheff",
    "SmoothTchebycheff", "Preference", "ParetoMTL", "EPO", "FERERO", "COSMOS", "RotoGrad",
]
# fmt: on


def test_solvers_carry_the_designs_names():
    names = madamoo.solvers.available()
    assert {name.lower() for name in DESIGNED} <= set(names)
    assert set(DESIGNED) <= set(madamoo.solvers.__all__)
    for name in names:
        solver = madamoo.solvers.get(name)
        assert isinstance(solver.needs_gram, bool) and isinstance(solver.static, bool)
        taken = list(inspect.signature(solver.weights).parameters)
        assert taken == ["losses", "gram", "preference", *solver.row_statistics]


def test_examples_in_docstrings():
    wrong, attempted = {}, 0
    for name in MODULES:
        if name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name and error.name.partition(".")[0] in EXTRAS:
                continue
            raise
        if not module.__doc__ and not name.rpartition(".")[2].startswith("_"):
            wrong[name] = "says nothing of itself"
        result = doctest.testmod(module)
        attempted += result.attempted
        if result.failed:
            wrong[name] = f"{result.failed} examples fail"
    assert wrong == {}
    assert attempted > 50


SHOWN = ["", ".bench", ".diagnostics", ".medical", ".metric", ".optimizer", ".pareto", ".pinn", ".pinn.cases"]
SHOWN += [".relatives", ".solvers", ".testing", ".tuning"]
# What only the optimizer makes, what needs files of weights, and what a command draws.
MADE_FOR_YOU = {"Averages", "Measured", "DISTS", "LPIPS", "Features", "Map"}


def test_every_public_class_has_an_example():
    """Exceptions and protocols apart; ``Step`` of the optimizer is what diagnostics read."""
    lacking = []
    for module in (importlib.import_module(f"madamoo{name}") for name in SHOWN):
        for name in module.__all__:
            item = getattr(module, name)
            if not inspect.isclass(item) or issubclass(item, BaseException) or getattr(item, "_is_protocol", False):
                continue
            if ">>>" not in (item.__doc__ or "") and name not in MADE_FOR_YOU and item is not madamoo.optimizer.Step:
                lacking.append(f"{module.__name__}.{name}")
    assert lacking == []


def test_type_hints_are_announced():
    assert (resources.files("madamoo") / "py.typed").is_file()
