"""Checks for code that extends madamoo: run them in your own tests.

Example:
    >>> from madamoo import solvers
    >>> from madamoo.testing import check_solver
    >>> check_solver(solvers.MGDA, claims=["simplex", "gram_scale"])
"""

from ._check_solver import CLAIMS, check_solver
from ._steps import Step, hostile_steps, ordinary_steps

__all__ = ["CLAIMS", "Step", "check_solver", "hostile_steps", "ordinary_steps"]
