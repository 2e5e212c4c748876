"""Figures: functions return a matplotlib ``Figure``, which none shows or saves.

Series are time-first tensors or arrays. Needs the extra ``plot``.
"""

from .canvas import save_figure
from .forecasts import attractor, densities, error_growth, forecast, space_time
from .learning import filtering, training_curves, window_choice

__all__ = [
    "attractor",
    "densities",
    "error_growth",
    "filtering",
    "forecast",
    "save_figure",
    "space_time",
    "training_curves",
    "window_choice",
]
