"""What users install: what is in the wheel and the source distribution, and that the wheel works with little else.

``make release`` installs the wheel into an empty environment; here all that it does not ask for is hidden instead.
"""

import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import madamoo

ROOT = Path(__file__).resolve().parents[1]
VERSION = madamoo.__version__
INFO = f"madamoo-{VERSION}.dist-info"

# Runs what follows in a process that can import the standard library, what is allowed, and the wheel first of all.
HIDE = """
import sys
from importlib.machinery import PathFinder
wheel, hidden = sys.argv[1], set(sys.argv[2].split(","))
class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else super().find_spec(name, path, target)
sys.meta_path[:] = [Finder if f is PathFinder else f for f in sys.meta_path if "editable" not in repr(f)]
sys.path.insert(0, wheel)
sys.argv[1:] = sys.argv[3:]
import madamoo
assert madamoo.__file__.startswith(wheel), madamoo.__file__
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the wheel and the source distribution."""
    pytest.importorskip("hatchling", reason="needs the build backend")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built, tmp_path_factory):
    """The wheel, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(built / f"madamoo-{VERSION}-py3-none-any.whl") as file:
        file.extractall(folder)
    return folder


def needed(*names):
    """The distributions that these need, themselves included, by their normal names."""
    found, wanted = set(), {name.lower() for name in names}
    while wanted:
        name = wanted.pop().replace("_", "-")
        try:
            requires = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        plain = {r.partition(";")[0] for r in requires if "extra ==" not in r}
        wanted |= {_name(r) for r in plain} - found
    return found


def _name(requirement):
    return "".join(c if c.isalnum() or c in "-_" else " " for c in requirement).split()[0].lower().replace("_", "-")


def run_hidden(wheel, code, allowed, *arguments):
    """``code`` in a process that sees the wheel and the distributions that ``allowed`` need, and no others."""
    allowed = needed(*allowed)
    owners = metadata.packages_distributions()
    hidden = [m for m, of in owners.items() if m != "madamoo" and not {_name(d) for d in of} & allowed]
    assert "sklearn" in hidden and "torch" not in hidden
    command = [sys.executable, "-c", HIDE + code, str(wheel), ",".join(hidden), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    assert {path.name for path in wheel.iterdir()} == {"madamoo", INFO}
    files = [path.relative_to(wheel) for path in wheel.rglob("*") if path.is_file()]
    kinds = {path.suffix for path in files if path.parts[0] == "madamoo"}
    assert kinds <= {".py", ".typed", ".css", ".html", ".js", ".json"}
    assert (wheel / "madamoo" / "py.typed").is_file() and (wheel / INFO / "licenses" / "LICENSE").is_file()
    assert sum((wheel / path).stat().st_size for path in files) < 4e6
    assert not any("test_" in path.name or path.parts[0] == "tests" for path in files)


def test_the_source_distribution_holds_what_builds_and_tests_it(built):
    with tarfile.open(built / f"madamoo-{VERSION}.tar.gz") as file:
        names = {Path(*Path(name).parts[1:]) for name in file.getnames()}
    top = {path.parts[0] for path in names if path.parts}
    assert {"src", "tests", "docs", "pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff"} <= top
    assert not top & {"results", "benchmarks", ".venv", ".ci", "dist"}
    assert (built / f"madamoo-{VERSION}.tar.gz").stat().st_size < 3e6


def test_the_wheel_trains_with_torch_and_numpy_alone(wheel):
    code = """
import torch
from madamoo import MAdam, testing, relatives, diagnostics, pareto, pinn, selftest
p = torch.nn.Parameter(torch.ones(3))
opt = MAdam([p], solver="cagrad")
opt.backward([p.square().sum(), (p - 1).pow(4).sum()])
opt.step()
print(float(p[0]) < 1)
"""
    run = run_hidden(wheel, code, ["torch", "numpy"])
    assert run.stdout.split() == ["True"], run.stderr


def test_without_its_extra_the_command_names_it(wheel):
    run = run_hidden(wheel, "from madamoo.cli import main; main()", ["torch", "numpy"], "--version")
    assert run.returncode == 1 and run.stderr.strip().endswith("pip install 'madamoo[cli]'")


def test_the_command_and_its_selftest_need_the_extra_cli_alone(wheel):
    code = """
from madamoo import cli, selftest
selftest.CHECKS.clear()
selftest.CHECKS["nothing"] = lambda device: None
cli.main()
"""
    version = run_hidden(wheel, code, ["torch", "numpy", "typer", "rich"], "--version")
    assert version.stdout.strip() == f"madamoo {VERSION}", version.stderr
    run = run_hidden(wheel, code, ["torch", "numpy", "typer", "rich"], "selftest", "--device", "cpu", "--no-speed")
    assert run.returncode == 0 and "1 passed, 0 failed" in run.stdout, run.stderr


def test_versions_are_those_that_the_documentation_names():
    """One claim in three places: the package's metadata, its classifiers and the page on versions."""
    project = metadata.metadata("madamoo")
    text = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    torch_bound = next(r for r in metadata.requires("madamoo") if r.startswith("torch>=")).removeprefix("torch>=")
    assert f"torch {torch_bound}" in text
    pythons = [c.rpartition(" ")[2] for c in project.get_all("Classifier") if "Python :: 3." in c]
    assert all(f"{python}" in text for python in pythons) and f">={pythons[0]}" in project["Requires-Python"]
    assert f"## {VERSION}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"version: {VERSION}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
