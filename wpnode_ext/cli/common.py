"""Options, inputs and output that several commands share."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ..common.files import printable
from ..data import Series
from ..model.estimator import WPNODE, load
from ..solvers.rollouts import ADAPTIVE, FIXED_STEP
from ..training.run_folder import RunFolder
from .data import DataConfig, read_series

# Exit code of a command whose model should not be used.
NOT_TO_BE_USED = 3
# Steps a sample of the exponential solver, whose error is that of the nonlinear part.
EXPONENTIAL_STEPS = 8
SOLVERS = ADAPTIVE + FIXED_STEP


class Formatter(
    argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter
):
    """Keeps line breaks, and shows defaults other than None."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.default == []:
            return action.help
        return super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """Escapes control characters in the message about a wrong argument."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    summary: str,
    description: str = "",
    epilog: str = "",
) -> argparse.ArgumentParser:
    """A subcommand whose one-line summary also opens its own help."""
    text = f"{summary[0].upper()}{summary[1:]}."
    return commands.add_parser(
        name,
        help=summary,
        description=f"{text}\n\n{description}" if description else text,
        epilog=epilog,
        formatter_class=Formatter,
    )


def add_data_arguments(
    parser: argparse.ArgumentParser, *, optional: bool = False
) -> None:
    """Adds a file of observations and the options to read it."""
    parser.add_argument(
        "data",
        nargs="?" if optional else None,
        help="observations: .csv, .npz, .npy, .pt, .mat, .nc or .zarr",
    )
    group = add_reading_arguments(parser)
    group.add_argument(
        "--forcing", nargs="+", metavar="NAME", help="columns of known inputs"
    )


def add_reading_arguments(
    parser: argparse.ArgumentParser,
) -> "argparse._ArgumentGroup":
    """Adds the options to read a file of states."""
    group = parser.add_argument_group("reading the data")
    group.add_argument("--dt", type=float, help="distance of the samples")
    group.add_argument("--time", metavar="NAME", help="column or array with the times")
    group.add_argument(
        "--columns", nargs="+", metavar="NAME", help="columns of the state; default all"
    )
    group.add_argument(
        "--series", metavar="NAME", help="column that numbers or names the series"
    )
    return group


def data_config(arguments: argparse.Namespace) -> DataConfig:
    """The file and the way to read it that the arguments describe."""
    return DataConfig(
        path=arguments.data,
        dt=arguments.dt,
        time=arguments.time,
        columns=arguments.columns,
        forcing=getattr(arguments, "forcing", None),
        series=arguments.series,
    )


def add_forecast_arguments(
    parser: "argparse.ArgumentParser | argparse._ArgumentGroup",
    *,
    threshold: float | None = 0.3,
    horizon: str = "",
) -> None:
    """Adds the options of forecasts that are compared with a reference.

    Args:
        parser: of the command.
        threshold: default of ``--threshold``.
        horizon: default of ``--horizon``, in words.
    """
    parser.add_argument("--lyapunov", type=float, help="maximal exponent of the system")
    parser.add_argument(
        "--threshold",
        type=float,
        default=threshold,
        help="error, in units of the spread, up to which a forecast is valid"
        + ("; 0.3, for systems the paper's" if threshold is None else ""),
    )
    parser.add_argument("--starts", type=int, default=30, help="number of forecasts")
    parser.add_argument(
        "--horizon", type=float, help=f"units of time to forecast; {horizon}"
    )


def add_solver_arguments(
    parser: "argparse.ArgumentParser | argparse._ArgumentGroup",
) -> None:
    """Adds the solver of forecasts and its steps."""
    parser.add_argument(
        "--solver",
        choices=SOLVERS,
        default="dopri5",
        metavar="NAME",
        help=f"one of {', '.join(SOLVERS)}; etdrk4 is for stiff fields",
    )
    parser.add_argument(
        "--substeps",
        type=int,
        help="steps a sample of solvers with fixed steps; by default "
        f"{EXPONENTIAL_STEPS} with etdrk4, else 1",
    )


def substeps_of(substeps: int | None, solver: str, default: int = 1) -> int:
    """Steps a sample; by default the number that suits the solver."""
    if substeps is None:
        return EXPONENTIAL_STEPS if solver == "etdrk4" else default
    if substeps < 1:
        raise ValueError(f"`--substeps` must be >= 1; got {substeps}.")
    return substeps


def read_data(arguments: argparse.Namespace) -> Series:
    """The series that the arguments describe; samples must be equally spaced."""
    series = read_series(data_config(arguments))
    if series.dt is None:
        raise ValueError(
            f"{arguments.data} must have samples at equal distances to choose a window "
            f"from; it has {series.describe()}. Train with weak.ell such that a "
            "segment spans about a tenth of a typical oscillation."
        )
    return series


def read_model(path: str) -> WPNODE:
    """The model of a file or of a run folder."""
    place = Path(path)
    if place.is_dir():
        run = RunFolder(place).require()
        if not run.model.exists():
            raise FileNotFoundError(
                f"the run in {path} has no {run.model.name} yet; finish it with "
                f"`wpnode train --resume {path}`."
            )
        place = run.model
    return load(place)


def say(text: str) -> None:
    """Prints lines with control characters escaped; names in them come from files."""
    print(printable(text, keep="\n"), flush=True)


def print_table(
    rows: Sequence[Sequence[object]], header: Sequence[str] | None = None
) -> None:
    """Prints aligned columns.

    Args:
        rows: the cells; numbers in them are formatted already.
        header: names of the columns.
    """
    lines = [[printable(cell) for cell in row] for row in rows]
    if header is not None:
        lines.insert(0, [printable(name) for name in header])
        lines.insert(1, ["-" * len(name) for name in header])
    widths = [max(len(row[i]) for row in lines) for i in range(len(lines[0]))]
    for row in lines:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def print_verdict(model: WPNODE) -> int:
    """Prints the verdict on a model, and returns the exit code for it."""
    if model.verdict_ is None:
        return 0
    verdict, figures = model.verdict_.lines()
    say(f"\n{verdict}\n{figures}")
    return NOT_TO_BE_USED if model.verdict_.grade == "do not use" else 0
