"""Weak-form learning of dynamical systems from noisy time series."""

from importlib.metadata import version

# Installation
from ._backend import build_info

# Objectives
from .losses import weak_loss, weak_residual
from .plan import WeakPlan

# Weights
from .quadrature import segment_weights

__version__ = version("wpnode_ext")

__all__ = [
    "WeakPlan",
    "build_info",
    "segment_weights",
    "weak_loss",
    "weak_residual",
]
