"""The methods of a comparison by name.

Those of :class:`~wpnode_ext.WPNODE` come first. Code outside the package adds its own
with ``METHODS.add("name", MyBaseline)``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..model.estimator import WPNODE
from ..model.forecaster import Forecaster
from ..settings.config import Method, paper_config
from ..systems import preset
from .base import METHODS
from .mp_node import MPNODE, PersistentMPNODE
from .rafda import RAFDA
from .random_maps import RFM, DeepRFM, DeepSkip, SkipRFM
from .vf_node import VFNODE
from .weak_sindy import WeakSINDy, WENDy
from .wkrr import WKRR


@dataclass(frozen=True)
class OwnMethod:
    """A method of the estimator :class:`~wpnode_ext.WPNODE` as an entry.

    Attributes:
        method: "wp", "weak" or "strong", with the paper's settings for its systems, or
            "closed_form", with the paper's weak form and the structure of the system.
    """

    method: Method

    def for_system(
        self, system: str | None, *, seed: int, options: Mapping[str, Any]
    ) -> WPNODE:
        settings: dict[str, Any] = {"seed": seed, "method": self.method}
        if self.method == "closed_form":
            listed = None if system is None else preset(system)
            if listed is not None and listed.structure:
                settings |= {**listed.structure, **listed.weak_form}
        elif system is not None:
            config = paper_config(system, self.method)
            # With one step a sample its losses agree with those of dopri5 to eight
            # digits.
            config.strong.solver = "rk4"
            settings = {"seed": seed, "config": config}
        return WPNODE(**(settings | dict(options)))


for _method in ("wp", "weak", "strong", "closed_form"):
    METHODS.add(_method, OwnMethod(_method))
for _name, _kind in {
    "deeprfm": DeepRFM,
    "deepskip": DeepSkip,
    "mp_node": MPNODE,
    "mp_node_persistent": PersistentMPNODE,
    "rafda": RAFDA,
    "rfm": RFM,
    "skiprfm": SkipRFM,
    "vf_node": VFNODE,
    "weak_sindy": WeakSINDy,
    "wendy": WENDy,
    "wkrr": WKRR,
}.items():
    METHODS.add(_name, _kind)


def make_method(
    name: str,
    *,
    seed: int = 0,
    system: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Forecaster:
    """An unfitted model.

    Args:
        name: one of ``METHODS.names``.
        seed: of all random numbers the model draws.
        system: name of one of the paper's systems, whose settings are then used.
        options: arguments of the class, which replace those settings.
    """
    return METHODS.find(name).for_system(system, seed=seed, options=options or {})
