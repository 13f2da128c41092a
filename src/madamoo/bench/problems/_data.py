"""Where users keep their data, and where prepared data are cached."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

import torch
from torch import Tensor

from ..runs import Damaged, read_tensors, set_aside, write_tensors

DATA_VARIABLE = "MADAMOO_DATA"
CACHE_VARIABLE = "MADAMOO_CACHE"


class MissingData(FileNotFoundError):
    """The files of a benchmark are not where they were looked for."""


def data_root(given: Path | None = None) -> Path | None:
    """The folder of all data sets: the one given, or the one that ``MADAMOO_DATA`` names, or None."""
    if given is not None:
        return given.expanduser()
    named = os.environ.get(DATA_VARIABLE)
    return Path(named).expanduser() if named else None


def cache_root() -> Path:
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "madamoo"


def find(root: Path | None, name: str, layout: str, *alternatives: Iterable[str]) -> list[Path]:
    """The files or folders of the first alternative that is there whole, as paths below ``root``.

    Example of an alternative: ``("sarcos/sarcos_inv.mat", "sarcos/sarcos_inv_test.mat")``.
    """
    where = f"{root}" if root is not None else f"no folder: give --data-dir, or set {DATA_VARIABLE}"
    absent: list[str] = []
    for alternative in alternatives:
        paths = [] if root is None else [root / part for part in alternative]
        missing = [str(path) for path in paths if not path.exists()]
        if root is not None and not missing:
            return paths
        absent += missing
    detail = f"Not there: {', '.join(absent)}\n" if absent else ""
    raise MissingData(f"The data of {name} were not found.\nLooked in: {where}\n{detail}Expected layout:\n{layout}")


def to_option(path: Path) -> str:
    """A path as it stands among the options of a benchmark, as ``segmentation:images=/a/b``; ``:`` is escaped."""
    return quote(str(path.expanduser().resolve()), safe="/ ")


def from_option(text: str) -> Path:
    return Path(unquote(text))


def cached(
    name: str, sources: Iterable[Path], make: Callable[[], dict[str, Tensor]], key: str = ""
) -> dict[str, Tensor]:
    """What ``make()`` returns, kept on disk until ``sources`` (files) or ``key`` (options, as text) change."""
    text = [key]
    for path in sources:
        facts = path.stat()
        text.append(f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(text).encode()).hexdigest()[:16]
    file = cache_root() / f"{name}-{digest}.pt"
    if file.exists():
        try:
            return read_tensors(file)
        except Damaged as error:
            with suppress(OSError):  # another process may have been faster
                set_aside(file, str(error))
    made = make()
    try:
        write_tensors(file, made)
    except OSError as error:  # a read-only home should not stop a run
        print(f"madamoo: prepared data could not be cached in {file.parent}: {error}", file=sys.stderr)
    return made


def shuffled(count: int, seed: int) -> Tensor:
    """A permutation that depends on the seed alone."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))
