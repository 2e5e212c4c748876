"""``wpnode tune``: chooses the test function and window for observations."""

import argparse
import csv
from pathlib import Path

from ..common.files import replacing
from ..weak.selection import select_weak_form
from .common import add_command, add_data_arguments, print_table, read_data, say


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "tune",
        "choose the weak form (p, q, ell) from the data alone",
        "Applies the filter of each weak form to the data. `risk` estimates its "
        "squared error in\nunits of the noise (below 1 the filter helps), J is the "
        "paper's score. The last line\nholds the settings to train with.",
    )
    add_data_arguments(parser)
    parser.add_argument(
        "--criterion", choices=("risk", "J"), default="risk", help="score to minimise"
    )
    parser.add_argument("--rows", type=int, default=8, help="number of printed rows")
    parser.add_argument(
        "-o", "--output", type=Path, help="CSV file for the whole table"
    )
    parser.add_argument(
        "--figure", type=Path, help="file for a figure, .png, .pdf or .svg"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    series = read_data(arguments)
    choice = select_weak_form(
        series.v,
        series.dt,
        criterion=arguments.criterion,
        mask=series.mask,
        lengths=series.lengths,
    )
    rows = choice.rows()
    print_table(
        [
            [row["p"], row["ell"], row["q"], f"{row['risk']:.4f}", f"{row['J']:.4f}"]
            for row in rows[: arguments.rows]
        ],
        ("p", "ell", "q of the filter", "risk", "J"),
    )
    if arguments.criterion == "risk":
        print("chosen: the shortest window whose risk is within 10 % of the smallest")
    if choice.note:
        say(choice.note)
    if arguments.output is not None:
        with replacing(arguments.output, newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    if arguments.figure is not None:
        from ..figures import save_figure, window_choice

        save_figure(window_choice(choice), arguments.figure, dpi=150)
    print(f"weak.p={choice.p} weak.ell={choice.ell} weak.q={choice.q}")
