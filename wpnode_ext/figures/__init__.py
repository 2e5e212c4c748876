"""Figures: functions that return a matplotlib ``Figure`` and neither show nor save it.

Series are time-first tensors or arrays. Needs the extra ``plot``.
"""

from .canvas import save_figure
from .forecasts import (
    attractor,
    comparison,
    densities,
    error_growth,
    forecast,
    space_time,
)
from .learning import filtering, training_curves, window_choice

__all__ = [
    "attractor",
    "comparison",
    "densities",
    "error_growth",
    "filtering",
    "forecast",
    "save_figure",
    "space_time",
    "training_curves",
    "window_choice",
]
