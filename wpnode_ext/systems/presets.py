"""The paper's experiments by name: system, data, weak form, network, thresholds."""

from dataclasses import dataclass

from .base import System
from .kuramoto_sivashinsky import KuramotoSivashinsky
from .lorenz63 import Lorenz63
from .lorenz96 import Lorenz96

# Noise levels at which the paper reports every method.
NOISE_RATIOS = (0.0, 0.01, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class Preset:
    """One row of the paper's table of hyper-parameters.

    Attributes:
        system: what is simulated.
        n_samples, dt: training data.
        p, ell, q: weak form.
        window: samples T of the short trajectories in the weak-penalty loss; the paper
            gives 2 for L63 and 2 to 6 for the others, of which this is the first.
        lam: weight of the strong term.
        strong_windows: T of the strong-form baseline.
        hidden: widths of the hidden layers of the network.
        threshold: error at which a forecast ends, see :func:`wpnode_ext.vpt`.
    """

    name: str
    system: System
    n_samples: int
    dt: float
    p: int
    ell: int
    q: int
    window: int
    lam: float
    strong_windows: tuple[int, ...]
    hidden: tuple[int, ...]
    threshold: float

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


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="lorenz63",
            system=Lorenz63(),
            n_samples=10_000,
            dt=0.01,
            p=8,
            ell=50,
            q=2,
            window=2,
            lam=0.5,
            strong_windows=(25,),
            hidden=(200, 200),
            threshold=0.3,
        ),
        Preset(
            name="lorenz96",
            system=Lorenz96(),
            n_samples=100_000,
            dt=0.01,
            p=8,
            ell=80,
            q=2,
            window=2,
            lam=0.5,
            strong_windows=(25,),
            hidden=(200, 200),
            threshold=0.5,
        ),
        Preset(
            name="kuramoto_sivashinsky",
            system=KuramotoSivashinsky(),
            n_samples=100_000,
            dt=0.25,
            p=16,
            ell=60,
            q=2,
            window=2,
            lam=1.0,
            strong_windows=(25, 50),
            hidden=(400, 400),
            threshold=0.5,
        ),
    )
}
_SHORT = {"l63": "lorenz63", "l96": "lorenz96", "ks": "kuramoto_sivashinsky"}


def preset(name: str) -> Preset:
    """The preset "lorenz63", "lorenz96" or "kuramoto_sivashinsky"; also "l63" etc."""
    found = PRESETS.get(_SHORT.get(name.lower(), name.lower()))
    if found is None:
        raise ValueError(
            f"`name` must be one of {', '.join(PRESETS)} "
            f"({', '.join(_SHORT)}); got {name!r}."
        )
    return found
