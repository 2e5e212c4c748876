"""Judgement: how long a forecast holds, and whether its climate is right."""

from .climate import Boundedness, SolverRow, boundedness, solver_robustness
from .distances import (
    joint_pdf,
    kernel_density,
    kl_divergence,
    marginal_kl,
    pdf,
    spectral_distance,
    state_space_divergence,
)
from .goodness import GoodnessOfFit, goodness_of_fit, ljung_box, shapiro_wilk
from .vpt import (
    LeadTimeError,
    VPTResult,
    bootstrap_interval,
    error_by_lead_time,
    normalised_error,
    vpt,
)

__all__ = [
    "Boundedness",
    "GoodnessOfFit",
    "LeadTimeError",
    "SolverRow",
    "VPTResult",
    "boundedness",
    "bootstrap_interval",
    "error_by_lead_time",
    "goodness_of_fit",
    "joint_pdf",
    "kernel_density",
    "kl_divergence",
    "ljung_box",
    "marginal_kl",
    "normalised_error",
    "pdf",
    "shapiro_wilk",
    "solver_robustness",
    "spectral_distance",
    "state_space_divergence",
    "vpt",
]
