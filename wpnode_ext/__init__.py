"""Weak-form learning of dynamical systems from noisy time series."""

from importlib.metadata import version

from ._backend import build_info
from .climate import evaluate_climate
from .closed_form import fit_closed_form, refit_head
from .data import Series, load_series, make_series
from .estimator import WPNODE, load
from .evaluation import evaluate_field
from .filtering import filter_series, score_filter
from .losses import weak_loss, weak_residual
from .lyapunov import lyapunov_exponents
from .memory import keep_freed_memory
from .metrics import goodness_of_fit, kl_divergence, vpt
from .noise import estimate_noise
from .plan import WeakPlan
from .quadrature import segment_weights
from .selection import select_weak_form
from .smoothing import refine, smooth_states
from .solvers import rollout
from .strong import strong_loss, weak_penalty_loss
from .symmetry import Symmetry

__version__ = version("wpnode_ext")

__all__ = [
    "WPNODE",
    "Series",
    "Symmetry",
    "WeakPlan",
    "build_info",
    "estimate_noise",
    "evaluate_climate",
    "evaluate_field",
    "filter_series",
    "fit_closed_form",
    "goodness_of_fit",
    "keep_freed_memory",
    "kl_divergence",
    "load",
    "load_series",
    "lyapunov_exponents",
    "make_series",
    "refine",
    "refit_head",
    "rollout",
    "score_filter",
    "segment_weights",
    "select_weak_form",
    "smooth_states",
    "strong_loss",
    "vpt",
    "weak_loss",
    "weak_penalty_loss",
    "weak_residual",
]
