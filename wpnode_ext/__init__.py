"""Weak-form learning of dynamical systems from noisy time series."""

from importlib.metadata import version

# Installation
from ._backend import build_info

# Estimator
from .estimator import WPNODE, load

# The data alone: noise, filter, choice of the weak form
from .filtering import filter_series, score_filter

# Objectives
from .losses import weak_loss, weak_residual

# Judgement
from .metrics import kl_divergence, vpt
from .noise import estimate_noise
from .plan import WeakPlan

# Weights
from .quadrature import segment_weights
from .selection import select_weak_form

# Forecasts
from .solvers import rollout
from .strong import strong_loss, weak_penalty_loss

__version__ = version("wpnode_ext")

__all__ = [
    "WPNODE",
    "WeakPlan",
    "build_info",
    "estimate_noise",
    "filter_series",
    "kl_divergence",
    "load",
    "rollout",
    "score_filter",
    "segment_weights",
    "select_weak_form",
    "strong_loss",
    "vpt",
    "weak_loss",
    "weak_penalty_loss",
    "weak_residual",
]
