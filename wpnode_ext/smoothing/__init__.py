"""Noisy series and a model that is almost right: the states between the two."""

from .first_states import LocalFit, first_states, is_negligible, local_polynomial
from .gaps import smooth_around_gaps
from .held_out import Watch, hide_values
from .process_noise import step_error
from .projected import ProjectedStep, projected_step
from .refine import Refinement, refine
from .rounds import Round, is_wide
from .smoother import SmoothedStates, smooth_states
from .wide import WideStep, wide_step

__all__ = [
    "LocalFit",
    "ProjectedStep",
    "Refinement",
    "Round",
    "SmoothedStates",
    "Watch",
    "WideStep",
    "first_states",
    "hide_values",
    "is_negligible",
    "is_wide",
    "local_polynomial",
    "projected_step",
    "refine",
    "smooth_around_gaps",
    "smooth_states",
    "step_error",
    "wide_step",
]
