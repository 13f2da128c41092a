"""The table of the solvers' page says what the classes say."""

import re
from pathlib import Path

import torch

from madamoo import solvers
from madamoo.testing import ordinary_steps

PAGE = Path(__file__).parents[2] / "docs" / "solvers.md"
ROWS = {
    cells[0].strip("`").lower(): cells[1:]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if re.match(r"\| `", line)
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
}


def test_every_solver_has_a_line():
    assert sorted(ROWS) == solvers.available()


def test_every_line_is_true():
    for name in solvers.available():
        check_line(name)


def check_line(name):
    family, needs, passes, simplex, of_the_step, reference = ROWS[name]
    solver = solvers.get(name)
    assert family == solver.family
    assert ("Gram matrix" in needs) == solver.needs_gram
    assert ("preference" in needs) == solver.uses_preference
    assert passes == ("C" if solver.needs_rows else "1")
    assert (of_the_step == "yes") == solver.uses_losses
    found = torch.stack([step.solve(solver) for step in ordinary_steps(4)])
    on_simplex = bool((found >= 0).all()) and torch.allclose(found.sum(1), torch.ones(5).double())
    assert on_simplex or simplex == "no"
    for link in re.findall(r"\((https://[^)]+)\)", reference):
        assert link in (solver.__doc__ or "")
