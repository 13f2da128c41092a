"""What a trained network makes of a user's files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from torch import nn

from madamoo.medical import stem

from ..problems import Benchmark, build_model, registered
from ..runs import ENDED, RECORD, Config, Damaged, RunFolder, naming, read_record, to_stderr
from ._methods import build_method, is_conditioned

Outcome = Path | ValueError


def predict(
    run: Path, source: Path, out: Path, *, preference: Sequence[float] | None = None
) -> Iterator[tuple[Path, Outcome]]:
    """Each file at ``source``, and what was written for it below ``out``, or why nothing was.

    Args:
        run: the run's folder, with its record and its checkpoint. No Python file that these name is executed.
        source: a file, or a folder with files of the kind that the run's benchmark takes.
        preference: of a run that learned a front.
    """
    folder = RunFolder(run)
    if not folder.record_file.exists():
        raise ValueError(f"RUN {run}: it has no {RECORD}, so it is no folder of a run")
    try:
        record = read_record(folder.record_file)
    except Damaged as error:
        raise ValueError(f"RUN {run}: its {RECORD} cannot be used: {error}") from None
    config = Config(**record["config"])
    if config.benchmark.endswith(".py") or config.model.partition(":")[0].endswith(".py"):
        raise ValueError(f"RUN {run}: it names a Python file, and what only a record names is not executed")
    benchmark = registered(config.benchmark)
    if not source.exists():
        raise ValueError(f"INPUT {source}: there is no such file or folder")
    files = [file for file in benchmark.inputs(source) if not _is_output(file, source, out)]
    if not files:
        raise ValueError(f"INPUT {source}: it holds no file that {benchmark.name} takes")
    base = source if source.is_dir() else source.parent
    if out.resolve() == base.resolve():
        raise ValueError(f"--out {out}: it must be another folder than that of the input, which would be overwritten")
    model = _model(config, benchmark, folder)
    if record["status"] == "diverged" or not all(bool(value.isfinite().all()) for value in model.parameters()):
        raise ValueError(f"RUN {run}: it diverged, so its network is of no use")
    if record["status"] not in ENDED:
        to_stderr(f"{run} has not ended; its network is that of its last checkpoint")
    conditioned = is_conditioned(config.solver)
    if conditioned and preference is None:
        raise ValueError(f"RUN {run}: it learned a front, so give --preference, one number per objective")
    if not conditioned and preference is not None:
        raise ValueError(f"--preference {preference}: the run has one network, for no preference in particular")
    profile = benchmark.profiles[config.profile]
    with naming("preference", preference):
        context: Any = model.at(_normalised(preference)) if conditioned and preference else nullcontext()
    first: dict[Path, Path] = {}  # a.jpg and a.png have one name in the output
    with context:
        for file in files:
            other = first.setdefault(file.parent / stem(file), file)
            if other is file:
                yield file, _predicted(benchmark, model, profile, file, out / file.parent.relative_to(base))
            else:
                yield file, ValueError(f"{file}: it would overwrite what was made of {other}, which has the same name")


def _is_output(file: Path, source: Path, out: Path) -> bool:
    """Whether a file below the folder ``source`` was written by an earlier call, into a folder within it."""
    target = out.resolve()
    return source.resolve() in target.parents and target in file.resolve().parents


def _predicted(benchmark: Benchmark, model: nn.Module, profile: Any, file: Path, folder: Path) -> Outcome:
    try:
        return benchmark.predict(model, profile, file, folder)
    except ValueError as error:
        return error


def _model(config: Config, benchmark: Benchmark, folder: RunFolder) -> Any:
    state = folder.load(config)
    if state is None:
        raise ValueError(
            f"RUN {folder.path}: it has no checkpoint; `madamoo run` keeps it, `madamoo sweep` with --keep-checkpoints"
        )
    model = build_model(config.model, *benchmark.shape(None))
    if is_conditioned(config.solver):
        model = build_method(config.solver, benchmark, config.seed).make(model)
    model.load_state_dict(state["training"]["model"])
    return model.eval()


def _normalised(preference: Sequence[float]) -> list[float]:
    total = sum(preference)
    if total <= 0 or min(preference) < 0:
        raise ValueError("its numbers must not be negative, and one of them positive")
    return [value / total for value in preference]
