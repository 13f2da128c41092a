"""Which solver with which metric: rooms know nothing of each other, so each is tried, not each with each."""

from itertools import cycle

import torch

from madamoo import solvers

ESTIMATORS = (None, "pair", "full", "diagonal", "separable", "marginal")
COVER = [("ls", "collapsed"), ("rlw", "pair"), ("graddrop", "full"), *zip(solvers.available(), cycle(ESTIMATORS))]
"""Every solver, each with one of the estimators."""
KINDS = [
    ("ls", "collapsed"),  # constant weights, one pass
    ("dwa", "marginal"),  # weights that drift, one pass
    ("uw", "full"),  # a learning solver, rows for the metric
    ("rlw", "pair"),  # two generators, rows of some objectives
    ("cagrad", "diagonal"),  # rows for the solver, weights of one on heads
    ("graddrop", "separable"),  # a weight for each coordinate
    ("epo", None),  # a preference, and a Gram matrix with heads in it
]
"""One solver of each kind, and every estimator."""
BY_LOSS = [n for n in solvers.available() if solvers.get(n).uses_losses and not solvers.get(n).needs_rows]
"""Their weights are known with the last micro-batch of a step only."""


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=1e-2)
