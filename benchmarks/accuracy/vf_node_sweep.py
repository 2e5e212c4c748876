"""VF-NODE on Lorenz-63 against its smoothing and its number of sines.

    python benchmarks/accuracy/vf_node_sweep.py [--epochs 2000] [--draws 1]

The paper's two sweeps at 5 % noise: the parameter of the smoothing spline with 640
sines, and the number of sines at 0.9999, on the whole record as one segment. Finished
runs are kept in ``results/vf_node_sweep.csv`` and not repeated; the table beside the
paper's figures is ``results/vf_node_sweep.md``.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from finished import append, read_results

from wpnode_ext.baselines import VFNODE
from wpnode_ext.baselines.comparison import Job, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import provenance  # noqa: E402

NOISE, EXPONENT, THRESHOLD, STARTS, HORIZON = 0.05, 0.91, 0.3, 30, 6.0
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
COLUMNS = ("smoothing", "basis", "draw", "epochs", "vpt", "cpu_seconds")
HERE = Path(__file__).parent
Setting = tuple[float, int]


def run(setting: Setting, draw: int, epochs: int) -> dict[str, Any]:
    """Trains and judges one model."""
    protocol = Protocol(system="lorenz63")
    series, reference = protocol.data(Job("vf_node", NOISE, draw))
    smoothing, basis = setting
    began = time.process_time()
    model = VFNODE(
        smoothing=smoothing, basis=basis, segment=None, epochs=epochs, seed=3000 + draw
    ).fit(series)
    busy = time.process_time() - began
    assert reference.dt is not None
    found = model.evaluate(
        reference.v,
        reference.dt,
        lyapunov_exponent=EXPONENT,
        threshold=THRESHOLD,
        starts=STARTS,
        horizon=HORIZON / EXPONENT,
        seed=4000 + draw,
        method="rk4",
    )
    return {
        "smoothing": smoothing,
        "basis": basis,
        "draw": draw,
        "epochs": model.cost_.epochs,
        "vpt": found.vpt.mean,
        "cpu_seconds": busy,
    }


def jobs(draws: int, done: list[dict[str, Any]]) -> Iterator[tuple[Setting, int]]:
    """What is left to do, one draw of everything before another."""
    finished = {(row["smoothing"], row["basis"], row["draw"]) for row in done}
    for draw in range(draws):
        for setting in {**BY_SMOOTHING, **BY_BASIS}:
            if (*setting, draw) not in finished:
                yield setting, draw


def table(rows: list[dict[str, Any]], epochs: int) -> str:
    """Markdown: both sweeps, ours beside the paper's."""
    lines = [
        "# VF-NODE on Lorenz-63 at 5 % noise: smoothing and number of sines",
        "",
        "Mean valid prediction time in Lyapunov times over the draws in brackets, "
        f"{STARTS} starts each; 10^4 samples, one segment, up to {epochs} epochs (the "
        "paper: up to 20000). Empty cells were not measured.",
    ]
    for name, sweep in (("smoothing", BY_SMOOTHING), ("sines", BY_BASIS)):
        which = 0 if name == "smoothing" else 1
        lines += [
            "",
            f"| {name} | {' | '.join(f'{s[which]:g}' for s in sweep)} |",
            "| --- |" + " --- |" * len(sweep),
            f"| ours | {' | '.join(_cell(rows, setting) for setting in sweep)} |",
            f"| paper | {' | '.join(f'{value:.2f}' for value in sweep.values())} |",
        ]
    return "\n".join([*lines, "", f"*{provenance(torch.device('cpu'))}*", ""])


def _cell(rows: list[dict[str, Any]], setting: Setting) -> str:
    found = [r["vpt"] for r in rows if (r["smoothing"], r["basis"]) == setting]
    return f"{statistics.fmean(found):.2f} ({len(found)})" if found else ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path = arguments.output / "vf_node_sweep.csv"
    report = path.with_suffix(".md")
    for setting, draw in jobs(arguments.draws, read_results(path, ())):
        row = run(setting, draw, arguments.epochs)
        append(path, COLUMNS, row)
        print(row, flush=True)
        report.write_text(table(read_results(path, ()), arguments.epochs), "utf-8")
    text = table(read_results(path, ()), arguments.epochs)
    report.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
