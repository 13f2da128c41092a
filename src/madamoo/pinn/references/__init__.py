"""Solutions computed by standard numerical methods: spectral, finite elements, finite differences.

Needs ``pip install 'madamoo[pinn]'``. Each function takes its resolution, so that convergence can be checked by
refinement, and returns plain arrays.
"""

from ._elements import Dirichlet, Robin, disk_mesh, heat_2d, poisson_2d, poisson_3d, square_mesh
from ._flow import channel_flow, steady_flow
from ._spectral import burgers_2d, etdrk4, gray_scott, heat_with_source, kuramoto_sivashinsky
from ._waves import heterogeneous_wave

__all__ = [
    "Dirichlet",
    "Robin",
    "burgers_2d",
    "channel_flow",
    "disk_mesh",
    "etdrk4",
    "gray_scott",
    "heat_2d",
    "heat_with_source",
    "heterogeneous_wave",
    "kuramoto_sivashinsky",
    "poisson_2d",
    "poisson_3d",
    "square_mesh",
    "steady_flow",
]
