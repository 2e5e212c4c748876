"""``wpnode noise``: how noisy are these data?"""

import argparse

from ..noise import estimate_noise
from .common import (
    add_command,
    add_data_arguments,
    component_names,
    print_table,
    read_data,
)


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "noise",
        "estimate the noise of a series, without a model",
        "Prints the standard deviation of the noise of every component, beside the "
        "spread of\nthe data. An estimate that is not reliable is an upper bound: the "
        "signal is not\nsmooth from sample to sample.",
    )
    add_data_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    series = read_data(arguments)
    found = estimate_noise(series.v, mask=series.mask, lengths=series.lengths)
    spread = series.v.flatten(1).std(0).tolist()
    sigma, sure = found.sigma.flatten().tolist(), found.reliable.flatten().tolist()
    names = component_names(series)
    rows = [
        (name, f"{s:.4g}", f"{100 * s / d if d else 0:.2f} %", "yes" if ok else "no")
        for name, s, d, ok in zip(names, sigma, spread, sure, strict=True)
    ]
    header = ("component", "noise (std)", "of the data's std", "reliable")
    print_table(rows[:20], header)
    if len(rows) > 20:
        print(f"... and {len(rows) - 20} more components")
