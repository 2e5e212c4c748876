"""Valid prediction times of the closed form with refined states, beside the paper's.

    python benchmarks/accuracy/closed_form.py --system lorenz63 --draws 5 --starts 50

Every draw has a trajectory, a noise and starts of its own. The method gets the noisy
samples and their distance, and in the variants named so a symmetry of the system;
settings are the same for all levels of noise. They were chosen with ``--development``,
which has other seeds. Finished cells are kept in ``results/closed_form_<system>.csv``
and not repeated; the table is written after each.
"""

import argparse
import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paper
import tables
import torch

from wpnode_ext import WPNODE, keep_freed_memory
from wpnode_ext.data import add_noise
from wpnode_ext.systems import NOISE_RATIOS, Preset, preset

# Seeds of trajectories, noise, fields and starts; the draw is added.
SEEDS = {False: (1000, 2000, 3000, 4000), True: (91000, 92000, 93000, 94000)}
# Tolerances of forecasts by fields learned without and with noise: the former may hold
# for more than ten Lyapunov times.
TOLERANCE = (1e-10, 1e-6)
# Quantile of Student's t for 95 %, by degrees of freedom.
STUDENT = {1: 12.7, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 9: 2.26}
TEXT = ("variant", "reason", "commit")
JOB = ("variant", "noise", "draw")
COLUMNS: tuple[str, ...] = (
    *JOB,
    "vpt",
    "std",
    "vpt_time",
    "censored",
    "componentwise",
    "segment",
    "kl",
    "kl_truth",
    "bounded",
    "sigma_ratio",
    "first_error",
    "state_error",
    "p",
    "ell",
    "features",
    "steepness",
    "rounds",
    "reason",
    "fit_seconds",
    "processor_seconds",
    "commit",
)


@dataclass(frozen=True, eq=False)
class Setting:
    """One system of the tables.

    Attributes:
        system: name of the paper's preset: data, weak form, threshold and exponent.
        beyond: samples after the training part, where forecasts start.
        horizon: longest forecast in Lyapunov times, of fields learned without noise and
            with it.
        variants: arguments of :class:`~wpnode_ext.WPNODE` by name, the same for all
            levels of noise.
        bars: valid prediction times to reach, one for every level of noise.
        forecasts: solver of the forecasts; see :func:`~wpnode_ext.rollout`.
        climate: length and number of the long forecasts; see
            :func:`~wpnode_ext.evaluate_climate`.
    """

    system: str
    beyond: int
    horizon: tuple[float, float]
    variants: Mapping[str, Mapping[str, Any]]
    bars: tuple[float, ...]
    forecasts: Mapping[str, Any] = field(default_factory=dict)
    climate: Mapping[str, Any] = field(default_factory=dict)

    @property
    def preset(self) -> Preset:
        """The paper's settings."""
        return preset(self.system)


_L96 = preset("lorenz96").weak_form
_KS = {"coordinates": "fourier", **preset("kuramoto_sivashinsky").weak_form}
WAVES = {"symmetry": preset("kuramoto_sivashinsky").structure["symmetry"], **_KS}
# Steep features, which the rows had before the evidence chose their steepness: a fit
# for each steepness would take as long again.
_RING = {"field": {"kind": "ring", "steepness": 1.0}}
# Held-out segments choose from the 34 440 terms of all sites; no symmetry is declared.
_NEEDED = {"closed_form": {"sparse": True}}
# Ten random features, each under all shifts and mirrors of 64 sites, flat in the twenty
# variables they have (see evidence.py); twenty where the data need them.
MAPS = 128
_FLAT = {
    "field": {"kind": "features", "features": 10 * MAPS, "steepness": 0.3},
    "closed_form": {"doublings": 1},
}

SYSTEMS: dict[str, Setting] = {
    "lorenz63": Setting(
        system="lorenz63",
        # Densities of a shorter reference would scatter more than models err.
        beyond=300_000,
        horizon=(20.0, 10.0),
        variants={
            "features": {"field": "features"},
            "features, symmetry": {"field": "features", "symmetry": "-,-,+"},
            "library": {"field": "library"},
            "library, symmetry": {"field": "library", "symmetry": "-,-,+"},
        },
        bars=(10.0, 4.7, 3.4, 2.8, 2.0),
        climate={"members": 200, "duration": 50.0},
    ),
    # One map for all sites commutes with the shifts: the field has the symmetry itself.
    "lorenz96": Setting(
        system="lorenz96",
        beyond=20_000,
        horizon=(12.0, 12.0),
        variants={
            "library, one map for all sites": {"field": "ring_library", **_L96},
            "features, one map for all sites": {"config": _RING, **_L96},
            "library, needed terms": {"config": _NEEDED, "field": "library", **_L96},
        },
        bars=(6.1, 5.0, 4.2, 3.6, 2.8),
        climate={"members": 20, "duration": 50.0},
    ),
    "ks": Setting(
        system="kuramoto_sivashinsky",
        beyond=20_000,
        horizon=(12.0, 10.0),
        variants={
            "library, symmetry": {"field": "library", **WAVES},
            "library": {"field": "library", **_KS},
            "features, symmetry": {"config": _FLAT, **WAVES},
        },
        bars=(5.5, 4.6, 3.9, 3.2, 2.4),
        # Halving these steps changes 0.01 Lyapunov times without noise.
        forecasts={"method": "etdrk4", "step": 0.25 / 8},
        climate={
            "members": 20,
            "duration": 1000.0,
            "length": 22.0,
            "solvers": ("etdrk4",),
            "step": 0.25 / 4,
        },
    ),
}


def trajectory(setting: Setting, seed: int, work: Path) -> torch.Tensor:
    """Simulated once, then read."""
    listed = setting.preset
    path = work / f"{type(listed.system).__name__}_{seed}.pt"
    if not path.exists():
        n = listed.n_samples + setting.beyond
        clean = listed.system.simulate(n, listed.dt, seed=seed)
        work.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        torch.save(clean, temporary)
        os.replace(temporary, path)
    return torch.load(path, weights_only=True)


def run(setting: Setting, job: tuple, arguments: argparse.Namespace) -> tables.Row:
    """Fits and judges one model."""
    variant, noise, draw = job
    path, noises, weights, places = (
        seed + draw for seed in SEEDS[arguments.development]
    )
    listed = setting.preset
    n, dt, exponent = listed.n_samples, listed.dt, listed.lyapunov_exponent
    clean = trajectory(setting, path, arguments.work)
    noisy, sigma = add_noise(clean[:n], noise, mode="global_rms", seed=noises)
    began, worked = time.perf_counter(), time.process_time()
    model = WPNODE(seed=weights, **setting.variants[variant]).fit(noisy, dt)
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    result = model.evaluate(
        clean[n:],
        dt,
        lyapunov_exponent=exponent,
        threshold=listed.threshold,
        starts=arguments.starts,
        horizon=setting.horizon[noise > 0] / exponent,
        seed=places,
        **{"rtol": TOLERANCE[noise > 0], "atol": TOLERANCE[noise > 0]},
        **setting.forecasts,
    )
    climate = model.climate(
        clean[n:],
        dt,
        lyapunov_exponent=exponent,
        exponent=False,
        seed=places,
        **{"solvers": ("rk4_classic",), **setting.climate},
    )
    return {
        **dict(zip(JOB, job, strict=True)),
        "vpt": result.vpt.mean,
        "std": result.vpt.std,
        "vpt_time": result.vpt.mean_time,
        "censored": int(result.vpt.censored.sum()),
        "componentwise": result.other_vpt["componentwise"].mean,
        "segment": result.other_vpt["segment"].mean,
        "kl": climate.kl,
        "kl_truth": climate.kl_halves,
        "bounded": climate.bounded.share,
        **_states(model, clean[:n], sigma),
        "p": model.config_.weak.p,
        "ell": model.config_.weak.ell,
        **_features(model),
        "rounds": model.result_.epochs,
        "reason": model.result_.reason,
        "fit_seconds": seconds,
        "processor_seconds": worked,
        "commit": tables.commit(),
    }


def _features(model: WPNODE) -> dict[str, float]:
    """Chosen number and steepness of random features."""
    chosen = model.config_.field
    if chosen.kind not in ("features", "ring") or chosen.steepness is None:
        return {"features": math.nan, "steepness": math.nan}
    return {"features": chosen.features, "steepness": chosen.steepness}


def _states(
    model: WPNODE, clean: torch.Tensor, sigma: torch.Tensor
) -> dict[str, float]:
    """Estimated over true noise, and errors of the states in units of the noise."""
    found = model.solved_.refinement
    noise = sigma.mean().item()
    if found is None or model.sigma_ is None or noise == 0:
        return dict.fromkeys(("sigma_ratio", "first_error", "state_error"), math.nan)
    assert model.states_ is not None
    first = model.scaler_.inverse(found.first_states)
    return {
        "sigma_ratio": (model.sigma_ / sigma).mean().item(),
        "first_error": _rms(first - clean) / noise,
        "state_error": _rms(model.states_ - clean) / noise,
    }


def _rms(x: torch.Tensor) -> float:
    return x.square().mean().sqrt().item()


def table(name: str, rows: Sequence[tables.Row], starts: int, note: str = "") -> str:
    """A page: mean over draws with its 95 % interval beside the bars and the paper."""
    setting = SYSTEMS[name]
    listed = setting.preset
    draws = 1 + max(int(row["draw"]) for row in rows)
    text = (
        f"N = {listed.n_samples}, dt = {listed.dt:g}, noise of the global RMS, unknown "
        f"to the method. VPT: pooled error <= {listed.threshold:g}, exponent "
        f"{listed.lyapunov_exponent:g}, up to {draws} draws x {starts} clean starts "
        f"beyond the training part, horizon {setting.horizon[1]:g}, without noise "
        f"{setting.horizon[0]:g} (seeds {SEEDS[False]} + draw of trajectory, noise, "
        "field, starts). Mean over the draws and its 95 % interval (Student's t over "
        f"draws){_censored(rows, starts)}. KL: mean over the draws, in brackets that "
        "of two halves of the true trajectory. State error: root mean square over the "
        "noise, first states then refined ones. Seconds of the fit: of the processor, "
        "one thread; in brackets wall time on a busy machine."
    )
    lines = [
        ("the paper's best", [f"{x:.2f}" for x in paper.best(setting.system)]),
        ("bar", [f">= {x:g}" for x in setting.bars]),
        ("the paper's least KL", [f"{x:g}" for x in paper.LEAST_KL[setting.system]]),
    ]
    for variant in setting.variants:
        cells = [
            _cell([r for r in rows if (r["variant"], r["noise"]) == (variant, level)])
            for level in NOISE_RATIOS
        ]
        for label, key in (
            (f"**{variant}**", "vpt"),
            ("- each draw", "draws"),
            ("- in units of time", "time"),
            ("- KL", "kl"),
            ("- state error", "states"),
            ("- seconds", "seconds"),
        ):
            lines.append((label, [cell.get(key, "") for cell in cells]))
    return tables.page(
        f"{name}: valid prediction time in Lyapunov times, closed form",
        text,
        tables.grid("", tables.percent(NOISE_RATIOS), lines),
        note=note,
        commits=[row["commit"] for row in rows],
    )


def _cell(found: Sequence[tables.Row]) -> dict[str, str]:
    """Texts of one variant at one level of noise; none where it was not measured."""
    if not found:
        return {}
    means = [row["vpt"] for row in found]
    bound = ">= " if any(row["censored"] > 0 for row in found) else ""
    text = f"{bound}{tables.mean_of(found, 'vpt'):.2f}"
    if len(means) > 1:
        free = len(means) - 1
        half = STUDENT.get(free, 2.2) * statistics.stdev(means) / math.sqrt(len(means))
        text += f" ± {half:.2f}"
    lost = sum(row["bounded"] < 1 for row in found)
    states = [tables.mean_of(found, key) for key in ("first_error", "state_error")]
    kl = [tables.mean_of(found, key) for key in ("kl", "kl_truth")]
    seconds = [
        tables.mean_of(found, key) for key in ("processor_seconds", "fit_seconds")
    ]
    return {
        "vpt": text,
        "draws": ", ".join(
            f"{'>= ' if row['censored'] > 0 else ''}{row['vpt']:.2f}" for row in found
        ),
        "time": f"{bound}{tables.mean_of(found, 'vpt_time'):.2f}",
        "kl": f"{kl[0]:.4f} ({kl[1]:.4f})"
        + (f", {lost} of {len(found)} with unbounded members" if lost else ""),
        # Data without noise leave nothing to refine.
        "states": "" if math.isnan(states[1]) else f"{states[0]:.2f}, {states[1]:.3f}",
        "seconds": f"{seconds[0]:.0f} ({seconds[1]:.0f})",
    }


def _censored(rows: Sequence[tables.Row], starts: int) -> str:
    """How many forecasts were valid to their end; nothing where none was."""
    valid = int(sum(row["censored"] for row in rows))
    if valid == 0:
        return ""
    return (
        f"; >= where starts were still valid at the horizon, {valid} of "
        f"{len(rows) * starts} in all"
    )


def main() -> None:
    parser = tables.parser_of(__doc__)
    parser.add_argument("--system", choices=list(SYSTEMS), default="lorenz63")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--noise", type=float, nargs="+", default=NOISE_RATIOS)
    parser.add_argument("--variants", nargs="+", help="default all of the system")
    parser.add_argument("--development", action="store_true", help="other seeds")
    parser.add_argument("--note", default="", help="e.g. on rows of another machine")
    parser.add_argument("--work", type=Path, default=Path("runs/accuracy_closed_form"))
    arguments = parser.parse_args()
    keep_freed_memory()
    setting = SYSTEMS[arguments.system]
    suffix = "_development" if arguments.development else ""
    path = arguments.output / f"closed_form_{arguments.system}{suffix}.csv"
    # The first draw of everything comes before a second one.
    jobs = [
        (variant, noise, draw)
        for draw in range(arguments.draws)
        for variant in arguments.variants or setting.variants
        for noise in arguments.noise
    ]
    for job in tables.unfinished(jobs, tables.read_results(path, TEXT), JOB):
        row = run(setting, job, arguments)
        tables.append(path, COLUMNS, row)
        print({k: v if k in TEXT else round(v, 4) for k, v in row.items()}, flush=True)
        write_table(arguments, path)
    print(write_table(arguments, path))


def write_table(arguments: argparse.Namespace, path: Path) -> str:
    """Writes the table of all finished cells, also those of earlier runs."""
    rows = tables.read_results(path, TEXT)
    text = table(arguments.system, rows, arguments.starts, arguments.note)
    tables.write_text(path.with_suffix(".md"), text)
    return text


if __name__ == "__main__":
    main()
