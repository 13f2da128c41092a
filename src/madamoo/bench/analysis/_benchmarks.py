"""The benchmarks that records name, without executing anything that only a record names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..problems import Benchmark, get, registered
from ..runs import Say, to_stderr


def benchmarks_of(
    records: Iterable[dict[str, Any]], own: Sequence[str] = (), say: Say = to_stderr
) -> dict[str, Benchmark]:
    """The benchmarks by the names that records have for them, in alphabetical order.

    A record of a user's own benchmark names a Python file. It is executed only if the user named it too, in ``own``;
    otherwise the benchmark is unknown, which ``say`` gets to know, and its records do not count.
    """
    files = {Path(file).resolve(): file for file in own}
    found: dict[str, Benchmark] = {}
    for name in sorted({record["config"]["benchmark"] for record in records}):
        if (known := _registered(name)) is not None:
            found[name] = known
        elif name in own:
            found[name] = get(name)
        elif name.endswith(".py") and Path(name).resolve() in files:
            found[name] = get(files[Path(name).resolve()])
        else:
            say(
                f"records of {name} are left out: it is no benchmark of this package. A file that only a record names "
                "is not executed; if it is yours, name it with --benchmark FILE.py"
            )
    return found


def _registered(name: str) -> Benchmark | None:
    """That of this package, with the options in the name; None if there is none, or it has no such options."""
    try:
        return registered(name)
    except ValueError:
        return None
