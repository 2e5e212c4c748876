"""What all methods of a comparison share: data, noise, starts, judgement.

Draws differ by their seeds alone, so that every method sees the same ones.
"""

import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any

from ..data import Series, add_noise, make_series
from ..model.estimator import choose_weak_form
from ..model.prepare import filtered
from ..settings.config import TrainConfig, resolve
from ..systems import preset

# Seeds of draw 0; draw n adds n to each.
SEEDS: dict[str, int] = {
    "trajectory": 1000,
    "noise": 2000,
    "method": 3000,
    "starts": 4000,
}
# How noise is scaled, see :func:`~wpnode_ext.data.add_noise`.
NOISE_MODE = "global_rms"


@dataclass(frozen=True)
class Job:
    """One method, noise level and draw of noise, trajectory, weights and starts."""

    method: str
    noise: float
    draw: int


@dataclass(frozen=True)
class Protocol:
    """What all jobs of a comparison share.

    Attributes:
        system: name of one of the paper's systems; or None, and
        series: a user's observations, of which the last `held_back` are judged by, and
        reference: a clean trajectory to judge by instead.
        samples: of the system, its own number by default.
        lyapunov_exponent, threshold: of the valid prediction time.
        starts, horizon: forecasts, and Lyapunov times (units of time without an
            exponent) they run for.
        solver, substeps: of forecasts by fields, and its steps a sample where they are
            fixed.
        options: settings by method.
    """

    system: str | None = None
    series: Series | None = None
    reference: Series | None = None
    samples: int | None = None
    beyond: int = 20_000
    held_back: float = 0.2
    lyapunov_exponent: float | None = None
    threshold: float = 0.3
    starts: int = 30
    horizon: float | None = 12.0
    solver: str = "rk4"
    substeps: int = 1
    options: dict[str, dict[str, Any]] = field(default_factory=dict)

    def data(self, job: Job) -> tuple[Series, Series]:
        """Observations to learn from, and the trajectory forecasts are judged by."""
        if self.system is not None:
            listed = preset(self.system)
            n = self.samples or listed.n_samples
            clean = listed.system.simulate(
                n + self.beyond, listed.dt, seed=SEEDS["trajectory"] + job.draw
            )
            noisy, _ = add_noise(
                clean[:n], job.noise, mode=NOISE_MODE, seed=SEEDS["noise"] + job.draw
            )
            return make_series(noisy, dt=listed.dt), make_series(
                clean[n:], dt=listed.dt
            )
        assert self.series is not None
        series, reference = self.series, self.reference
        if reference is None:
            choice, weak = choose_weak_form(series, TrainConfig(method="weak"))
            config = resolve(TrainConfig(weak=weak))
            series, held = series.split(self.held_back, min_length=config.weak.ell + 1)
            reference = filtered(held, config, choice and choice.q_filter)
        if job.noise:
            v, _ = add_noise(
                series.v, job.noise, mode=NOISE_MODE, seed=SEEDS["noise"] + job.draw
            )
            if series.mask is not None:
                v = v.masked_fill(series.mask, math.nan)
            series = make_series(
                list(v.split(list(series.lengths))),
                dt=series.dt,
                names=series.names,
            )
        return series, reference

    @property
    def n_samples(self) -> int:
        """Observations at hand, those that are held back included."""
        if self.system is not None:
            return self.samples or preset(self.system).n_samples
        assert self.series is not None
        return self.series.n_samples

    def description(self) -> dict[str, Any]:
        """All that decides a row besides its job, in types that JSON has."""
        shared = ("series", "reference", "samples", "options")
        kept = {k: v for k, v in vars(self).items() if k not in shared}
        kept |= {
            "samples": self.n_samples,
            "series": None if self.series is None else digest(self.series),
            "reference": None if self.reference is None else digest(self.reference),
            "noise_mode": NOISE_MODE,
            "seeds": SEEDS,
            "options": self.options,
        }
        # Tuples become lists, as they do in the file this is compared with.
        return json.loads(json.dumps(kept, default=repr))


def digest(series: Series) -> str:
    """A fingerprint of values, times, borders and gaps, whatever file they are from."""
    made = hashlib.sha256(repr((tuple(series.v.shape), series.lengths)).encode())
    for part in (series.v.double(), series.times.double(), series.mask):
        if part is not None:
            made.update(part.contiguous().numpy().tobytes())
    return made.hexdigest()[:16]
