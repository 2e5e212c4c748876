"""Runs methods under one protocol, and makes a table of their results.

A job is one method at one noise level on one draw. Its result is one row of a file, so
no finished job runs again.
"""

import csv
import math
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from ..common.files import replacing
from ..common.memory import keep_freed_memory
from ..data import Series
from ..training import TrainResult
from .base import Baseline
from .evaluations import counted_evaluations
from .methods import make_method
from .protocol import NOISE_MODE, SEEDS, Job, Protocol

COLUMNS: tuple[str, ...] = (
    "method",
    "noise",
    "draw",
    "vpt",
    "vpt_std",
    "vpt_time",
    "censored",
    "diverged",
    "kl",
    "seconds",
    "cpu_seconds",
    "epochs",
    "evaluations",
    "failure",
)
Row = dict[str, Any]


def run_jobs(wanted: Sequence[Job], protocol: Protocol, workers: int) -> Iterator[Row]:
    """Rows in the order in which jobs finish.

    Args:
        wanted: the jobs.
        protocol: the protocol of all of them.
        workers: number of processes; 1 runs them in this one.
    """
    if workers <= 1:
        for job in wanted:
            yield run_job(job, protocol)
        return
    context = multiprocessing.get_context("spawn")
    processes = min(workers, max(1, len(wanted)))
    with context.Pool(processes, initializer=keep_freed_memory) as pool:
        yield from pool.imap_unordered(_work, [(job, protocol) for job in wanted])


def _work(task: tuple[Job, Protocol]) -> Row:
    return run_job(*task)


def run_job(job: Job, protocol: Protocol) -> Row:
    """Fits and judges one model; a method that fails leaves the reason in its row.

    Raises:
        KeyboardInterrupt: a signal ended the training, so there is no result.
    """
    torch.set_num_threads(1)
    row: Row = {"method": job.method, "noise": job.noise, "draw": job.draw}
    try:
        series, reference = protocol.data(job)
        model = make_method(
            job.method,
            seed=SEEDS["method"] + job.draw,
            system=protocol.system,
            options=protocol.options.get(job.method),
        )
        began, busy = time.perf_counter(), time.process_time()
        with counted_evaluations() as counter:
            model.fit(series)  # type: ignore[attr-defined]
        row["seconds"] = time.perf_counter() - began
        row["cpu_seconds"] = time.process_time() - busy
        if isinstance(model, Baseline):
            row["epochs"] = model.cost_.epochs
        else:
            result: TrainResult = model.result_  # type: ignore[attr-defined]
            if result.signal is not None:
                raise KeyboardInterrupt
            row["epochs"] = max(1, result.epochs)
        row["evaluations"] = counter[0]
        return row | judged(model, reference, protocol, job)
    except (ValueError, RuntimeError, TypeError, ArithmeticError, MemoryError) as error:
        text = f"{type(error).__name__}: {error}"
        return row | {"failure": " ".join(text.split())}


def judged(model: Any, reference: Series, protocol: Protocol, job: Job) -> Row:
    """Valid prediction time and distance of the densities.

    Times of the "censored" starts, which are still valid at the horizon, are lower
    bounds.
    """
    assert reference.dt is not None
    exponent = protocol.lyapunov_exponent
    horizon = protocol.horizon
    if horizon is not None and exponent is not None:
        horizon = horizon / exponent
    common = {
        "lyapunov_exponent": exponent,
        "lengths": reference.lengths,
        "mask": reference.mask,
        "seed": SEEDS["starts"] + job.draw,
    }
    # Maps ignore the solver and its step.
    step = reference.dt / protocol.substeps
    found = model.evaluate(
        reference.v,
        reference.dt,
        threshold=protocol.threshold,
        starts=protocol.starts,
        horizon=horizon,
        method=protocol.solver,
        step=step,
        **common,
    )
    climate = model.climate(
        reference.v,
        reference.dt,
        members=10,
        exponent=False,
        solvers=(protocol.solver,),
        step=step,
        **common,
    )
    return {
        "vpt": found.vpt.mean,
        "vpt_std": found.vpt.std,
        "vpt_time": found.vpt.mean_time,
        "censored": int(found.vpt.censored.sum()),
        "diverged": found.diverged,
        "kl": climate.kl,
    }


def read_rows(path: Path) -> list[Row]:
    """Finished jobs; none where the file does not exist."""
    if not path.exists():
        return []
    rows: list[Row] = []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows += [_row(entry) for entry in csv.DictReader(file)]
    except (KeyError, TypeError, ValueError, AttributeError, csv.Error) as error:
        raise ValueError(
            f"{path} must have readable rows; row {len(rows) + 1} is not ({error}). "
            "Remove the row, or do all runs again with `--fresh`."
        ) from None
    return rows


def _row(entry: dict[str, Any]) -> Row:
    row: Row = {"method": entry["method"], "failure": entry["failure"] or ""}
    row["draw"] = int(entry["draw"])
    for name in COLUMNS:
        if name not in row:
            text = entry.get(name)
            row[name] = float(text) if text else math.nan
    return row


def without_failures(rows: Sequence[Row]) -> list[Row]:
    """Rows of the jobs that succeeded."""
    return [row for row in rows if not row.get("failure")]


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Writes all rows, as a whole or not at all."""
    with replacing(path, newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: _text(v) for k, v in row.items() if k in COLUMNS})


def summary(rows: Sequence[Row]) -> list[Row]:
    """One row for every method and noise level: means over the draws that succeeded."""
    keys = sorted({(row["method"], row["noise"]) for row in rows})
    table = []
    for method, noise in keys:
        group = [r for r in rows if (r["method"], r["noise"]) == (method, noise)]
        good = without_failures(group)
        line: Row = {"method": method, "noise": noise, "draws": len(good)}
        for name in COLUMNS[3:-1]:
            values = [r[name] for r in good if not math.isnan(r.get(name, math.nan))]
            line[name] = statistics.fmean(values) if values else math.nan
        means = [r["vpt"] for r in good]
        line["spread"] = statistics.stdev(means) if len(means) > 1 else math.nan
        reasons = {r["failure"] for r in group if r.get("failure")}
        line["failure"] = "; ".join(sorted(reasons))
        table.append(line)
    return table


def _text(value: Any) -> Any:
    """A value as the file of rows holds it."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.8g}"
    return value


def unit_of(protocol: Protocol) -> str:
    """The unit of valid prediction times."""
    return "units of time" if protocol.lyapunov_exponent is None else "Lyapunov times"


def markdown(table: Sequence[Row], name: str, protocol: Protocol) -> str:
    """The table, with an explanation of its columns above it."""
    rows, header = cells(table)
    lines = [
        f"# Methods on {name}",
        "",
        *(f"- {text}" for text in _meaning(protocol)),
        "",
        f"| {' | '.join(header)} |",
        f"|{' --- |' * len(header)}",
    ]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    failed = failures(table)
    if failed:
        lines += ["", "Runs that failed:", "", *(f"- {text}" for text in failed)]
    return "\n".join([*lines, ""])


def _meaning(protocol: Protocol) -> list[str]:
    """Paragraphs that explain the columns."""
    exponent, unit = protocol.lyapunov_exponent, unit_of(protocol)
    longest = "as far as the reference goes"
    if protocol.horizon is not None:
        longest = f"{protocol.horizon:g} {unit} at most"
    data = f"Data: {protocol.n_samples} samples"
    drawn = list(SEEDS)
    if protocol.system is None:
        drawn.remove("trajectory")
        if protocol.reference is None:
            data += f"; the last {100 * protocol.held_back:g} %, filtered, are held "
            data += "back, and forecasts are compared with them"
        else:
            data += "; forecasts are compared with a reference file"
    seeds = ", ".join(f"{name} {SEEDS[name]} + draw" for name in drawn)
    scale = "" if exponent is None else f", maximal Lyapunov exponent {exponent:g}"
    return [
        f"{data}. Noise (`{NOISE_MODE}`): Gaussian, its standard deviation in percent "
        "of the root mean square of all values. Draws are numbered from 0; "
        f"seeds: {seeds}.",
        f"VPT: valid prediction time in {unit}, and in units of time: until the pooled "
        "error, sqrt(sum_j (u_hat_j - u_j)^2 / sum_j var_j), exceeds "
        f"{protocol.threshold:g}{scale}. Mean over draws of the means over "
        f"{protocol.starts} starts, +- standard deviation over draws. Forecasts run "
        f"{longest}; fields are solved with `{protocol.solver}` (steps a sample, where "
        f"fixed: {protocol.substeps}). A value with >= is a lower bound: some "
        "forecasts were still valid at their end.",
        "KL: mean over components of the divergence of densities of long forecasts.",
        "Seconds: wall time of the fit on one core; CPU seconds: time of that core.",
        "Evaluations: states at which the fit, its choice of settings included, "
        "computed a field or map, its features or its derivative.",
    ]


def failures(table: Sequence[Row]) -> list[str]:
    """Method, noise and reason of runs that failed."""
    return [
        f"{row['method']} at {100 * row['noise']:g} %: {row['failure']}"
        for row in table
        if row["failure"]
    ]


def cells(table: Sequence[Row]) -> tuple[list[list[str]], list[str]]:
    """Rows of text, and the header of the table."""
    header = [
        "method",
        "noise",
        "draws",
        "VPT",
        "VPT (time)",
        "KL",
        "seconds",
        "CPU seconds",
        "epochs",
        "evaluations",
    ]
    texts = []
    for row in table:
        # The mean is a lower bound if some forecasts were still valid at the horizon.
        bound = ">= " if row["censored"] > 0 else ""
        vpt = bound + _number(row["vpt"], ".2f")
        if not math.isnan(row["spread"]):
            vpt += f" +- {row['spread']:.2f}"
        texts.append(
            [
                row["method"],
                f"{100 * row['noise']:g} %",
                str(row["draws"]),
                vpt,
                bound + _number(row["vpt_time"], ".3g"),
                _number(row["kl"], ".3g"),
                _number(row["seconds"], ".3g"),
                _number(row["cpu_seconds"], ".3g"),
                _number(row["epochs"], ".0f"),
                _number(row["evaluations"], ".2g"),
            ]
        )
    return texts, header


def _number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else format(value, form)
