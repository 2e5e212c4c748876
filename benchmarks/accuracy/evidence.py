"""Which random features noisy data ask for, and whether they are right.

    python benchmarks/accuracy/evidence.py [--noise 0.01 0.05 0.2]

Random features in families of the 128 shifts and mirrors of Kuramoto-Sivashinsky are
fitted to 20 000 noisy samples with the development seeds of :mod:`closed_form`. What is
compared is the logarithm of the evidence (``Refinement.evidence``), which sees noisy
samples alone. Beside it stands what it cannot know: how long forecasts are valid
against the clean trajectory. Finished fits are kept in ``results/evidence_ks.csv`` and
not repeated; the table is ``results/evidence_ks.md``.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch
from closed_form_systems import MAPS, SEEDS, SYSTEMS, WAVES, Setting
from finished import append, read_results

from closed_form import trajectory
from wpnode_ext import evaluate_field, keep_freed_memory
from wpnode_ext.data import add_noise, make_series
from wpnode_ext.model.search import own_or_made
from wpnode_ext.model.solve import solve_field
from wpnode_ext.settings.config import (
    ClosedFormConfig,
    FieldConfig,
    TrainConfig,
    WeakForm,
    resolve,
)

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from bench import commit, provenance, write_text  # noqa: E402

SAMPLES, STARTS = 20_000, 30
# Numbers of families at one steepness, and then other steepnesses of one number.
CHOICES = ((10, 0.3), (20, 0.3), (5, 0.3), (10, 1.0), (10, 0.1))
COLUMNS = (
    "families",
    "steepness",
    "noise",
    "evidence",
    "state_error",
    "vpt",
    "cpu_seconds",
    "commit",
)
Choice = tuple[int, float]


def run(setting: Setting, choice: Choice, noise: float, work: Path) -> dict[str, Any]:
    """Fits one field and judges it, once by noisy samples and once by clean ones."""
    families, steepness = choice
    path, noises, weights, places = SEEDS[True]
    clean = trajectory(setting, path, work)
    noisy, sigma = add_noise(clean, noise, mode="global_rms", seed=noises)
    words = {name: WAVES[name] for name in ("symmetry", "coordinates")}
    config = resolve(
        TrainConfig(
            method="closed_form",
            field=FieldConfig(
                kind="features", features=families * MAPS, steepness=steepness
            ),
            weak=WeakForm(WAVES["p"], WAVES["ell"], WAVES["q"]),
            closed_form=ClosedFormConfig(**words),
            seed=weights,
        )
    )
    began = time.process_time()
    solved = solve_field(
        make_series(noisy[:SAMPLES], dt=setting.dt),
        lambda inputs, shape: own_or_made(None, config, inputs, shape),
        config,
        evidence=True,
    )
    busy = time.process_time() - began
    assert solved.refinement is not None and solved.refinement.evidence is not None
    found = evaluate_field(
        solved.scaler.to_physical(solved.field),
        clean[setting.n :],
        setting.dt,
        lyapunov_exponent=setting.exponent,
        threshold=setting.threshold,
        starts=STARTS,
        horizon=setting.horizon[1] / setting.exponent,
        seed=places,
        **setting.forecasts,
    )
    error = solved.refined_states().states - clean[:SAMPLES]
    return {
        "families": families,
        "steepness": steepness,
        "noise": noise,
        "evidence": solved.refinement.evidence,
        "state_error": (error.square().mean().sqrt() / sigma.mean()).item(),
        "vpt": found.vpt.mean,
        "cpu_seconds": busy,
        "commit": commit(),
    }


def table(rows: list[dict[str, Any]]) -> str:
    levels = sorted({row["noise"] for row in rows})
    lines = [
        "# Random features for Kuramoto-Sivashinsky, and what noisy data say of them",
        "",
        f"Families of {MAPS} maps, {SAMPLES} noisy samples, one development draw. "
        "Logarithm of the evidence beside the largest of a column, of which the "
        "noisy samples are all that is seen; in brackets what chooses nothing: the "
        "error of the refined states over the noise and the valid prediction time of "
        f"{STARTS} forecasts against the clean trajectory.",
        "",
        "| families | steepness | "
        + " | ".join(f"{100 * level:g} %" for level in levels)
        + " |",
        "| --- | --- |" + " --- |" * len(levels),
    ]
    best = {
        level: max(row["evidence"] for row in rows if row["noise"] == level)
        for level in levels
    }
    for families, steepness in sorted(CHOICES):
        own = {
            row["noise"]: f"{row['evidence'] - best[row['noise']]:.0f} "
            f"({row['state_error']:.3f}, {row['vpt']:.2f})"
            for row in rows
            if (row["families"], row["steepness"]) == (families, steepness)
        }
        cells = " | ".join(own.get(level, "") for level in levels)
        lines += [f"| {families} | {steepness:g} | {cells} |"] if own else []
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
    path = HERE / "results" / "evidence_ks.csv"
    for choice in CHOICES:
        for noise in arguments.noise:
            done = read_results(path, ("commit",))
            known = {(r["families"], r["steepness"], r["noise"]) for r in done}
            if (*choice, noise) in known:
                continue
            row = run(SYSTEMS["ks"], choice, noise, arguments.work)
            append(path, COLUMNS, row)
            print(row, flush=True)
            write_text(path.with_suffix(".md"), table(read_results(path, ("commit",))))
    print(table(read_results(path, ("commit",))))


if __name__ == "__main__":
    main()
