"""Methods to compare with, behind one interface: ``Name(...).fit(v, dt).forecast``."""

from .base import METHODS, Baseline, Cost, load
from .maps import MapBaseline
from .methods import make_method
from .mp_node import MPNODE, PersistentMPNODE
from .node import NodeBaseline
from .rafda import RAFDA
from .random_maps import RFM, DeepRFM, DeepSkip, SkipRFM
from .vf_node import VFNODE
from .weak_sindy import WeakSINDy, WENDy
from .wkrr import WKRR

__all__ = [
    "METHODS",
    "MPNODE",
    "RAFDA",
    "RFM",
    "VFNODE",
    "WKRR",
    "Baseline",
    "Cost",
    "DeepRFM",
    "DeepSkip",
    "MapBaseline",
    "NodeBaseline",
    "PersistentMPNODE",
    "SkipRFM",
    "WENDy",
    "WeakSINDy",
    "load",
    "make_method",
]
