"""Weak-form learning of dynamical systems from noisy time series."""

from importlib.metadata import version

from .closed_form import fit_closed_form, refit_head
from .common.memory import keep_freed_memory
from .coordinates.symmetry import Symmetry
from .data import Series, load_series, make_series
from .metrics import goodness_of_fit, kl_divergence, vpt
from .metrics.climate import evaluate_climate
from .metrics.evaluation import evaluate_field
from .metrics.lyapunov import lyapunov_exponents
from .model.estimator import WPNODE, load
from .ops.backend import build_info
from .smoothing import refine, smooth_states
from .solvers.rollouts import rollout
from .solvers.strong import strong_loss, weak_penalty_loss
from .weak.filter import filter_series, score_filter
from .weak.losses import weak_loss, weak_residual
from .weak.noise import estimate_noise
from .weak.plan import WeakPlan
from .weak.selection import select_weak_form
from .weak.weights import segment_weights

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
