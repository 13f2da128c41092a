"""From paths to a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from madamoo.presentation.page import Page

from . import folder, pair, single
from .reading import read_single, read_source


def make_page(paths: Sequence[Path], own: Sequence[str] = ()) -> tuple[Page, list[str]]:
    """The page on one run or folder, or on two runs; and what was left out, one line each.

    Args:
        own: files of benchmarks that the user named; no other is executed.
    """
    if len(paths) == 2:
        first, second = map(read_single, paths)
        return pair.page_of(first, second, own), [*first.notes, *second.notes]
    (path,) = paths
    source = read_source(path)
    notes = [*source.notes, *(note for run in source.runs for note in run.notes)]
    return (single.page_of(source.runs[0], own) if source.single else folder.page_of(source, own)), notes
