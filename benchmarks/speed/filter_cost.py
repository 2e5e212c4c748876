"""Time and memory of the filter and of the choice of the weak form, up to 10^6 samples.

    python benchmarks/speed/filter_cost.py [--rounds 3] [--threads 1]

Three sums of sines, 5 % noise, float64, N = 10^4, 10^5, 10^6. Every call runs in a
process of its own; its peak memory is the high-water mark of the process less what was
resident before the call, data included.
"Growth" is the exponent between the last two N; 1 is linear. The table goes to
``benchmarks/speed/results/filter_cost.md``, all rows to ``filter_cost_cpu.csv``.
"""

import argparse
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from wpnode_ext import estimate_noise, filter_series, select_weak_form
from wpnode_ext.data import add_noise

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import (  # noqa: E402
    RESULTS,
    described_parser,
    markdown,
    page,
    peak_extra_bytes,
    save_csv,
    write_text,
)

SIZES = (10_000, 100_000, 1_000_000)
CALLS = {
    "filter_series, p = 8, ell = 50, q = 8": lambda v: filter_series(
        v, p=8, ell=50, q=8
    ),
    "filter_series, p = 8, ell = 50, q = 2": lambda v: filter_series(
        v, p=8, ell=50, q=2
    ),
    "estimate_noise": estimate_noise,
    "select_weak_form": lambda v: select_weak_form(v, 0.01),
}
COLUMNS = {
    "call": "call",
    "samples": "N",
    "seconds": "seconds",
    "cpu_seconds": "CPU seconds",
    "extra_mb": "peak memory beyond the data, MB",
    "of_data": "in units of the data",
}


def measure_here(call: str, path: str, threads: int) -> dict[str, float]:
    """Measures one call in the child process, after a small one as warm-up."""
    torch.set_num_threads(threads)
    v = torch.from_numpy(np.load(path))
    CALLS[call](v[:2000].clone())
    took = {}

    def timed() -> object:
        wall, cpu = time.perf_counter(), time.process_time()
        result = CALLS[call](v)
        took["seconds"] = time.perf_counter() - wall
        took["cpu_seconds"] = time.process_time() - cpu
        return result

    extra = peak_extra_bytes(timed, torch.device("cpu"), warm_up=False)
    return {**took, "extra_bytes": extra}


def measure(call: str, path: Path, n: int, arguments: argparse.Namespace) -> dict:
    # A forked process has all imports, but not the data.
    context = multiprocessing.get_context("fork")
    with context.Pool(1, maxtasksperchild=1) as pool:
        task = (call, str(path), arguments.threads)
        rounds = [pool.apply(measure_here, task) for _ in range(arguments.rounds)]
    middle = {k: statistics.median(row[k] for row in rounds) for k in rounds[0]}
    return {
        "call": call,
        "samples": n,
        "seconds": round(middle["seconds"], 3),
        "cpu_seconds": round(middle["cpu_seconds"], 3),
        "extra_mb": round(middle["extra_bytes"] / 1e6, 1),
        "of_data": round(middle["extra_bytes"] / (24 * n), 1),
    }


def growth(rows: list[dict], key: str) -> str:
    """Exponent of each call over the last decade of N."""
    found = []
    for call in CALLS:
        mine = [row for row in rows if row["call"] == call]
        slope = math.log10(mine[-1][key] / mine[-2][key])
        found.append(f"{call}: {slope:.2f}")
    return "; ".join(found)


def main() -> None:
    parser = described_parser(__doc__, RESULTS)
    parser.add_argument("--rounds", type=int, default=3, help="processes a row")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    arguments = parser.parse_args()
    # One thread: forks of a process with several may hang.
    torch.set_num_threads(1)
    t = 0.01 * torch.arange(max(SIZES), dtype=torch.float64)
    speeds = torch.tensor([[5.0, 1.3], [6.1, 2.2], [7.3, 0.4]], dtype=torch.float64)
    clean = torch.sin(t[:, None, None] * speeds).sum(-1)
    noisy, _ = add_noise(clean, 0.05, seed=1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for n in SIZES:
            np.save(Path(folder) / f"{n}.npy", noisy[:n].numpy())
        del t, clean, noisy
        for call in CALLS:
            for n in SIZES:
                path = Path(folder) / f"{n}.npy"
                rows.append(measure(call, path, n, arguments))
                print(rows[-1], flush=True)
    cpu = torch.device("cpu")
    save_csv(arguments.output / "filter_cost_cpu.csv", rows, cpu)
    text = page(
        "Filter and choice of the weak form: time and memory",
        "Three sums of sines, 5 % noise, float64; one call a process, median of "
        f"{arguments.rounds}. The machine was shared: CPU seconds are those of the "
        "process alone.",
        markdown(rows, COLUMNS),
        f"Growth of CPU time, 10^5 to 10^6 samples: {growth(rows, 'cpu_seconds')}.",
        f"Growth of memory: {growth(rows, 'extra_mb')}.",
    )
    write_text(arguments.output / "filter_cost.md", text)
    print(text)


if __name__ == "__main__":
    main()
