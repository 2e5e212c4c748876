"""How steep random features should be, chosen from noisy data alone.

    python benchmarks/accuracy/steepness.py [--noise 0.01 0.05 0.2]

Ten random features under the 128 shifts and mirrors of Kuramoto-Sivashinsky are fitted
to noisy samples with the development seeds of :mod:`closed_form`, for several values of
``field.steepness``. Each field forecasts the noisy samples that follow, smoothed by
local polynomials, which know no model; the steepness with the longest valid forecasts
over all levels is the one the tables use. Finished fits are kept in
``results/steepness_ks.csv`` and not repeated; the table is ``results/steepness_ks.md``.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from closed_form import SEEDS, trajectory
from closed_form_systems import FAMILIES, SYSTEMS, WAVES, Setting
from finished import append, read_results

from wpnode_ext import keep_freed_memory
from wpnode_ext.data import add_noise, make_series
from wpnode_ext.estimator import WPNODE
from wpnode_ext.smoothing import first_states
from wpnode_ext.training import TrainConfig
from wpnode_ext.training.config import FieldConfig

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from bench import commit, provenance, write_text  # noqa: E402

SAMPLES, HELD_OUT, STARTS, HORIZON = 20_000, 20_000, 40, 4.0
STEEPNESS = (1.0, 0.3, 0.1)
COLUMNS = ("steepness", "noise", "vpt", "cpu_seconds", "commit")


def run(setting: Setting, steepness: float, noise: float, work: Path) -> dict[str, Any]:
    """Fits one field and judges it by what is known of the samples after its own."""
    path, noises, weights, places = SEEDS[True]
    noisy, _ = add_noise(
        trajectory(setting, path, work), noise, mode="global_rms", seed=noises
    )
    field = FieldConfig(kind="features", features=FAMILIES, steepness=steepness)
    began = time.process_time()
    model = WPNODE(seed=weights, config=TrainConfig(field=field), **WAVES)
    model.fit(noisy[:SAMPLES], setting.dt)
    busy = time.process_time() - began
    held_out = make_series(noisy[SAMPLES : SAMPLES + HELD_OUT], dt=setting.dt)
    found = model.evaluate(
        first_states(held_out).states,
        setting.dt,
        lyapunov_exponent=setting.exponent,
        threshold=setting.threshold,
        starts=STARTS,
        horizon=HORIZON / setting.exponent,
        seed=places,
        **setting.forecasts,
    )
    return {
        "steepness": steepness,
        "noise": noise,
        "vpt": found.vpt.mean,
        "cpu_seconds": busy,
        "commit": commit(),
    }


def table(rows: list[dict[str, Any]]) -> str:
    levels = sorted({row["noise"] for row in rows})
    lines = [
        "# Steepness of random features for Kuramoto-Sivashinsky",
        "",
        f"{FAMILIES} features in families of 128 maps, {SAMPLES} noisy samples, one "
        f"development draw. Valid prediction times (at most {HORIZON:g}) of {STARTS} "
        "forecasts of the noisy samples that follow, from and against their local "
        "polynomials: nothing clean is seen.",
        "",
        "| steepness | "
        + " | ".join(f"{100 * level:g} %" for level in levels)
        + " | mean |",
        "| --- |" + " --- |" * (len(levels) + 1),
    ]
    for steepness in STEEPNESS:
        own = {r["noise"]: r["vpt"] for r in rows if r["steepness"] == steepness}
        cells = [f"{own[level]:.2f}" if level in own else "" for level in levels]
        mean = f"{statistics.fmean(own.values()):.2f}" if own else ""
        lines.append(f"| {steepness:g} | {' | '.join(cells)} | {mean} |")
    made_with = provenance(torch.device("cpu"), [row["commit"] for row in rows])
    return "\n".join([*lines, "", f"*{made_with}*", ""])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--noise", type=float, nargs="+", default=(0.01, 0.05, 0.2))
    parser.add_argument("--work", type=Path, default=Path("runs/accuracy_closed_form"))
    arguments = parser.parse_args()
    keep_freed_memory()
    path = HERE / "results" / "steepness_ks.csv"
    for noise in arguments.noise:
        for steepness in STEEPNESS:
            done = read_results(path, ("commit",))
            if any((r["steepness"], r["noise"]) == (steepness, noise) for r in done):
                continue
            row = run(SYSTEMS["ks"], steepness, noise, arguments.work)
            append(path, COLUMNS, row)
            print(row, flush=True)
    text = table(read_results(path, ("commit",)))
    write_text(path.with_suffix(".md"), text)
    print(text)


if __name__ == "__main__":
    main()
