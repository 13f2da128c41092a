"""Whole Pareto fronts: preferences, models conditioned on them, and how good a front is.

``pip install 'madamoo[pareto]'`` adds what :func:`hypervolume`, :func:`igd_plus` and :func:`draw_fronts` need; the rest
needs torch and numpy only.
"""

from ._conditioned import Conditioned
from ._cosmos import COSMOS
from ._drawing import draw_fronts, front_figure, single_point
from ._fronts import Front, evaluate
from ._hypernetwork import PHN
from ._indicators import hypervolume, igd_plus, monotonicity, non_dominated, spacing, uniformity
from ._merging import merge
from ._palora import PaLoRA
from ._pamal import PaMaL
from ._preferences import lattice, rays
from ._problems import ConcaveFront, ConvexFront, Problem, Quadratics, ThreeQuadratics, TiltedQuadratics
from ._samplers import AnnealedDirichlet, DeterministicAnnealing, Dirichlet, FixedRays, Sampler, Uniform

__all__ = [
    "COSMOS",
    "PHN",
    "AnnealedDirichlet",
    "ConcaveFront",
    "Conditioned",
    "ConvexFront",
    "DeterministicAnnealing",
    "Dirichlet",
    "FixedRays",
    "Front",
    "PaLoRA",
    "PaMaL",
    "Problem",
    "Quadratics",
    "Sampler",
    "ThreeQuadratics",
    "TiltedQuadratics",
    "Uniform",
    "draw_fronts",
    "evaluate",
    "front_figure",
    "hypervolume",
    "igd_plus",
    "lattice",
    "merge",
    "monotonicity",
    "non_dominated",
    "rays",
    "single_point",
    "spacing",
    "uniformity",
]
