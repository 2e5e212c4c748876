"""Valid prediction times of the closed form with refined states, beside the paper's.

    python benchmarks/accuracy/closed_form.py --system lorenz63 --draws 5 --starts 50

Every draw has a trajectory, a noise and starts of its own. Nothing is told to the
method but the noisy samples and their distance, and in the variants named so a symmetry
of the system; settings are the same for all levels of noise. They were chosen with
``--development``, which has other seeds. Finished cells are kept in
``results/closed_form_<system>.csv`` and not repeated; the table is written after each.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from closed_form_systems import NOISE, SEEDS, SYSTEMS, Setting
from closed_form_table import table
from finished import append, read_results

from wpnode_ext import keep_freed_memory
from wpnode_ext.data import add_noise
from wpnode_ext.model.estimator import WPNODE

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from bench import commit, write_text  # noqa: E402

# Tolerances of forecasts by fields learned without and with noise: the former may hold
# for more than ten Lyapunov times.
TOLERANCE = (1e-10, 1e-6)
TEXT = ("variant", "reason", "commit")
COLUMNS: tuple[str, ...] = (
    "variant",
    "noise",
    "draw",
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
Job = tuple[str, float, int]


def trajectory(setting: Setting, seed: int, work: Path) -> torch.Tensor:
    """Simulated once, then read."""
    path = work / f"{type(setting.system).__name__}_{seed}.pt"
    if not path.exists():
        n = setting.n + setting.beyond
        clean = setting.system.simulate(n, setting.dt, seed=seed)
        work.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        torch.save(clean, temporary)
        os.replace(temporary, path)
    return torch.load(path, weights_only=True)


def run(
    setting: Setting, job: Job, starts: int, development: bool, work: Path
) -> dict[str, Any]:
    """Fits and judges one model."""
    variant, noise, draw = job
    path, noises, weights, places = (seed + draw for seed in SEEDS[development])
    n, dt = setting.n, setting.dt
    clean = trajectory(setting, path, work)
    noisy, sigma = add_noise(clean[:n], noise, mode="global_rms", seed=noises)
    began, worked = time.perf_counter(), time.process_time()
    model = WPNODE(seed=weights, **setting.variants[variant]).fit(noisy, dt)
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    result = model.evaluate(
        clean[n:],
        dt,
        lyapunov_exponent=setting.exponent,
        threshold=setting.threshold,
        starts=starts,
        horizon=setting.horizon[noise > 0] / setting.exponent,
        seed=places,
        **{"rtol": TOLERANCE[noise > 0], "atol": TOLERANCE[noise > 0]},
        **setting.forecasts,
    )
    climate = model.climate(
        clean[n:],
        dt,
        lyapunov_exponent=setting.exponent,
        exponent=False,
        seed=places,
        **{"solvers": ("rk4_classic",), **setting.climate},
    )
    return {
        "variant": variant,
        "noise": noise,
        "draw": draw,
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
        "commit": commit(),
    }


def _features(model: WPNODE) -> dict[str, float]:
    """Number and steepness of random features, as they were chosen."""
    field = model.config_.field
    if field.kind not in ("features", "ring") or field.steepness is None:
        return {"features": math.nan, "steepness": math.nan}
    return {"features": field.features, "steepness": field.steepness}


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


def jobs(arguments: argparse.Namespace, done: list[dict[str, Any]]) -> Iterator[Job]:
    """What is left to do, a first draw of everything before a second one."""
    finished = {(r["variant"], r["noise"], int(r["draw"])) for r in done}
    variants = arguments.variants or SYSTEMS[arguments.system].variants
    for draw in range(arguments.draws):
        for variant in variants:
            for noise in arguments.noise:
                if (variant, noise, draw) not in finished:
                    yield variant, noise, draw


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--system", choices=list(SYSTEMS), default="lorenz63")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--noise", type=float, nargs="+", default=NOISE)
    parser.add_argument("--variants", nargs="+", help="default all of the system")
    parser.add_argument(
        "--development", action="store_true", help="other seeds; the table is printed"
    )
    parser.add_argument("--note", default="", help="on rows of another machine, say")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--work", type=Path, default=Path("runs/accuracy_closed_form"))
    arguments = parser.parse_args()
    keep_freed_memory()
    setting = SYSTEMS[arguments.system]
    arguments.output.mkdir(parents=True, exist_ok=True)
    stem = arguments.output / f"closed_form_{arguments.system}"
    if arguments.development:
        stem = stem.with_name(stem.name + "_development")
    path = stem.with_suffix(".csv")
    for job in list(jobs(arguments, read_results(path, TEXT))):
        row = run(setting, job, arguments.starts, arguments.development, arguments.work)
        append(path, COLUMNS, row)
        print({k: v if k in TEXT else round(v, 4) for k, v in row.items()}, flush=True)
        write_table(arguments, stem)
    print(write_table(arguments, stem))


def write_table(arguments: argparse.Namespace, stem: Path) -> str:
    """The table of all finished cells, also those of earlier runs."""
    rows = read_results(stem.with_suffix(".csv"), TEXT)
    text = table(arguments.system, rows, arguments.starts, arguments.note)
    write_text(stem.with_suffix(".md"), text)
    return text


if __name__ == "__main__":
    main()
