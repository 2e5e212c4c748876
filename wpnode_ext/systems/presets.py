"""The systems by name, each with the paper's settings: one table for all readers.

Code outside the package adds systems in the same way,
``PRESETS.add("rossler", Preset(system=Rossler(), n_samples=10_000, dt=0.05))``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..common.registry import Registry
from .base import System
from .kuramoto_sivashinsky import KuramotoSivashinsky
from .lorenz import Lorenz63, Lorenz96

# Noise levels at which the paper reports every method.
NOISE_RATIOS = (0.0, 0.01, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class Preset:
    """One row of the paper's table of hyper-parameters; those of Lorenz-63 by default.

    Attributes:
        system: the system that is simulated.
        n_samples, dt: training data.
        p, ell, q: weak form.
        window: samples T of the short trajectories in the weak-penalty loss; the paper
            gives 2 for L63 and 2 to 6 for the others, of which this is the first.
        lam: weight of the strong term.
        strong_windows: T of the strong-form baseline.
        hidden: widths of the hidden layers of the network.
        threshold: error at which a forecast ends, see :func:`wpnode_ext.vpt`.
        structure: `field`, `coordinates` and `symmetry` that comparisons give the
            closed form; not from the paper.
        groups: `group` and `reach` of local random feature maps, and the `jitter` that
            stabilises them, as the paper of these maps has them.
    """

    system: System
    n_samples: int
    dt: float
    p: int = 8
    ell: int = 50
    q: int = 2
    window: int = 2
    lam: float = 0.5
    strong_windows: tuple[int, ...] = (25,)
    hidden: tuple[int, ...] = (200, 200)
    threshold: float = 0.3
    structure: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Any] = field(default_factory=dict)

    @property
    def weak_form(self) -> dict[str, int]:
        """p, ell and q, as arguments."""
        return {"p": self.p, "ell": self.ell, "q": self.q}

    @property
    def lyapunov_exponent(self) -> float:
        """The exponent the paper scales times by."""
        assert self.system.lyapunov_exponent is not None
        return self.system.lyapunov_exponent

    @property
    def computed_lyapunov_exponent(self) -> float:
        """The exponent tangent space gives."""
        assert self.system.computed_lyapunov_exponent is not None
        return self.system.computed_lyapunov_exponent


PRESETS: Registry[Preset] = Registry("system", "systems")
PRESETS.add("lorenz63", Preset(system=Lorenz63(), n_samples=10_000, dt=0.01))
PRESETS.add(
    "lorenz96",
    Preset(
        system=Lorenz96(),
        n_samples=100_000,
        dt=0.01,
        ell=80,
        threshold=0.5,
        # One map for all sites.
        structure={"field": "ring"},
        groups={"group": 2, "reach": 2},
    ),
)
PRESETS.add(
    "kuramoto_sivashinsky",
    Preset(
        system=KuramotoSivashinsky(),
        n_samples=100_000,
        dt=0.25,
        p=16,
        ell=60,
        lam=1.0,
        strong_windows=(25, 50),
        hidden=(400, 400),
        threshold=0.5,
        # Waves, and the symmetries of the equation on a ring.
        structure={
            "field": "library",
            "coordinates": "fourier",
            "symmetry": "shifts + odd_mirror",
        },
        groups={"group": 8, "reach": 1, "jitter": 1e-3},
    ),
)
_SHORT = {"l63": "lorenz63", "l96": "lorenz96", "ks": "kuramoto_sivashinsky"}


def preset(name: str) -> Preset:
    """The preset "lorenz63", "lorenz96" or "kuramoto_sivashinsky"; also "l63" etc."""
    given = name.lower()
    return PRESETS.find(_SHORT.get(given, given), setting="name")
