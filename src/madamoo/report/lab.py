"""What the report needs of the lab, and the only place where it meets it: importing it takes the lab's extra.

A record may come from anyone. It never causes an import: what only a benchmark knows, such as which way a metric is
better, is known for the benchmarks of the package alone.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def read_one(path: Path) -> tuple[Record | None, str]:
    """The record in a file, whether its run has ended or not; or why there is none."""
    from madamoo.bench._files import Damaged, read_record

    try:
        return read_record(path, "config", "status"), ""
    except (Damaged, ValueError) as error:
        return None, str(error)


def read_all(path: Path) -> tuple[list[Record], list[str]]:
    """The records of ended runs below a path, and what was left out."""
    from madamoo.bench._records import read_records

    with redirect_stderr(io.StringIO()) as said:  # damaged files are named there
        records = read_records(path)
    return records, [line.removeprefix("madamoo: ") for line in said.getvalue().splitlines()]


def identity(config: Mapping[str, Any]) -> str | None:
    """Equal for equal configurations; None for what is none."""
    from madamoo.bench._records import identity

    try:
        return identity(config)
    except ValueError:
        return None


def is_known(benchmark: str) -> bool:
    """Whether it is one of the package's own, so that no other code is imported for it."""
    from madamoo.bench import available

    return benchmark in available()


def gains(records: Sequence[Record], rate: str) -> list[Any]:
    """What MAdam gains, one cell per solver; the records are of one known benchmark."""
    from madamoo.bench._summary import summarise

    return summarise(records, rate)


def gains_in_words(baseline: str, gains: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """How often MAdam is ahead of a baseline, as a sentence and as numbers."""
    from madamoo.bench._summary import counts, in_words

    found = counts(gains)
    return in_words(baseline, found), found


def fronts(records: Sequence[Record]) -> tuple[Mapping[str, Any], Sequence[float]]:
    """The fronts in records of one known benchmark by name, and the reference of their hypervolume."""
    from madamoo.bench._fronts import fronts_of

    found, reference, _ = fronts_of(records)
    return found, reference
