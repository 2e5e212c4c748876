"""One protocol for all methods: the same data, starts and judgement for each.

A job is one method at one noise level on one draw; its result is one row of a table on
disk, so that what is finished is not done again.
"""

import csv
import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..common.files import replacing
from ..data import Series
from ..training import TrainResult
from .base import Baseline
from .evaluations import counted_evaluations
from .maps import MapBaseline
from .methods import make_method
from .protocol import SEEDS, Job, Protocol

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


def run_job(job: Job, protocol: Protocol) -> Row:
    """Fits and judges one model; a method that fails leaves the reason in its row.

    Raises:
        KeyboardInterrupt: a signal ended the training; what it had learned is no row.
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

    Times of the "censored" starts, still valid at the horizon, are lower bounds.
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
    tied = isinstance(model, MapBaseline)
    step = {} if tied else {"step": reference.dt / protocol.substeps}
    found = model.evaluate(
        reference.v,
        reference.dt,
        threshold=protocol.threshold,
        starts=protocol.starts,
        horizon=horizon,
        **({} if tied else {"method": protocol.solver}),
        **step,
        **common,
    )
    climate = model.climate(
        reference.v,
        reference.dt,
        members=10,
        exponent=False,
        **({} if tied else {"solvers": (protocol.solver,)}),
        **step,
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
            f"{path}, row {len(rows) + 1} cannot be read ({error}). Remove the row, or "
            "do all runs again with `--fresh`."
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
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.8g}"
    return value
