"""Figures: every function returns a matplotlib ``Figure``; none shows or saves it.

Series are time-first tensors or arrays. Needs the extra ``plot``.
"""

from .forecasts import attractor, densities, error_growth, forecast, space_time
from .learning import filtering, training_curves, window_choice

__all__ = [
    "attractor",
    "densities",
    "error_growth",
    "filtering",
    "forecast",
    "space_time",
    "training_curves",
    "window_choice",
]
