"""Seconds of a closed-form fit: ours, and a plain numpy version of the formulas.

    python benchmarks/speed/closed_form.py [--rounds 5] [--threads 2] [--samples 100000]

Two problems, both at 5 % noise of the global RMS: Lorenz-63 with N = 10^4 samples and
300 random features (p = 8, ell = 50, q = 2), and Lorenz-96 with d = 40, N = 10^5 and a
local map shared by all sites (p = 8, ell = 80, q = 2), as a quadratic library of five
neighbours and as 300 random features of them.

"plain" computes the features of as many samples as fit into memory, adds up segments as
weighted sums of shifted slices, and solves the least-squares problem with scipy; where
the rows do not fit into memory it adds up the normal equations block by block. Both see
the same hidden layer and take the same ridge, and the fields they find are compared.

Versions take turns, so that a busy machine slows all of them alike; the seconds of the
processor, all threads together, estimate those of an idle machine. Peak memory is
measured in separate processes, for N and for a fourth of it. The table goes to
``results/closed_form.md``, all times to ``closed_form.csv``; problems that were
not measured this time keep their rows.
"""

import argparse
import csv
import io
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray

from wpnode_ext import segment_weights
from wpnode_ext.closed_form import fit_closed_form
from wpnode_ext.data import Series, add_noise, make_series
from wpnode_ext.fields import LibraryField, LinearField, RandomFeatureField, RingField
from wpnode_ext.systems import Lorenz63, Lorenz96

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import (  # noqa: E402
    RESULTS,
    commit,
    described_parser,
    page,
    write_text,
)

RIDGE, OFFSETS, WIDTH = 1e-8, (-2, -1, 0, 1, 2), 300
# Rows of features the plain version holds at a time: about half a gigabyte.
PLAIN_ROWS = 1 << 18
NAMES = ("lorenz63", "lorenz96 library", "lorenz96 features")
Times = tuple[float, float]


@dataclass(frozen=True)
class Problem:
    """Data, field and weak form of a fit, and the bar in seconds."""

    name: str
    series: Series
    field: LinearField
    ell: int
    bar: float


def make_problem(name: str, samples: int | None = None) -> Problem:
    """One of "lorenz63", "lorenz96 library" and "lorenz96 features"."""
    generator = torch.Generator().manual_seed(0)
    if name == "lorenz63":
        v = _scaled(Lorenz63().simulate(samples or 10_000, 0.01, seed=1))
        box = v.amin(0), v.amax(0)
        field = RandomFeatureField(3, WIDTH, box=box, generator=generator)
        return Problem(name, make_series(v, dt=0.01), field, 50, 1.0)
    wanted = samples or 100_000
    # A repeated trajectory costs a fit as much as a long one, and less to simulate.
    piece = Lorenz96().simulate(min(wanted, 10_000), 0.01, seed=1)
    v = _scaled(piece.repeat(-(-wanted // len(piece)), 1)[:wanted])
    width = len(OFFSETS)
    if name.endswith("library"):
        local: LinearField = LibraryField(width, 2, outputs=1, dtype=torch.float64)
    else:
        box = v.amin().expand(width), v.amax().expand(width)
        local = RandomFeatureField(
            width, WIDTH, box=box, outputs=1, generator=generator
        )
    field = RingField(local, v.shape[1], OFFSETS)
    return Problem(name, make_series(v, dt=0.01), field, 80, 60.0)


def _scaled(clean: torch.Tensor) -> torch.Tensor:
    noisy, _ = add_noise(clean, 0.05, seed=2)
    return (noisy - noisy.mean(0)) / noisy.std(0)


def ours(problem: Problem) -> NDArray[Any]:
    fit_closed_form(
        problem.field, problem.series, p=8, ell=problem.ell, q=2, ridge=RIDGE
    )
    return problem.field.coefficients.detach().numpy().copy()


def plain(problem: Problem) -> NDArray[Any]:
    """The fit in numpy: features, weighted sums of shifted slices, one solve."""
    v, ell = problem.series.v.numpy(), problem.ell
    field = problem.field
    w_lhs, w_rhs = (w.numpy() for w in segment_weights(8, ell, 0.01))
    sites, columns = field.sites, field.n_features
    starts = np.arange(0, len(v) - ell, 2)
    count = max(1, PLAIN_ROWS // sites)
    gram, right, blocks = np.zeros((columns, columns)), 0.0, []
    small = len(starts) * sites <= PLAIN_ROWS
    for first in range(0, len(starts), count):
        own = starts[first : first + count]
        part = v[own[0] : own[-1] + ell + 1]
        phi = _features(field, part).reshape(len(part), sites * columns)
        a = _sums(phi, w_rhs, len(own)).reshape(-1, columns)
        y = -_sums(part, w_lhs, len(own)).reshape(len(a), -1)
        if small:
            blocks.append((a, y))
        else:
            gram += a.T @ a
            right = right + a.T @ y
    if small:
        a, y = (np.concatenate(rows) for rows in zip(*blocks, strict=True))
        scale = np.sqrt((a**2).mean(0))
        padded = np.vstack([a / scale, np.sqrt(RIDGE * len(a)) * np.eye(columns)])
        wanted = np.vstack([y, np.zeros((columns, y.shape[1]))])
        solution: Any = scipy.linalg.lstsq(padded, wanted)
        return solution[0] / scale[:, None]
    rows = len(starts) * sites
    scale = np.sqrt(np.diag(gram) / rows)
    system = gram / np.outer(scale, scale) + RIDGE * rows * np.eye(columns)
    solution = scipy.linalg.solve(system, right / scale[:, None], assume_a="pos")
    return solution / scale[:, None]


def _sums(x: NDArray[Any], w: NDArray[Any], count: int) -> NDArray[Any]:
    """``sum_i w[i] x[2 k + i]`` for `count` segments k."""
    total = np.zeros((count, x.shape[1]))
    for i, weight in enumerate(w):
        total += weight * x[i : i + 2 * count - 1 : 2]
    return total


def _features(field: LinearField, u: NDArray[Any]) -> NDArray[Any]:
    """Features in numpy, ``[N, sites, J]``."""
    local = field
    z = u[:, None]
    if isinstance(field, RingField):
        local = field.local
        z = u[:, field.neighbours.numpy()]
    ones = np.ones((*z.shape[:-1], 1))
    if isinstance(local, RandomFeatureField):
        (w, b), *_ = local.layers()
        hidden = np.tanh(z @ w.numpy().T + b.numpy())
        return np.concatenate([ones, z, hidden], -1)
    i, j = np.triu_indices(z.shape[-1])
    return np.concatenate([ones, z, z[..., i] * z[..., j]], -1)


def measure(problem: Problem, rounds: int) -> tuple[dict[str, list[Times]], float]:
    """Times of both versions in turns, and the difference of their fields."""
    versions: dict[str, Callable[[Problem], NDArray[Any]]] = {
        "ours": ours,
        "plain": plain,
    }
    times: dict[str, list[Times]] = {name: [] for name in versions}
    found: dict[str, NDArray[Any]] = {}
    for _ in range(rounds):
        for name, run in versions.items():
            began = time.perf_counter(), time.process_time()
            found[name] = run(problem)
            wall, used = time.perf_counter() - began[0], time.process_time() - began[1]
            times[name].append((wall, used))
    u = problem.series.v[::97].numpy()
    values = [_features(problem.field, u) @ found[name] for name in versions]
    return times, float(np.abs(values[0] - values[1]).max() / np.abs(values[1]).max())


def peak_memory(name: str, version: str, samples: int) -> float:
    """Megabytes that one fit adds to a process of its own."""
    command = [sys.executable, __file__, "--peak", name, version, str(samples)]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(out.stdout.split()[-1])


def _print_peak(name: str, version: str, samples: int) -> None:
    problem = make_problem(name, samples)
    warm = make_problem(name, 400)
    {"ours": ours, "plain": plain}[version](warm)
    before = _status("VmRSS")
    # Resets the peak, which was that of the simulation.
    Path("/proc/self/clear_refs").write_text("5")
    {"ours": ours, "plain": plain}[version](problem)
    print((_status("VmHWM") - before) / 1024)


def _status(name: str) -> float:
    """Kilobytes of this process under a name of /proc/self/status; Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(x for x in lines if x.startswith(name)).split()[1])


def main() -> None:
    parser = described_parser(__doc__, RESULTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--samples", type=int, help="of Lorenz-96; default 10^5")
    parser.add_argument("--problems", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.peak:
        name, version, samples = arguments.peak
        _print_peak(name, version, int(samples))
        return
    rows: list[dict[str, Any]] = []
    for name in arguments.problems:
        many = None if name == "lorenz63" else arguments.samples
        problem = make_problem(name, many)
        ours(make_problem(name, 400))
        times, difference = measure(problem, arguments.rounds)
        n = problem.series.n_samples
        for version, seconds in times.items():
            peaks = [peak_memory(name, version, size) for size in (n // 4, n)]
            rows.append(
                {
                    "problem": name,
                    "samples": n,
                    "features": problem.field.n_features,
                    "version": version,
                    "seconds": statistics.median(wall for wall, _ in seconds),
                    "cpu_seconds": statistics.median(used for _, used in seconds),
                    "all": " ".join(f"{wall:.3f}/{used:.3f}" for wall, used in seconds),
                    "rounds": arguments.rounds,
                    "threads": arguments.threads,
                    "load": round(os.getloadavg()[0], 1),
                    "bar": problem.bar,
                    "difference": difference,
                    "peak_mb_quarter": peaks[0],
                    "peak_mb": peaks[1],
                    "commit": commit(),
                }
            )
            print(rows[-1], flush=True)
    write(arguments, rows)


def write(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    arguments.output.mkdir(parents=True, exist_ok=True)
    stem = arguments.output / "closed_form"
    if stem.with_suffix(".csv").exists():
        with stem.with_suffix(".csv").open(newline="") as file:
            known: list[dict[str, Any]] = list(csv.DictReader(file))
        rows += [r for r in known if r["problem"] not in arguments.problems]
        rows.sort(key=lambda row: NAMES.index(row["problem"]))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(stem.with_suffix(".csv"), text.getvalue())
    lines = [
        "| problem | samples | features | version | seconds | of the processor | bar "
        "| rounds, threads, load | memory, MB | difference |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        bar = f"<= {float(row['bar']):g}" if row["version"] == "ours" else ""
        memory = [float(row[key]) for key in ("peak_mb_quarter", "peak_mb")]
        lines.append(
            f"| {row['problem']} | {row['samples']} | {row['features']} "
            f"| {row['version']} | {float(row['seconds']):.2f} "
            f"| {float(row['cpu_seconds']):.2f} | {bar} "
            f"| {row['rounds']}, {row['threads']}, {row['load']} "
            f"| {memory[0]:.0f}, {memory[1]:.0f} | {float(row['difference']):.1e} |"
        )
    made = page(
        "Seconds of a closed-form fit",
        "Medians of runs in turns. Memory: what one fit adds to a process, for a "
        "fourth of the samples and for all. Difference: of the fields of both "
        "versions, relative to the largest value. Load: of the machine during the run; "
        "under load read the seconds of the processor.",
        "\n".join(lines),
        note=f"numpy {np.__version__}",
        commits=[row["commit"] for row in rows],
    )
    write_text(stem.with_suffix(".md"), made)


if __name__ == "__main__":
    main()
