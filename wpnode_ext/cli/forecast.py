"""``wpnode forecast``: what comes next?"""

import argparse
import csv
import warnings
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..common.files import replacing
from ..model.forecaster import Assimilator
from .common import (
    add_command,
    add_solver_arguments,
    print_table,
    read_model,
    say,
    substeps_of,
)
from .data import DataConfig, read_as_trained
from .inputs import read_inputs


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
        help="file whose sample is the start, read as the data of training were",
    )
    start.add_argument("--state", help="the start itself, e.g. 1.0,2.5,20")
    parser.add_argument("--at", type=int, default=-1, help="sample of the file")
    parser.add_argument("--steps", type=int, default=100, help="samples to forecast")
    parser.add_argument("--dt", type=float, help="their distance; that of training")
    parser.add_argument(
        "--columns", nargs="+", metavar="NAME", help="of the state in that file"
    )
    parser.add_argument(
        "--forcing",
        help="file with the inputs; linear between its times, or without times one row "
        "for the start and each step",
    )
    add_solver_arguments(parser)
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="start where the noisy samples of the file and the model agree, with "
        "--spread every member where it does, not from the sample as it is",
    )
    parser.add_argument(
        "--spread",
        action="store_true",
        help="also the standard deviation over the ensemble the model was fitted with",
    )
    parser.add_argument("-o", "--output", type=Path, help=".csv or .npz")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    model = read_model(arguments.model)
    dt = arguments.dt or model.dt_
    if dt is None:
        raise ValueError("the model was trained on irregular times; give --dt.")
    start, starts, t0, known = _start(arguments, model)
    t = t0 + dt * torch.arange(arguments.steps + 1, dtype=torch.float64)
    forcing = None
    if arguments.forcing is not None:
        forcing = read_inputs(arguments.forcing, t, arguments.model, known)
    steps = substeps_of(arguments.substeps, arguments.solver)
    how: dict[str, Any] = {"method": arguments.solver, "step": dt / steps}
    with warnings.catch_warnings():
        # A forecast that diverged is an error of the command, at its end.
        warnings.simplefilter("ignore", RuntimeWarning)
        forecast = model.forecast(start, t, forcing=forcing, **how)
    table = forecast.reshape(len(t), -1).numpy()
    names = list(model.names_ or (f"u{i}" for i in range(table.shape[1])))
    arrays: dict[str, Any] = {"u": forecast.numpy()}
    ended = ~np.isfinite(table).all(1)
    if arguments.spread:
        std = model.forecast_ensemble(starts, t, **how).std.reshape(forecast.shape)
        arrays["std"] = std.numpy()
        table = np.column_stack([table, std.reshape(len(t), -1).numpy()])
        names += [f"{name}_std" for name in names]
    if arguments.output is None:
        shown = torch.linspace(0, len(t) - 1, min(len(t), 11)).round().long().tolist()
        rows = [
            [f"{t[i].item():g}", *(f"{x:.5g}" for x in table[i][:8])] for i in shown
        ]
        print_table(rows, ["t", *names[:8]])
    else:
        _write(arguments.output, t.numpy(), arrays, table, names)
        say(f"{arguments.output}: {len(t)} states, dt = {dt:g}")
    if ended.any():
        raise RuntimeError(f"the forecast diverged at t = {t[int(ended.argmax())]:g}.")


def _start(
    arguments: argparse.Namespace, model: Assimilator
) -> tuple[torch.Tensor, torch.Tensor, float, Mapping[str, Any]]:
    """The start of the forecast, of the ensemble, their time, facts on their file."""
    if arguments.state is not None:
        if arguments.estimate:
            raise ValueError("`--estimate` needs the samples of a file; give `--data`.")
        try:
            numbers = [float(x) for x in arguments.state.split(",")]
        except ValueError:
            raise ValueError(
                f"`--state` must be numbers with commas; got {arguments.state!r}."
            ) from None
        shape = model.state_shape_
        if len(numbers) != prod(shape):
            raise ValueError(
                f"`--state` must have {prod(shape)} numbers, the size of the state; "
                f"got {len(numbers)}."
            )
        state = torch.tensor(numbers, dtype=torch.float64).view(shape)
        return state, state, 0.0, {}
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
        return state, starts, time, series.meta
    if series.missing[at]:
        raise ValueError(
            f"sample {at} of {arguments.data} has missing values; give another by --at "
            "or --estimate it."
        )
    return series.v[at], series.v[at], time, series.meta


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
