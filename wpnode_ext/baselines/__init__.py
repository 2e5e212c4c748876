"""Methods to compare with, behind one interface: ``Name(...).fit(v, dt).forecast``."""

from .base import Baseline, Cost, load
from .random_maps import RFM, DeepRFM, DeepSkip, SkipRFM
from .maps import MapBaseline
from .methods import make_method, method_names
from .mp_node import MPNODE
from .node import NodeBaseline
from .rafda import RAFDA
from .vf_node import VFNODE
from .weak_sindy import WeakSINDy, WENDy
from .wkrr import WKRR

__all__ = [
    "MPNODE",
    "NodeBaseline",
    "RAFDA",
    "VFNODE",
    "RFM",
    "WENDy",
    "WKRR",
    "Baseline",
    "Cost",
    "DeepRFM",
    "DeepSkip",
    "MapBaseline",
    "SkipRFM",
    "WeakSINDy",
    "load",
    "make_method",
    "method_names",
]
