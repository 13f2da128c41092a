"""The demo's page: its words, and where its tables and figures stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from madamoo.presentation.page import Facts, Page, Panels, Points, Section
from madamoo.presentation.style import ADAM, CONTROL_DEFINED, MADAM
from madamoo.presentation.tables import Table
from madamoo.report import diagnosis

from . import figures
from .summary import Results
from .training import DIAGNOSED


def make_page(results: Results, tables: Mapping[str, Table], findings: Sequence[str], facts: Mapping[str, str]) -> Page:
    """The page of :mod:`madamoo.report`, with the demo's results on it."""
    by_preference = {
        run.preference: [r for r in results.fixed if r.preference == run.preference] for run in results.fixed
    }
    diagnosed = {run.contender: run.rows for run in results.runs if run.rows and run.contender in (ADAM, MADAM)}
    return Page(
        "MAdam against Adam, in a minute",
        "Two small problems, every optimizer at the same learning rate, with settings tuned in nobody's favour.",
        [
            Section(
                "Summary",
                [
                    "MAdam divides the direction that a multi-objective solver chose by the curvature of the objective "
                    "it chose, and hands the result to Adam. It is compared with Adam itself and with the "
                    f"{CONTROL_DEFINED}.",
                    Points(findings),
                ],
            ),
            Section(
                "Two tilted quadratics",
                [
                    "Two quadratics in the plane with equal eigenvalues and different stiff directions, so that the "
                    "curvature of the weighted sum turns with the preference. Gradients have no noise. The preference "
                    "switches five times; the averages of every optimizer outlive the switches.",
                    Panels([figures.switching_gap(results.switching), figures.switching_paths(results.switching)]),
                    tables["switching"],
                    "Under a preference that never changes the control is MAdam itself. The star is the optimum.",
                    Panels(
                        [
                            *figures.fixed_paths(by_preference.values()),
                            figures.fixed_distances(results.fixed),
                        ]
                    ),
                    tables["fixed"],
                ],
            ),
            Section(
                "Two-digit images",
                [
                    "Two of scikit-learn's 8×8 digits on one canvas of 12×12, overlapping in the middle; one task "
                    "reads the left digit, the other the right one. No source digit is in both the training and the "
                    "test images. A network with a shared trunk and two heads is trained with three solvers; with the "
                    "same seed, all optimizers get the same images in the same order and the same initial weights.",
                    figures.samples(),
                    tables["digits"],
                    Panels([*figures.accuracy(results.runs), figures.gains(results.runs)]),
                ],
            ),
            Section(
                "Diagnosis",
                [
                    f"What each metric does to the two tasks, measured on the runs with {DIAGNOSED} and the first "
                    "seed. The sections below are those that madamoo report makes of any run.",
                ],
            ),
            *diagnosis.sections(diagnosed),
            Section("How this was made", [Facts(facts)]),
        ],
    )
