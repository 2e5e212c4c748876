"""Estimation of states from noisy series and an almost correct model."""

from .evidence import step_error
from .first_states import LocalFit, first_states, is_negligible, local_polynomial
from .gaps import smooth_around_gaps
from .gauss_newton import StepFailed
from .projected import ProjectedStep, projected_step
from .refine import (
    Refinement,
    RefineSettings,
    refine,
    refine_series,
    spread_stretches,
)
from .rounds import Round, Watch, hide_values, is_wide
from .smoother import SmoothedStates, Smoothing, likely_states, smooth_states
from .wide import WideStep, wide_step

__all__ = [
    "LocalFit",
    "ProjectedStep",
    "RefineSettings",
    "Refinement",
    "Round",
    "SmoothedStates",
    "Smoothing",
    "StepFailed",
    "Watch",
    "WideStep",
    "first_states",
    "hide_values",
    "is_negligible",
    "is_wide",
    "likely_states",
    "local_polynomial",
    "projected_step",
    "refine",
    "refine_series",
    "smooth_around_gaps",
    "smooth_states",
    "spread_stretches",
    "step_error",
    "wide_step",
]
