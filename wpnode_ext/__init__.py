"""Weak-form learning of dynamical systems from noisy time series."""

from importlib.metadata import version

# Installation
from ._backend import build_info

# Weights
from .quadrature import segment_weights

__version__ = version("wpnode_ext")

__all__ = [
    "build_info",
    "segment_weights",
]
