"""Systems with known equations, to learn from and to judge against."""

from .base import System
from .dysts import DystsSystem, dysts_names, from_dysts
from .kuramoto_sivashinsky import KuramotoSivashinsky
from .lorenz import Lorenz63, Lorenz96
from .presets import NOISE_RATIOS, PRESETS, Preset, preset

__all__ = [
    "NOISE_RATIOS",
    "PRESETS",
    "DystsSystem",
    "KuramotoSivashinsky",
    "Lorenz63",
    "Lorenz96",
    "Preset",
    "System",
    "dysts_names",
    "from_dysts",
    "preset",
]
