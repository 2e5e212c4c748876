"""Valid prediction times of networks on Lorenz-63 beside the paper's table 2.

    python benchmarks/accuracy/lorenz63.py [--workers 1] [--noise 0.05] [--draws 3]

N = 10^4 samples, dt = 0.01, the paper's settings; the last tenth of the record decides
which weights are kept and is not trained on. For every noise level and noise draw one
trajectory is simulated; 30 forecasts start on clean states beyond its training part.
Finished runs are kept in ``results/lorenz63.csv`` and not repeated; a run that was
killed continues from its checkpoint. The table is written after every run.
"""

import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import paper
import tables
import torch

from wpnode_ext import WPNODE
from wpnode_ext.data import add_noise
from wpnode_ext.settings.config import Method
from wpnode_ext.systems import NOISE_RATIOS, preset
from wpnode_ext.training.run_folder import RunFolder

LISTED = preset("lorenz63")
N, DT, EXPONENT = LISTED.n_samples, LISTED.dt, LISTED.lyapunov_exponent
STARTS, BEYOND = 30, 20_000
# Forecasts run for 12 Lyapunov times; no model of the paper comes near.
HORIZON = 12 / EXPONENT
# How the network is trained, and whether states are free variables beside it.
METHODS: dict[str, tuple[Method, bool]] = {
    "wp": ("wp", False),
    "weak": ("weak", False),
    "weak, states refined": ("weak", True),
}
JOB = ("method", "noise", "draw")
TEXT = ("method",)
COLUMNS = (
    *JOB,
    "vpt",
    "std",
    "vpt_time",
    "censored",
    "componentwise",
    "segment",
    "epochs",
    "best_epoch",
    "val_error",
    "seconds",
)


def run(job: tuple, work: Path, epochs: int | None, solver: str) -> tables.Row:
    """Trains and judges one model; continues a run that was interrupted."""
    method, noise, draw = job
    torch.set_num_threads(1)
    began = time.perf_counter()
    clean = LISTED.system.simulate(N + BEYOND, DT, seed=1000 + draw)
    noisy, _ = add_noise(clean[:N], noise, mode="global_rms", seed=2000 + draw)
    form, refine = METHODS[method]
    config = {
        "method": form,
        "refine": refine,
        "seed": 3000 + draw,
        "weak": {"p": LISTED.p, "ell": LISTED.ell, "q": LISTED.q},
        "optim": {"epochs": epochs},
        "strong": {"solver": solver},
    }
    folder = RunFolder(work / f"{method.replace(', ', '_')}_{noise:g}_{draw}")
    resume = folder.last.exists()
    if not resume:
        folder.create(overwrite=True)
    model = WPNODE(config=config).fit(noisy, DT, run=folder, resume=resume)
    if model.result_.signal is not None:
        raise KeyboardInterrupt
    result = model.evaluate(
        clean[N:],
        DT,
        lyapunov_exponent=EXPONENT,
        threshold=LISTED.threshold,
        starts=STARTS,
        horizon=HORIZON,
        seed=4000 + draw,
    )
    return {
        **dict(zip(JOB, job, strict=True)),
        "vpt": result.vpt.mean,
        "std": result.vpt.std,
        "vpt_time": result.vpt.mean_time,
        "censored": int(result.vpt.censored.sum()),
        "componentwise": result.other_vpt["componentwise"].mean,
        "segment": result.other_vpt["segment"].mean,
        "epochs": model.result_.epochs,
        "best_epoch": model.result_.best_epoch,
        "val_error": model.result_.best_score,
        "seconds": time.perf_counter() - began,
    }


def table(rows: Sequence[tables.Row], draws: int, note: str = "") -> str:
    """A page: mean over all starts of all draws, spread over starts."""
    return tables.page(
        "Lorenz-63: mean valid prediction time, in Lyapunov times",
        f"N = 10^4 (last tenth held out), dt = {DT:g}, network 3-200-200-3, p = 8, "
        "ell = 50, q = 2, T = 2 (RK4, one step a sample), lambda = 0.5, Adam 2e-3, "
        "batches of 2048. Noise: "
        f"global RMS of the clean signal, seeds 2000 + draw, up to {draws} draws "
        "(trajectories 1000 + draw, weights and batches 3000 + draw). VPT: pooled "
        f"error <= {LISTED.threshold:g}, exponent {EXPONENT:g}, {STARTS} clean starts "
        "a draw beyond the training part (seeds 4000 + draw). Mean and standard "
        "deviation over starts, then the draws' own means. The paper's rows are means "
        "over 30 starts of one model.",
        tables.grid("method", tables.percent(NOISE_RATIOS), _lines(rows)),
        note=note,
    )


def _lines(rows: Sequence[tables.Row]) -> Iterator[tuple[str, list[str]]]:
    printed = paper.VPT["lorenz63"]
    for method in METHODS:
        cells = [
            _cells([r for r in rows if (r["method"], r["noise"]) == (method, level)])
            for level in NOISE_RATIOS
        ]
        if method in printed:
            pairs = zip(printed[method], paper.SPREAD[method], strict=True)
            yield f"{method}, paper", [f"{m:.2f} ± {s:.2f}" for m, s in pairs]
        labels = (f"{method}, ours", "- each draw", "- in units of time")
        for label, line in zip(labels, zip(*cells, strict=True), strict=True):
            yield label, list(line)


def _cells(found: Sequence[tables.Row]) -> tuple[str, str, str]:
    """Mean and spread, means of the draws, mean in units of time."""
    if not found:
        return "", "", ""
    mean = tables.mean_of(found, "vpt")
    second = statistics.fmean(r["std"] ** 2 + r["vpt"] ** 2 for r in found)
    return (
        f"{mean:.2f} ± {math.sqrt(max(0.0, second - mean**2)):.2f}",
        ", ".join(f"{row['vpt']:.2f}" for row in found),
        f"{mean / EXPONENT:.2f}",
    )


def work_on(task: tuple[tuple, Path, int | None, str]) -> tables.Row:
    os.nice(10)
    return run(*task)


def main() -> None:
    parser = tables.parser_of(__doc__)
    parser.add_argument("--workers", type=int, default=1, choices=(1, 2))
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--noise", type=float, nargs="+", default=NOISE_RATIOS)
    parser.add_argument("--methods", nargs="+", default=["weak", "wp"], choices=METHODS)
    parser.add_argument("--epochs", type=int, help="fewer than the paper's, to try out")
    # With steps of 0.01 its losses agree with those of dopri5 to eight digits.
    parser.add_argument("--solver", default="rk4", help="of the strong term")
    parser.add_argument("--note", default="", help="e.g. on rows of another machine")
    parser.add_argument("--work", type=Path, default=Path("runs/accuracy_lorenz63"))
    arguments = parser.parse_args()
    path = arguments.output / "lorenz63.csv"
    # The first draw of everything comes before a second one.
    jobs = [
        (method, noise, draw)
        for draw in range(arguments.draws)
        for method in arguments.methods
        for noise in arguments.noise
    ]
    settings = (arguments.work, arguments.epochs, arguments.solver)
    tasks = [
        (job, *settings)
        for job in tables.unfinished(jobs, tables.read_results(path, TEXT), JOB)
    ]
    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.workers) as pool:
        for row in pool.imap_unordered(work_on, tasks):
            tables.append(path, COLUMNS, row)
            text = table(
                tables.read_results(path, TEXT), arguments.draws, arguments.note
            )
            tables.write_text(path.with_suffix(".md"), text)
            print({k: v if k in TEXT else round(v, 3) for k, v in row.items()})
    text = table(tables.read_results(path, TEXT), arguments.draws, arguments.note)
    tables.write_text(path.with_suffix(".md"), text)
    print(text)


if __name__ == "__main__":
    main()
