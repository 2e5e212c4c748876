"""The protocol of a comparison: data, noise, starts and judgement of all methods.

Draws differ only by their seeds, so every method sees the same ones. The file
``protocol.json`` beside the results keeps rows of two protocols apart.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..common.files import read_json, write_text
from ..data import Series, add_noise, make_series
from ..model.choose import choose_weak_form
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
# Scale of the noise, see :func:`~wpnode_ext.data.add_noise`.
NOISE_MODE = "global_rms"
PROTOCOL_FILE, RESULTS_FILE = "protocol.json", "runs.csv"


@dataclass(frozen=True)
class Job:
    """One method, noise level and draw of noise, trajectory, weights and starts."""

    method: str
    noise: float
    draw: int


@dataclass(frozen=True)
class Protocol:
    """The part of a comparison that all jobs share.

    Attributes:
        system: name of one of the paper's systems, or None for a user's `series`.
        series: a user's observations.
        reference: clean trajectory that judges forecasts of a user's series; by default
            the last share `held_back` of the series, filtered.
        samples: training samples of a system; its own number by default.
        beyond: samples of a system after those, which judge forecasts.
        held_back: see `reference`.
        lyapunov_exponent, threshold: of the valid prediction time.
        starts: number of forecasts.
        horizon: their length in Lyapunov times, in units of time without an exponent;
            None takes the whole reference.
        solver: of forecasts by fields.
        substeps: steps a sample of solvers with fixed steps.
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
        """Observations to learn from, and the trajectory that judges forecasts."""
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
        """Number of observations, those held back included."""
        if self.system is not None:
            return self.samples or preset(self.system).n_samples
        assert self.series is not None
        return self.series.n_samples

    def description(self) -> dict[str, Any]:
        """All that determines a row besides its job, in JSON's types."""
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
        # Tuples become lists, as in the file that this is compared with.
        return json.loads(json.dumps(kept, default=repr))


def digest(series: Series) -> str:
    """A fingerprint of values, times, borders and gaps, independent of the file."""
    made = hashlib.sha256(repr((tuple(series.v.shape), series.lengths)).encode())
    for part in (series.v.double(), series.times.double(), series.mask):
        if part is not None:
            made.update(part.contiguous().numpy().tobytes())
    return made.hexdigest()[:16]


def agree(folder: Path, protocol: Protocol, methods: Sequence[str]) -> None:
    """Writes ``protocol.json``, or refuses a protocol other than that of the rows.

    Settings of a method are compared only if it was run before. An entry that the file
    lacks counts as the default, and a folder that has results and no file counts as one
    of this protocol with one step a sample.

    Args:
        folder: the folder of ``runs.csv``.
        protocol: of the jobs to run now.
        methods: to run now.

    Raises:
        ValueError: the protocols differ.
    """
    path, wanted = folder / PROTOCOL_FILE, protocol.description()
    given = wanted["options"]
    wanted["options"] = {method: given.get(method, {}) for method in methods}
    known = None
    if path.exists():
        known = _defaults() | read_json(path)
    elif (folder / RESULTS_FILE).exists():
        known = wanted | {"substeps": _defaults()["substeps"]}
    if known is not None:
        changes = list(_differences(known, wanted))
        if changes:
            raise ValueError(
                f"the arguments must be those of the runs in {folder}; got "
                f"{', '.join(changes)}. Repeat those, give another folder with `-o`, "
                "or do all runs again with `--fresh`."
            )
        wanted["options"] = known["options"] | wanted["options"]
        if path.exists() and wanted == known:
            return
    write_text(path, json.dumps(wanted, indent=2, sort_keys=True) + "\n")


def set_aside(folder: Path) -> None:
    """Renames results and protocol to ``*.old``, to make room for new ones."""
    for name in (RESULTS_FILE, PROTOCOL_FILE):
        if (folder / name).exists():
            (folder / name).replace(folder / f"{name}.old")


def _defaults() -> dict[str, Any]:
    return {entry.name: entry.default for entry in fields(Protocol)}


def _differences(known: dict[str, Any], wanted: dict[str, Any]) -> Iterator[str]:
    """Every difference as "name new (there old)"."""
    for name in wanted:
        if name != "options" and wanted[name] != known.get(name):
            yield f"{name} {wanted[name]} (there {known.get(name)})"
    for method, options in wanted["options"].items():
        before = known["options"].get(method, options)
        for key in sorted(before.keys() | options.keys()):
            if before.get(key) != options.get(key):
                now, then = options.get(key, "default"), before.get(key, "default")
                yield f"{method}.{key} {now} (there {then})"
