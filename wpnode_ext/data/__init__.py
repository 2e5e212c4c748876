"""Observations: series and their gaps, noise to add."""

from .make import make_series
from .noise import NoiseMode, add_noise, noise_level
from .series import Series

__all__ = ["NoiseMode", "Series", "add_noise", "make_series", "noise_level"]
