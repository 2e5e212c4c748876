"""Methods to compare with, behind one interface: ``Name(...).fit(v, dt).forecast``."""

from .base import Baseline, Cost, load
from .deepskip import RFM, DeepRFM, DeepSkip, SkipRFM
from .maps import MapBaseline
from .weak_sindy import WeakSINDy, WENDy

__all__ = [
    "RFM",
    "WENDy",
    "Baseline",
    "Cost",
    "DeepRFM",
    "DeepSkip",
    "MapBaseline",
    "SkipRFM",
    "WeakSINDy",
    "load",
]
