"""Noisy series and a model that is almost right: the states between the two."""

from .local_polynomial import LocalFit, first_states, local_polynomial
from .projected import ProjectedStep, projected_step
from .refine import NEGLIGIBLE_NOISE, Refinement, Round, refine
from .smoother import SmoothedStates, smooth_states

__all__ = [
    "NEGLIGIBLE_NOISE",
    "LocalFit",
    "ProjectedStep",
    "Refinement",
    "Round",
    "SmoothedStates",
    "first_states",
    "local_polynomial",
    "projected_step",
    "refine",
    "smooth_states",
]
