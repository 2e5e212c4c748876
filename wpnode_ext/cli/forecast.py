"""``wpnode forecast``: solve a trained model forward in time."""

import argparse
import csv
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..common.files import replacing
from ..data import MissingName, Series, component_names
from ..data.loaders import READERS, load_arrays
from ..fields import Forcing
from ..model.forecaster import Assimilator
from .common import (
    add_command,
    add_solver_arguments,
    print_table,
    read_model,
    say,
    substeps_of,
)
from .data import DataConfig, data_of_run, read_as_trained, read_series


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "forecast",
        "solve a trained model forward in time",
        "Starts from the last sample of a file, from sample --at of it, or from "
        "--state.\nForecasts are in the units of the data, in float64.",
        "example: wpnode forecast runs/first --data l63.npz --steps 500 -o next.csv",
    )
    parser.add_argument("model", help="run folder or model file")
    start = parser.add_mutually_exclusive_group(required=True)
    start.add_argument(
        "--data",
        help="file with the start among its samples, read like the training data",
    )
    start.add_argument("--state", help="the start itself, e.g. 1.0,2.5,20")
    parser.add_argument("--at", type=int, default=-1, help="sample of the file")
    parser.add_argument("--steps", type=int, default=100, help="samples to forecast")
    parser.add_argument(
        "--dt", type=float, help="distance of the samples; by default that of training"
    )
    parser.add_argument(
        "--columns",
        nargs="+",
        metavar="NAME",
        help="columns of the state in that file; by default those of training",
    )
    parser.add_argument(
        "--forcing-file",
        metavar="FILE",
        help="file with the known inputs: linear between its times; without times one "
        "row for the start and each step",
    )
    add_solver_arguments(parser)
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="start from the state that the model estimates from the noisy samples of "
        "the file, not from the sample itself; with --spread, each member from its own",
    )
    parser.add_argument(
        "--spread",
        action="store_true",
        help="add the standard deviation over the model's ensemble",
    )
    parser.add_argument("-o", "--output", type=Path, help=".csv or .npz")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    model = read_model(arguments.model)
    dt = arguments.dt or model.dt_
    if dt is None:
        raise ValueError(
            "`--dt` must be given: the model was trained on irregular times."
        )
    start = _read_start(arguments, model)
    t = start.t + dt * torch.arange(arguments.steps + 1, dtype=torch.float64)
    forcing = None
    if arguments.forcing_file is not None:
        forcing = read_inputs(arguments.forcing_file, t, arguments.model, start.meta)
    steps = substeps_of(arguments.substeps, arguments.solver)
    solver: dict[str, Any] = {"method": arguments.solver, "step": dt / steps}
    with warnings.catch_warnings():
        # The command ends with an error if the forecast diverged.
        warnings.simplefilter("ignore", RuntimeWarning)
        forecast = model.forecast(start.state, t, forcing=forcing, **solver)
    table = forecast.reshape(len(t), -1).numpy()
    names = component_names(model.names_, table.shape[1])
    arrays: dict[str, Any] = {"u": forecast.numpy()}
    diverged = ~np.isfinite(table).all(1)
    if arguments.spread:
        ensemble = model.forecast_ensemble(start.ensemble, t, **solver)
        std = ensemble.std.reshape(forecast.shape)
        arrays["std"] = std.numpy()
        table = np.column_stack([table, std.reshape(len(t), -1).numpy()])
        names += [f"{name}_std" for name in names]
    if arguments.output is None:
        _print_some(t, table, names)
    else:
        _write(arguments.output, t.numpy(), arrays, table, names)
        say(f"{arguments.output}: {len(t)} states, dt = {dt:g}")
    if diverged.any():
        first = int(diverged.argmax())
        raise RuntimeError(f"the forecast diverged at t = {t[first]:g}.")


def _print_some(
    t: Float[Tensor, " T"], table: np.ndarray, names: list[str], rows: int = 11
) -> None:
    """Prints at most `rows` times of a forecast, with its first eight columns."""
    shown = torch.linspace(0, len(t) - 1, min(len(t), rows)).round().long().tolist()
    cells = [[f"{t[i].item():g}", *(f"{x:.5g}" for x in table[i][:8])] for i in shown]
    print_table(cells, ["t", *names[:8]])


@dataclass(frozen=True)
class _Start:
    """Where a forecast starts.

    Attributes:
        state: the state of the forecast.
        ensemble: the state of all members, or one for each.
        t: time of these states.
        meta: metadata of the file that holds them.
    """

    state: Tensor
    ensemble: Tensor
    t: float
    meta: Mapping[str, Any]


def _read_start(arguments: argparse.Namespace, model: Assimilator) -> _Start:
    """The start that ``--state``, or ``--data`` with ``--at``, describes."""
    if arguments.state is not None:
        if arguments.estimate:
            raise ValueError("`--estimate` must come with `--data`, a file of samples.")
        state = _state_of(arguments.state, model.state_shape_)
        return _Start(state, state, 0.0, {})
    where = DataConfig(path=arguments.data, columns=arguments.columns)
    series = read_as_trained(where, model, arguments.model)
    at = arguments.at if arguments.at >= 0 else series.n_samples + arguments.at
    if not 0 <= at < series.n_samples:
        raise ValueError(
            f"`--at` must be a sample of the {series.n_samples} in the file; "
            f"got {arguments.at}."
        )
    time = series.times[at].item()
    if arguments.estimate:
        state = model.estimate_states(series).states[at]
        spread = arguments.spread
        starts = model.draw_starts(series, at=at) if spread else state
        return _Start(state, starts, time, series.meta)
    if series.missing[at]:
        raise ValueError(
            f"`--at` must be a sample without missing values; sample {at} of "
            f"{arguments.data} has some. Choose another, or give --estimate."
        )
    return _Start(series.v[at], series.v[at], time, series.meta)


def _state_of(text: str, shape: tuple[int, ...]) -> Float[Tensor, "..."]:
    """The state in the text of ``--state``."""
    try:
        numbers = [float(x) for x in text.split(",")]
    except ValueError:
        raise ValueError(
            f"`--state` must be numbers separated by commas; got {text!r}."
        ) from None
    if len(numbers) != prod(shape):
        raise ValueError(
            f"`--state` must have {prod(shape)} numbers, the size of the state; got "
            f"{len(numbers)}."
        )
    return torch.tensor(numbers, dtype=torch.float64).view(shape)


def _write(
    path: Path,
    t: np.ndarray,
    arrays: dict[str, Any],
    table: np.ndarray,
    names: list[str],
) -> None:
    if path.suffix == ".npz":
        with replacing(path, "wb") as file:
            np.savez_compressed(file, t=t, **arrays)
    elif path.suffix == ".csv":
        rows = np.column_stack([t, table])
        with replacing(path, newline="") as file:
            # A name may hold a comma.
            csv.writer(file, lineterminator="\n").writerow(["t", *names])
            np.savetxt(file, rows, delimiter=",", fmt="%.10g")
    else:
        raise ValueError(f"`--output` must end in .npz or .csv; got {path.name!r}.")


def read_inputs(
    path: str,
    t: Float[Tensor, " T"],
    run: str | Path,
    start: Mapping[str, Any],
) -> Forcing:
    """Inputs that cover the times `t`, linear between those of the file.

    A file without times must hold one row for each of `t`.

    Args:
        path: file of inputs alone, or one like the data of training.
        t: times of the forecast.
        run: file or folder of the model; the settings in a run folder name the columns
            of the inputs and of the times.
        start: metadata of the file that holds the start. It has the first date where
            times are dates.
    """
    timed = _with_times(path, run)
    if timed is None:
        return Forcing(t, _row_by_row(path, len(t), run))
    if timed.n_series > 1:
        raise ValueError(
            f"`--forcing-file` must hold one series; got {timed.n_series}."
        )
    known = ~timed.missing
    times = _times_since_start(timed, start, path)
    inputs = Forcing(times[known], timed.v.flatten(1)[known])
    inputs.check_covers(t[0].item(), t[-1].item())
    return inputs


def _with_times(path: str, run: str | Path) -> Series | None:
    """The inputs at the times of their file; None if the file has no times."""
    trained, reader = data_of_run(run), READERS.get(Path(path).suffix.lower())
    names: list[str | None] = [trained.time] if trained.time else []
    # A file of arrays may have a `dt`, which says nothing about the time of the start.
    names += ["t", "time"] if reader is load_arrays else [None]
    for columns, time in product(_columns(trained), names):
        found = _read_if_named(DataConfig(path=path, columns=columns, time=time))
        if found is not None:
            return found
    return None


def _row_by_row(path: str, count: int, run: str | Path) -> Float[Tensor, "T C"]:
    """The inputs of a file without times, one row for each time of the forecast."""
    configs = [
        DataConfig(path=path, columns=columns, dt=1.0)
        for columns in _columns(data_of_run(run))
    ]
    table = _read_if_named(configs[0]) if len(configs) > 1 else None
    table = table or read_series(configs[-1])
    if table.n_samples != count:
        raise ValueError(
            f"`--forcing-file` must have {count} rows, one for each time of the "
            f"forecast, as {path} has no times; got {table.n_samples}. Give it times, "
            "or change --steps."
        )
    if table.missing.any():
        raise ValueError(
            f"`--forcing-file` must have a value at every time of the forecast; {path} "
            "has rows with missing ones. Fill them, or drop the rows and give times."
        )
    return table.v.flatten(1)


def _columns(trained: DataConfig) -> Iterator[list[str] | None]:
    """Candidates for the columns of the inputs: those of training, then all."""
    if trained.forcing:
        yield trained.forcing
    yield None


def _read_if_named(config: DataConfig) -> Series | None:
    """The series that `config` names; None if the file lacks one of the names."""
    try:
        return read_series(config)
    except MissingName:
        return None


def _times_since_start(
    inputs: Series, start: Mapping[str, Any], path: str
) -> Float[Tensor, " M"]:
    """Times of the inputs in the unit, and from the first date, of the start's file."""
    own = inputs.meta
    if ("first_date" in own) != ("first_date" in start):
        which = "dates" if "first_date" in own else "numbers"
        raise ValueError(
            "`--forcing-file` must have numbers or dates as times, like the file of "
            f"the start; {path} has {which}."
        )
    if "first_date" not in own:
        return inputs.times
    first, origin = (np.datetime64(m["first_date"], "ns") for m in (own, start))
    delay = (first - origin).astype(np.int64) / 1e9
    seconds = delay + own["seconds_per_unit"] * inputs.times
    return seconds / start["seconds_per_unit"]
