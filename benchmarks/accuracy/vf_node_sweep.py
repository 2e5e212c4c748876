"""VF-NODE on Lorenz-63 against its smoothing and its number of sines.

    python benchmarks/accuracy/vf_node_sweep.py [--epochs 2000] [--draws 1]

The paper's two sweeps at 5 % noise: the parameter of the smoothing spline with 640
sines, and the number of sines at 0.9999, on the whole record as one segment. Finished
runs are kept in ``results/vf_node_sweep.csv`` and not repeated; the table beside the
paper's figures is ``results/vf_node_sweep.md``.
"""

import time
from collections.abc import Mapping, Sequence

import tables
import torch

from wpnode_ext.baselines import VFNODE
from wpnode_ext.baselines.protocol import Job, Protocol
from wpnode_ext.systems import preset

NOISE, STARTS, HORIZON = 0.05, 30, 6.0
SMOOTHING, BASIS = 0.9999, 640
# Settings (smoothing, sines) and the valid prediction times that the paper prints.
BY_SMOOTHING = {
    (0.99, BASIS): 0.161,
    (0.995, BASIS): 0.234,
    (0.999, BASIS): 0.704,
    (SMOOTHING, BASIS): 0.860,
    (0.99999, BASIS): 0.993,
}
BY_BASIS = {
    (SMOOTHING, 40): 0.094,
    (SMOOTHING, 80): 0.100,
    (SMOOTHING, 160): 0.145,
    (SMOOTHING, 320): 0.322,
    (SMOOTHING, BASIS): 0.860,
}
JOB = ("smoothing", "basis", "draw")
COLUMNS = (*JOB, "epochs", "vpt", "cpu_seconds")


def run(job: tuple, epochs: int) -> tables.Row:
    """Trains and judges one model."""
    smoothing, basis, draw = job
    listed = preset("lorenz63")
    series, reference = Protocol(system="lorenz63").data(Job("vf_node", NOISE, draw))
    began = time.process_time()
    model = VFNODE(
        smoothing=smoothing, basis=basis, segment=None, epochs=epochs, seed=3000 + draw
    ).fit(series)
    busy = time.process_time() - began
    found = model.evaluate(
        reference.v,
        listed.dt,
        lyapunov_exponent=listed.lyapunov_exponent,
        threshold=listed.threshold,
        starts=STARTS,
        horizon=HORIZON / listed.lyapunov_exponent,
        seed=4000 + draw,
        method="rk4",
    )
    return {
        **dict(zip(JOB, job, strict=True)),
        "epochs": model.cost_.epochs,
        "vpt": found.vpt.mean,
        "cpu_seconds": busy,
    }


def table(rows: Sequence[tables.Row], epochs: int) -> str:
    """A page: both sweeps, ours beside the paper's."""
    return tables.page(
        "VF-NODE on Lorenz-63 at 5 % noise: smoothing and number of sines",
        "Mean valid prediction time in Lyapunov times over the draws in brackets, "
        f"{STARTS} starts each; 10^4 samples, one segment, up to {epochs} epochs (the "
        "paper: up to 20000). Empty cells were not measured.",
        _sweep("smoothing", 0, BY_SMOOTHING, rows),
        _sweep("sines", 1, BY_BASIS, rows),
    )


def _sweep(
    name: str,
    varied: int,
    settings: Mapping[tuple[float, int], float],
    rows: Sequence[tables.Row],
) -> str:
    ours = []
    for setting in settings:
        found = [r for r in rows if (r["smoothing"], r["basis"]) == setting]
        ours.append(
            f"{tables.mean_of(found, 'vpt'):.2f} ({len(found)})" if found else ""
        )
    printed = [f"{value:.2f}" for value in settings.values()]
    heads = [f"{setting[varied]:g}" for setting in settings]
    return tables.grid(name, heads, [("ours", ours), ("paper", printed)])


def main() -> None:
    parser = tables.parser_of(__doc__)
    parser.add_argument("--epochs", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path = arguments.output / "vf_node_sweep.csv"
    settings = {**BY_SMOOTHING, **BY_BASIS}
    jobs = [(*setting, draw) for draw in range(arguments.draws) for setting in settings]
    for job in tables.unfinished(jobs, tables.read_results(path), JOB):
        row = run(job, arguments.epochs)
        tables.append(path, COLUMNS, row)
        print(row, flush=True)
        text = table(tables.read_results(path), arguments.epochs)
        tables.write_text(path.with_suffix(".md"), text)
    print(table(tables.read_results(path), arguments.epochs))


if __name__ == "__main__":
    main()
