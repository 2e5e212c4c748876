"""``wpnode noise``: estimates the noise of observations."""

import argparse

from ..data import component_names
from ..data.noise import NOISE_OF, noise_ratio, noise_table
from ..weak.noise import estimate_noise
from .common import (
    add_command,
    add_data_arguments,
    print_table,
    read_data,
)


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "noise",
        "estimate the noise of a series, without a model",
        "Prints the ratio of noise and signal (RMS), as in `wpnode simulate --noise`, "
        "and the\nstandard deviation of the noise in every component. An unreliable "
        "estimate is an upper\nbound: the signal is not smooth from sample to sample.",
    )
    add_data_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    series = read_data(arguments)
    found = estimate_noise(series.v, mask=series.mask, lengths=series.lengths)
    ratio = noise_ratio(series.with_nan(), found.sigma)
    print(f"noise: {100 * ratio:.3g} % of {NOISE_OF['global_rms']}\n")
    header, rows = noise_table(
        component_names(series.names, series.state_shape.numel()),
        found.sigma,
        series.mean_and_spread()[1],
        found.reliable,
    )
    print_table(rows[:20], header)
    if len(rows) > 20:
        print(f"... and {len(rows) - 20} more components")
