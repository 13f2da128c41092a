"""Where the files of the cases are, and where computed solutions are kept."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from .._reference import Reference, read_comsol

FOLDER = "pinnacle"
LAYOUT = """pinnacle/ref/*.dat                 PINNacle's reference solutions and coefficients, as published
pinnacle/regenerated_inputs.npz    coefficient fields and initial values (heat_2d_coef_256, burgers2d_ic_Au_0, ...)
pinnacle/computed/*.npz            solutions computed by this package, where they were put there"""


class MissingFile(FileNotFoundError):
    """A file of a case is not where it was looked for; the message has the layout."""


def _root() -> Path | None:
    named = os.environ.get("MADAMOO_DATA")
    return Path(named).expanduser() if named else None


def _cache() -> Path:
    named = os.environ.get("MADAMOO_CACHE")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "madamoo"


@dataclass(frozen=True)
class Data:
    """The data folder (by default what ``MADAMOO_DATA`` names) and the cache (``MADAMOO_CACHE``).

    Example:
        >>> from pathlib import Path
        >>> Data(root=Path("/nowhere")).has("ref/burgers1d.dat")
        False
    """

    root: Path | None = field(default_factory=_root)
    cache: Path = field(default_factory=_cache)

    def path(self, name: str) -> Path:
        """A file below ``pinnacle/``; raises :class:`MissingFile`."""
        if self.root is not None and (self.root / FOLDER / name).exists():
            return self.root / FOLDER / name
        where = self.root if self.root is not None else "no folder: set MADAMOO_DATA"
        raise MissingFile(f"{FOLDER}/{name} was not found.\nLooked in: {where}\nExpected layout:\n{LAYOUT}")

    def has(self, *names: str) -> bool:
        return self.root is not None and all((self.root / FOLDER / name).exists() for name in names)

    def table(self, name: str) -> NDArray[np.float64]:
        return np.loadtxt(self.path(name), comments="%")

    def comsol(self, name: str, dim: int, outputs: int = 1) -> Reference:
        return read_comsol(self.path(name), dim, outputs)

    def field(self, key: str) -> NDArray[np.float64]:
        """An array of ``regenerated_inputs.npz``."""
        with np.load(self.path("regenerated_inputs.npz")) as arrays:
            found: NDArray[np.float64] = arrays[key]
        return found

    def computed(self, name: str, settings: str, make: Callable[[], Reference]) -> Reference:
        """What ``make()`` returns, from the data folder or the cache where it is there with the same ``settings``."""
        path = self.kept(name, settings)
        if path is not None:
            return load(path)
        made = make()
        target = self._places(name, settings)[-1]
        try:
            save(target, made)
        except OSError as error:  # a read-only home should not stop a run
            print(f"madamoo: the solution could not be kept in {target.parent}: {error}", file=sys.stderr)
        return made

    def kept(self, name: str, settings: str) -> Path | None:
        """Where a computed solution is kept, if it is."""
        return next((path for path in self._places(name, settings) if path.exists()), None)

    def _places(self, name: str, settings: str) -> list[Path]:
        digest = hashlib.sha256(settings.encode()).hexdigest()[:12]
        file = f"{name}-{digest}.npz"
        places = [] if self.root is None else [self.root / FOLDER / "computed" / file]
        return [*places, self.cache / "pinn" / file]


class Inquiry(Data):
    """Data that compute nothing: a solution that would have to be computed raises :class:`NotComputed` instead."""

    def computed(self, name: str, settings: str, make: Callable[[], Reference]) -> Reference:
        path = self.kept(name, settings)
        if path is None:
            raise NotComputed(name)
        raise Computed(path)


class NotComputed(LookupError):
    """This solution has to be computed first."""


class Computed(LookupError):
    """This solution is there, in the file that the error names."""


def save(path: Path, reference: Reference) -> None:
    """Write a reference so that at every moment the file is whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with temporary.open("wb") as file:
            np.savez_compressed(file, points=reference.points.numpy(), values=reference.values.numpy())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def load(path: Path) -> Reference:
    """The reference in a file that :func:`numpy.savez` wrote, with ``points`` [n, dim] and ``values`` [n, outputs]."""
    with np.load(path) as arrays:
        return Reference(torch.from_numpy(arrays["points"]), torch.from_numpy(arrays["values"]))


def on_grid(axes: list[NDArray[np.float64]], values: NDArray[np.float64]) -> Reference:
    """A reference from values [*axes, outputs] on a grid."""
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
    return Reference(torch.from_numpy(grid), torch.from_numpy(values.reshape(len(grid), -1).copy()))


def in_time(points: NDArray[np.float64], times: NDArray[np.float64], values: NDArray[np.float64]) -> Reference:
    """A reference from values [times, points, outputs] at the same points [n, dim] at all times."""
    x = np.concatenate([np.concatenate([points, np.full((len(points), 1), t)], 1) for t in times])
    return Reference(torch.from_numpy(x), torch.from_numpy(values.reshape(len(x), -1).copy()))
