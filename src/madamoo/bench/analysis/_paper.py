"""The paper, and the figures that it reports, beside ours. ``paper.json`` holds them as printed in its tables."""

from __future__ import annotations

import json
import math
from functools import cache
from importlib.resources import files
from typing import Any

TITLE = "MAdam: Metric-Aware Multi-Objective Adam"
AUTHORS = (
    "Fengbei Liu, Rachit Saluja, Sunwoo Kwak, Ruibo Wang, Ruining Deng, Heejong Kim, Johannes C. Paetzold, "
    "Mert R. Sabuncu"
)
CITATION = f"{AUTHORS}: {TITLE}"
ABLATION = "ablation"
STANDS_FOR = {"sarcos-small": "sarcos"}  # shown with a mark: the paper's figure is of the full data


def figure(benchmark: str, solver: str, metric: str) -> dict[str, Any] | None:
    """The paper's ``adam`` and ``madam``, each [mean, standard deviation or None], and ``of`` which benchmark they are.

    None where the paper reports nothing, NaN where it reports a run that did not converge. A solver with options, such
    as ``cagrad:c=0.2``, is not the paper's.

    Example:
        >>> figure("multimnist", "ls", "avg_acc")
        {'adam': [94.08, 0.37], 'madam': [95.11, 0.32], 'of': 'multimnist'}
    """
    of = STANDS_FOR.get(benchmark, benchmark)
    if of == ABLATION:
        return None
    found = _figures().get(of, {}).get(solver, {}).get(metric)
    if found is None:
        return None
    pairs = {name: [math.nan if found[name][0] is None else found[name][0], found[name][1]] for name in found}
    return {**pairs, "of": of}


def ablation(benchmark: str) -> dict[str, dict[str, list[float]]] | None:
    """The paper's ablation under LS: variant of MAdam -> metric -> [mean, standard deviation]."""
    return _figures()[ABLATION].get(STANDS_FOR.get(benchmark, benchmark))


@cache
def _figures() -> dict[str, Any]:
    return json.loads(files(__package__).joinpath("paper.json").read_text(encoding="utf-8"))
