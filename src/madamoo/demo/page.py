"""The demo's page: its words, and where its tables and figures stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from madamoo.presentation.page import Facts, Page, Panels, Points, Section
from madamoo.presentation.style import ADAM, MADAM, MSOAP, SOAP
from madamoo.presentation.tables import Table

from . import figures, words
from .physics import DIAGNOSED, OBJECTIVES, POINTS, RESAMPLED, WEIGHTS
from .summary import Results, of


def make_page(results: Results, tables: Mapping[str, Table], findings: Sequence[str], facts: Mapping[str, str]) -> Page:
    """The page of :mod:`madamoo.report`, with the demo's results on it."""
    return Page(
        "madamoo in a minute",
        "Two small problems, trained just now on this machine. With the same seed, every optimizer starts from the "
        "same weights and sees the same data.",
        [
            Section("In short", [Points(findings), words.rules(results)]),
            _fronts(results, tables["fronts"]),
            _physics(results, tables["physics"]),
            _conflict(results),
            _plain(results, tables["plain"]),
            Section("How this was made", [Facts(facts)]),
        ],
    )


def _fronts(results: Results, table: Table) -> Section:
    return Section(
        "One network for every preference",
        [
            "Two handwritten digits overlap in one image. One task reads the left one, the other the right one. The "
            "network has two layers of 12 units, for which the tasks compete. PaMaL trains it for all trade-offs at "
            "once: a preference is drawn for each step, and you choose afterwards. Move the slider.",
            figures.samples(),
            figures.front_slider(results.fronts),
            f"{ADAM} keeps one average of squared gradients for all the preferences it has seen. {MADAM} divides each "
            f"step by the curvature of that step's preference. {SOAP} has {ADAM}'s memory, in the eigenbasis of each "
            f"weight matrix. {MSOAP} takes {SOAP}'s steps here, all but the first: the preference is an input.",
            Points(words.front_findings(results.fronts)),
            table,
        ],
    )


def _physics(results: Results, table: Table) -> Section:
    first = of(results.physics, ADAM)[0].losses
    sizes = [f"{first[name][0]:.3g} ({name})" for name in OBJECTIVES]
    return Section(
        "A physics-informed network",
        [
            "Helmholtz' equation on a square, Δu + u = f with u = 0 on the boundary, has a known solution here, "
            "sin(πx) sin(2πy). A tanh network with three layers of 32 units learns it from the equation's residual at "
            f"{POINTS} points, drawn again every {RESAMPLED} steps, and from the boundary. At first the losses are "
            f"{' and '.join(sizes)}; the boundary has weight {WEIGHTS['boundary']:g}.",
            Panels(figures.physics_curves(results.physics), narrow=True),
            Points(words.physics_findings(results.physics)),
            Panels(figures.physics_maps(results.physics), narrow=True),
            table,
        ],
    )


def _conflict(results: Results) -> Section:
    rows = {name: of(results.physics, name)[0].rows for name in DIAGNOSED}
    return Section(
        "Conflict and sign flips",
        [
            "A probe watched these very runs, the first seed of each. Two things can go wrong for an objective. Its "
            "gradient can point against the other's: a conflict, which the solver must settle. And the optimizer, "
            "which rescales each coordinate, can turn an improvement that the solver's direction promises into a loss: "
            "a sign flip.",
            Points(words.conflict_findings(rows)),
            Panels(figures.conflict(rows)),
        ],
    )


def _plain(results: Results, table: Table) -> Section:
    return Section(
        "Where nothing is to be expected",
        [
            "The same images, a network of two layers of 128 units, constant weights. There is no preference to know, "
            f"and {MADAM} as it comes works in the parameters' own basis: it is {ADAM} on whitened gradients.",
            words.plain_finding(results.plain),
            figures.plain_gains(results.plain),
            table,
        ],
    )
