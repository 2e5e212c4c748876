"""Judgement: how long a forecast holds, and whether its climate is right."""

from .distances import joint_pdf, kernel_density, kl_divergence, marginal_kl, pdf
from .forecast import (
    Boundedness,
    LeadTimeError,
    SolverRow,
    boundedness,
    error_by_lead_time,
    solver_robustness,
)
from .goodness import GoodnessOfFit, goodness_of_fit, ljung_box, shapiro_wilk
from .reconstruction import spectral_distance, state_space_divergence
from .vpt import VPTResult, bootstrap_interval, normalised_error, vpt

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
