"""Choosing the number and steepness of random features by the evidence.

    python benchmarks/accuracy/evidence.py [--noise 0.01 0.05 0.2]

Random features in families of the 128 shifts and mirrors of Kuramoto-Sivashinsky are
fitted to 20 000 noisy samples with the development seeds of :mod:`closed_form`. The
table compares the logarithm of the evidence (``Refinement.evidence``), computed from
the noisy samples alone. Beside it stands what it cannot know: how long forecasts are
valid against the clean trajectory. Finished fits are kept in
``results/evidence_ks.csv`` and not repeated; the table is ``results/evidence_ks.md``.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import tables

from closed_form import MAPS, SEEDS, SYSTEMS, WAVES, Setting, trajectory
from wpnode_ext import evaluate_field, keep_freed_memory
from wpnode_ext.data import add_noise, make_series
from wpnode_ext.model.choose import Choice
from wpnode_ext.model.prepare import prepare
from wpnode_ext.model.search import own_or_made
from wpnode_ext.model.solve import solve_field
from wpnode_ext.settings.config import (
    ClosedFormConfig,
    FieldConfig,
    TrainConfig,
    WeakForm,
    resolve,
)

SAMPLES, STARTS = 20_000, 30
# Numbers of families at one steepness, and then other steepnesses of one number.
CHOICES = ((10, 0.3), (20, 0.3), (5, 0.3), (10, 1.0), (10, 0.1))
JOB = ("families", "steepness", "noise")
TEXT = ("commit",)
COLUMNS = (*JOB, "evidence", "state_error", "vpt", "cpu_seconds", "commit")


def run(setting: Setting, job: tuple, work: Path) -> tables.Row:
    """Fits one field and judges it, once by noisy samples and once by clean ones."""
    families, steepness, noise = job
    listed = setting.preset
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
    series = make_series(noisy[:SAMPLES], dt=listed.dt)
    solved = solve_field(
        prepare(series, None, Choice(config, "", config)),
        lambda inputs, shape: own_or_made(None, config, inputs, shape),
        config,
        evidence=True,
    )
    busy = time.process_time() - began
    assert solved.refinement is not None and solved.refinement.evidence is not None
    found = evaluate_field(
        solved.scaler.to_physical(solved.field),
        clean[listed.n_samples :],
        listed.dt,
        lyapunov_exponent=listed.lyapunov_exponent,
        threshold=listed.threshold,
        starts=STARTS,
        horizon=setting.horizon[1] / listed.lyapunov_exponent,
        seed=places,
        **setting.forecasts,
    )
    assert solved.refined is not None
    error = solved.refined.states - clean[:SAMPLES]
    return {
        **dict(zip(JOB, job, strict=True)),
        "evidence": solved.refinement.evidence,
        "state_error": (error.square().mean().sqrt() / sigma.mean()).item(),
        "vpt": found.vpt.mean,
        "cpu_seconds": busy,
        "commit": tables.commit(),
    }


def table(rows: Sequence[tables.Row]) -> str:
    """A page: a line for every choice of features, a column for every noise."""
    levels = sorted({row["noise"] for row in rows})
    best = {
        level: max(row["evidence"] for row in rows if row["noise"] == level)
        for level in levels
    }
    lines = []
    for choice in sorted(CHOICES):
        own = {
            row["noise"]: f"{row['evidence'] - best[row['noise']]:.0f} "
            f"({row['state_error']:.3f}, {row['vpt']:.2f})"
            for row in rows
            if (row["families"], row["steepness"]) == choice
        }
        if own:
            cells = [own.get(level, "") for level in levels]
            lines.append((str(choice[0]), [f"{choice[1]:g}", *cells]))
    return tables.page(
        "Random features for Kuramoto-Sivashinsky: their evidence from noisy data",
        f"Families of {MAPS} maps, {SAMPLES} noisy samples, one development draw. "
        "Logarithm of the evidence, which sees noisy samples alone, less the largest "
        "of its column. In brackets, for comparison only: the error of the refined "
        f"states over the noise and the valid prediction time of {STARTS} forecasts "
        "against the clean trajectory.",
        tables.grid("families", ["steepness", *tables.percent(levels)], lines),
        commits=[row["commit"] for row in rows],
    )


def main() -> None:
    parser = tables.parser_of(__doc__)
    parser.add_argument("--noise", type=float, nargs="+", default=(0.01, 0.05, 0.2))
    parser.add_argument("--work", type=Path, default=Path("runs/accuracy_closed_form"))
    arguments = parser.parse_args()
    keep_freed_memory()
    path = arguments.output / "evidence_ks.csv"
    jobs = [(*choice, noise) for choice in CHOICES for noise in arguments.noise]
    for job in tables.unfinished(jobs, tables.read_results(path, TEXT), JOB):
        row = run(SYSTEMS["ks"], job, arguments.work)
        tables.append(path, COLUMNS, row)
        print(row, flush=True)
        tables.write_text(
            path.with_suffix(".md"), table(tables.read_results(path, TEXT))
        )
    print(table(tables.read_results(path, TEXT)))


if __name__ == "__main__":
    main()
