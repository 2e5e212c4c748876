"""``wpnode compare``: any set of methods on the same data, one table."""

import argparse
import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..baselines.base import METHODS, same_distance
from ..baselines.comparison import (
    Row,
    cells,
    failures,
    markdown,
    read_rows,
    run_jobs,
    summary,
    unit_of,
    without_failures,
    write_rows,
)
from ..baselines.methods import make_method
from ..baselines.protocol import RESULTS_FILE, Job, Protocol, agree, set_aside
from ..common.files import write_text
from ..common.registry import suggestion
from ..data import Series
from ..figures import comparison, save_figure
from ..systems import preset
from ..systems.presets import PRESETS
from ..training.run_folder import run_lock
from .common import (
    EXPONENTIAL_STEPS,
    SOLVERS,
    add_command,
    add_forecast_arguments,
    add_reading_arguments,
    data_config,
    print_table,
    say,
    substeps_of,
)
from .data import read_series

DESCRIPTION = """\
DATA is a system (lorenz63, lorenz96, kuramoto_sivashinsky) or a file of observations.
All methods get the same noise, starts and judgement. Every finished run becomes a row
of OUTPUT/runs.csv and is not repeated: call the command again to continue, or with more
methods, noise levels or draws. OUTPUT/protocol.json holds the other settings of the
rows; different settings need another folder. OUTPUT/table.md and table.png hold the
results."""

# Systems whose fields explode under Runge-Kutta steps from sample to sample.
STIFF = {"kuramoto_sivashinsky"}
# Steps a sample of rk4: with one, forecasts by the true field of Lorenz-63 hold for
# 10.7 Lyapunov times of 12.
RUNGE_KUTTA_STEPS = 4


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "compare",
        "run several methods on the same data and tabulate them",
        DESCRIPTION,
        "example: wpnode compare lorenz63 --methods closed_form,deepskip,weak_sindy "
        "--noise 0,0.05",
    )
    parser.add_argument("data", help="a system, or a file of observations")
    parser.add_argument(
        "--methods",
        type=_names,
        default="closed_form,deepskip,weak_sindy",
        help=f"comma-separated, of: {', '.join(METHODS.names)}",
    )
    parser.add_argument(
        "--noise",
        type=_levels,
        help="ratios of added noise, comma-separated; 0,0.05 for a system, 0 for a "
        "file",
    )
    parser.add_argument(
        "--draws", type=int, default=1, help="repetitions with other random numbers"
    )
    parser.add_argument("--samples", type=int, help="of a system; its own by default")
    parser.add_argument("--reference", help="file of clean states that continue DATA")
    add_forecast_arguments(
        parser,
        threshold=None,
        horizon="by default 12 Lyapunov times for a system, the whole reference for a "
        "file",
    )
    parser.add_argument(
        "--solver",
        choices=SOLVERS,
        metavar="NAME",
        help=f"one of {', '.join(SOLVERS)}; rk4 by default, etdrk4 for "
        "kuramoto_sivashinsky",
    )
    parser.add_argument(
        "--substeps",
        type=int,
        help="steps a sample of solvers with fixed steps; by default "
        f"{RUNGE_KUTTA_STEPS} with rk4, {EXPONENTIAL_STEPS} with etdrk4, else 1",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="METHOD.KEY=VALUE",
        help="a setting of a method, e.g. deepskip.width=1024",
    )
    parser.add_argument("--retry", action="store_true", help="repeat failed runs")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="start again; renames the results in OUTPUT to runs.csv.old",
    )
    parser.add_argument("--workers", type=int, default=1, help="number of processes")
    parser.add_argument(
        "-o", "--output", type=Path, help="folder; compare/DATA by default"
    )
    add_reading_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    protocol = protocol_of(arguments)
    if arguments.noise is None:
        arguments.noise = [0.0] if protocol.system is None else [0.0, 0.05]
    name = protocol.system or Path(arguments.data).stem
    folder = arguments.output or Path("compare") / name
    for method in arguments.methods:
        make_method(
            method, system=protocol.system, options=protocol.options.get(method)
        )
    if arguments.fresh:
        set_aside(folder)
    agree(folder, protocol, arguments.methods)
    path = folder / RESULTS_FILE
    rows = read_rows(path)
    if arguments.retry:
        rows = without_failures(rows)
        write_rows(path, rows)
    wanted = list(_jobs(arguments, rows))
    say(f"{len(wanted)} runs to do, {len(rows)} in {path}")
    for row in run_jobs(wanted, protocol, arguments.workers):
        # Another comparison may write to the same file at the same time.
        with run_lock(folder, wait=True):
            rows = [*read_rows(path), row]
            write_rows(path, rows)
        say(_line(row))
    if not rows:
        raise ValueError("`--methods` must name one method or more; got none.")
    _write_table(folder, name, protocol)


def _write_table(folder: Path, name: str, protocol: Protocol) -> None:
    """Prints the table of all results in a folder, and writes it with its figure."""
    table = summary(read_rows(folder / RESULTS_FILE))
    write_text(folder / "table.md", markdown(table, name, protocol))
    print_table(*cells(table))
    for text in failures(table):
        say(text)
    try:
        save_figure(comparison(table, unit_of(protocol)), folder / "table.png")
    except ImportError as error:
        say(f"no figure: {error}")
    say(f"table and figure: {folder}")


def _jobs(arguments: argparse.Namespace, done: Sequence[Row]) -> Iterator[Job]:
    """Jobs that have no row yet; the first draw of all methods comes first."""
    finished = {(row["method"], row["noise"], row["draw"]) for row in done}
    for draw in range(arguments.draws):
        for method in arguments.methods:
            for noise in arguments.noise:
                if (method, noise, draw) not in finished:
                    yield Job(method, noise, draw)


def _line(row: Row) -> str:
    head = f"{row['method']} at {row['noise']:g}, draw {row['draw']}: "
    if row.get("failure"):
        return head + row["failure"]
    return head + f"VPT {row['vpt']:.2f}, {row['seconds']:.1f} s"


def _names(text: str) -> list[str]:
    names = [word.strip() for word in text.split(",") if word]
    try:
        for name in names:
            METHODS.find(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return names


def _levels(text: str) -> list[float]:
    return [float(word) for word in text.split(",") if word]


def protocol_of(arguments: argparse.Namespace) -> Protocol:
    """The protocol that the arguments describe."""
    options = settings_of(arguments.set)
    for method in options:
        if method not in arguments.methods:
            raise ValueError(
                f"`--set` must be for one of the methods {', '.join(arguments.methods)}"
                f"; got {method!r}. Add it to --methods, or leave the setting out."
            )
    default = "etdrk4" if arguments.data in STIFF else "rk4"
    solver = arguments.solver or default
    fewest = RUNGE_KUTTA_STEPS if solver in ("rk4", "rk4_classic") else 1
    common: dict[str, Any] = {
        "starts": arguments.starts,
        "solver": solver,
        "substeps": substeps_of(arguments.substeps, solver, fewest),
        "options": options,
    }
    if arguments.data in PRESETS:
        return _protocol_of_system(arguments, common)
    return _protocol_of_file(arguments, common)


def _protocol_of_system(
    arguments: argparse.Namespace, common: dict[str, Any]
) -> Protocol:
    for name in ("dt", "time", "columns", "series", "reference"):
        _refuse(arguments, name, "a file", "a system")
    listed = preset(arguments.data)
    exponent = arguments.lyapunov or listed.lyapunov_exponent
    return Protocol(
        system=arguments.data,
        samples=arguments.samples,
        lyapunov_exponent=exponent,
        threshold=arguments.threshold or listed.threshold,
        horizon=_horizon(arguments.horizon, exponent) or 12.0,
        **common,
    )


def _protocol_of_file(
    arguments: argparse.Namespace, common: dict[str, Any]
) -> Protocol:
    _refuse(arguments, "samples", "a system", "a file")
    if not Path(arguments.data).exists():
        raise FileNotFoundError(
            f"`data` must be one of {', '.join(PRESETS)} or a file; there is no "
            f"{arguments.data}.{suggestion(arguments.data, PRESETS)}"
        )
    where = data_config(arguments)
    series = read_series(where)
    if series.dt is None:
        raise ValueError("`data` must have samples at equal distances to be compared.")
    reference = None
    if arguments.reference:
        reference = read_series(replace(where, path=arguments.reference))
        _check_reference(reference, series)
    return Protocol(
        series=series,
        reference=reference,
        lyapunov_exponent=arguments.lyapunov,
        threshold=arguments.threshold or 0.3,
        horizon=_horizon(arguments.horizon, arguments.lyapunov),
        **common,
    )


def _horizon(time: float | None, exponent: float | None) -> float | None:
    """A horizon in Lyapunov times; in units of time without an exponent."""
    return time if time is None or exponent is None else time * exponent


def settings_of(entries: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``METHOD.KEY=VALUE`` by method; values are Python literals, or words."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        left, equals, text = entry.partition("=")
        method, dot, key = left.partition(".")
        if not (equals and dot and key):
            raise ValueError(f"`--set` must read METHOD.KEY=VALUE; got {entry!r}.")
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
        found.setdefault(method, {})[key] = value
    return found


def _refuse(arguments: argparse.Namespace, name: str, wanted: str, given: str) -> None:
    """Raises if an option was given that has no effect on these data."""
    if getattr(arguments, name) is not None:
        raise ValueError(
            f"`--{name}` is for {wanted}; {arguments.data} is {given}. Leave it out."
        )


def _check_reference(reference: Series, series: Series) -> None:
    if reference.dt is None:
        raise ValueError("`--reference` must have samples at equal distances.")
    if not same_distance(reference.dt, series.dt):
        raise ValueError(
            f"`--reference` must have samples {series.dt:g} apart, as the data have; "
            f"got {reference.dt:g}. Take it at the times of the data."
        )
    if reference.state_shape != series.state_shape:
        raise ValueError(
            f"`--reference` must have states of shape {list(series.state_shape)}, as "
            f"the data have; got {list(reference.state_shape)}."
        )
