"""Methods to compare with, behind one interface: ``Name(...).fit(v, dt).forecast``."""

from .base import Baseline, Cost, load
from .deepskip import RFM, DeepRFM, DeepSkip, SkipRFM
from .maps import MapBaseline

__all__ = [
    "RFM",
    "Baseline",
    "Cost",
    "DeepRFM",
    "DeepSkip",
    "MapBaseline",
    "SkipRFM",
    "load",
]
