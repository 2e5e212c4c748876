"""What :mod:`closed_form` compares: systems, fields, bars and the paper's figures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wpnode_ext.systems import Lorenz63, System

NOISE = (0.0, 0.01, 0.05, 0.1, 0.2)


@dataclass(frozen=True, eq=False)
class Setting:
    """One system of the tables.

    Attributes:
        system: simulates the data and the reference.
        n, dt: samples to learn from, and their distance.
        beyond: samples after them, where forecasts start.
        exponent, threshold: of the valid prediction time.
        horizon: longest forecast in Lyapunov times, of fields learned without noise and
            with it.
        variants: arguments of :class:`~wpnode_ext.WPNODE` by name, the same for all
            levels of noise.
        bars: valid prediction times to reach, one for every level of noise.
        paper: the best of any method in the paper, likewise.
        paper_kl: its least divergence of the densities, likewise.
        climate: how long forecasts are made and compared; see
            :func:`~wpnode_ext.climate.evaluate_climate`.
    """

    system: System
    n: int
    dt: float
    beyond: int
    exponent: float
    threshold: float
    horizon: tuple[float, float]
    variants: Mapping[str, Mapping[str, Any]]
    bars: tuple[float, ...]
    paper: tuple[float, ...]
    paper_kl: tuple[float, ...]
    climate: Mapping[str, Any] = field(default_factory=dict)


SYSTEMS: dict[str, Setting] = {
    "lorenz63": Setting(
        system=Lorenz63(),
        n=10_000,
        dt=0.01,
        beyond=60_000,
        exponent=0.91,
        threshold=0.3,
        horizon=(20.0, 10.0),
        variants={
            "features": {"field": "features"},
            "features, symmetry": {"field": "features", "symmetry": "-,-,+"},
            "library": {"field": "library"},
            "library, symmetry": {"field": "library", "symmetry": "-,-,+"},
        },
        bars=(10.0, 4.7, 3.4, 2.8, 2.0),
        paper=(4.47, 3.29, 2.90, 2.23, 1.16),
        paper_kl=(0.001, 0.002, 0.001, 0.003, 0.03),
        climate={"members": 200, "duration": 50.0},
    ),
}
