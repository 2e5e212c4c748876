"""``wpnode simulate``: reference trajectories of known systems, with noise."""

import argparse
from dataclasses import fields
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import numpy as np

from ..common.files import replacing, write_text
from ..data import add_noise, component_names
from ..data.noise import NOISE_OF, noise_table
from ..settings.config import paper_config
from ..settings.text import unknown_key
from ..systems import PRESETS, preset
from ..systems.base import System
from .common import add_command, print_table, say
from .data import DataConfig, RunConfig, with_settings

# Components whose noise is printed.
ROWS = 6


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    systems = "\n".join(
        f"  {name:<21} {row.n_samples} samples, dt = {row.dt:g}; parameters: "
        + ", ".join(f"{key}={value:g}" for key, value in _parameters(row.system))
        for name, row in PRESETS.items()
    )
    parser = add_command(
        commands,
        "simulate",
        "make observations of a known system",
        "Sizes and steps default to the paper's. A .npz file holds `v` (noisy), `u` "
        "(clean),\n`t`, `dt` and `sigma`; a .csv file holds the times and `v`. --test "
        "writes a second file\nwith clean samples that continue the trajectory, "
        "--settings a third one with the paper's\ntraining settings for `wpnode "
        "train`.\n"
        f"\nsystems:\n{systems}",
        "examples:\n"
        "  wpnode simulate lorenz63 --noise 0.05 -o l63.npz --test l63_test.npz\n"
        "  wpnode simulate lorenz96 d=20 forcing=8 -n 20000 -o l96.npz\n"
        "  wpnode simulate lorenz63 --noise 0.05 -o l63.npz --settings l63.yaml",
    )
    parser.add_argument("system", choices=PRESETS, help="which system")
    parser.add_argument(
        "parameters", nargs="*", metavar="key=value", help="parameters of the system"
    )
    parser.add_argument(
        "-n", "--samples", type=int, help="number of samples; the system's by default"
    )
    parser.add_argument(
        "--dt", type=float, help="distance of the samples; the system's by default"
    )
    parser.add_argument(
        "--noise",
        type=float,
        default=0.0,
        help="ratio of added noise: its standard deviation over the RMS of the signal "
        "(see --mode), 0.05 for 5 %%",
    )
    parser.add_argument(
        "--mode",
        default="global_rms",
        choices=("global_rms", "component_rms", "component_std"),
        help="scale of the noise: the RMS of the signal over all components (as in the "
        "paper), the RMS of each component, or its standard deviation",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of start and noise")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="file, .npz or .csv"
    )
    parser.add_argument("--test", type=Path, help="file for clean test samples")
    parser.add_argument(
        "--test-samples", type=int, default=5000, help="number of samples in that file"
    )
    parser.add_argument(
        "--settings", type=Path, help="YAML file for the paper's training settings"
    )
    parser.add_argument(
        "--method",
        default="wp",
        choices=("wp", "weak", "strong"),
        help="method of these settings",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    for path in filter(None, (arguments.output, arguments.test)):
        _check_ending(path)
    listed = preset(arguments.system)
    system = _with_parameters(listed.system, arguments.parameters)
    n, dt = arguments.samples or listed.n_samples, arguments.dt or listed.dt
    extra = arguments.test_samples if arguments.test else 0
    clean = system.simulate(n + extra, dt, seed=arguments.seed)
    noisy, sigma = add_noise(
        clean[:n], arguments.noise, mode=arguments.mode, seed=arguments.seed + 1
    )
    write(arguments.output, noisy.numpy(), clean[:n].numpy(), dt, sigma.numpy())
    say(f"{arguments.output}: {n} samples of {arguments.system}, dt = {dt:g}")
    if arguments.noise:
        print(f"noise: {100 * arguments.noise:g} % of {NOISE_OF[arguments.mode]}\n")
        spread = clean[:n].flatten(1).std(0, correction=0)
        header, rows = noise_table(component_names(None, len(spread)), sigma, spread)
        print_table(rows[:ROWS], header)
        print(f"... and {len(rows) - ROWS} more components\n" if rows[ROWS:] else "")
    if arguments.test:
        rest = clean[n:].numpy()
        write(arguments.test, rest, rest, dt, np.zeros_like(rest[0]))
        say(f"{arguments.test}: the {extra} clean samples that follow")
    if arguments.settings:
        _write_settings(arguments, dt)
        say(f"{arguments.settings}: train with `wpnode train {arguments.settings}`")
    if system.computed_lyapunov_exponent is not None:
        print(
            "largest Lyapunov exponent, for --lyapunov: "
            f"{system.computed_lyapunov_exponent:g} (computed), "
            f"{system.lyapunov_exponent:g} (the paper's)"
        )


def write(
    path: Path, v: np.ndarray, u: np.ndarray, dt: float, sigma: np.ndarray
) -> None:
    """Writes a series in the format of the file's ending."""
    t = dt * np.arange(len(v))
    if path.suffix == ".npz":
        with replacing(path, "wb") as file:
            np.savez_compressed(file, v=v, u=u, t=t, dt=dt, sigma=sigma)
        return
    table = np.column_stack([t, v.reshape(len(v), -1)])
    names = ["t", *component_names(None, table.shape[1] - 1)]
    with replacing(path) as file:
        np.savetxt(file, table, delimiter=",", header=",".join(names), comments="")


def _check_ending(path: Path) -> None:
    if path.suffix not in (".npz", ".csv"):
        raise ValueError(f"a file of data must end in .npz or .csv; got {path.name!r}.")


def _parameters(system: Any) -> list[tuple[str, float]]:
    """Names and values of the parameters: systems are dataclasses of numbers."""
    return [(entry.name, getattr(system, entry.name)) for entry in fields(system)]


def _with_parameters(system: Any, given: list[str]) -> System:
    known = dict(_parameters(system))
    changes = {}
    for entry in given:
        key, equals, text = entry.partition("=")
        if not equals:
            raise ValueError(f"a parameter must read key=value; got {entry!r}.")
        if key not in known:
            raise ValueError(unknown_key(key, list(known)))
        try:
            changes[key] = type(known[key])(text)
        except ValueError:
            raise ValueError(f"`{key}` must be a number; got {text!r}.") from None
    return changed(system, **changes)


def _write_settings(arguments: argparse.Namespace, dt: float) -> None:
    """The paper's settings for this system and these data."""
    from omegaconf import OmegaConf

    paper = paper_config(arguments.system, arguments.method)
    config = with_settings(RunConfig(), paper)
    config.name = arguments.settings.stem
    config.data = DataConfig(path=str(arguments.output), dt=dt)
    text = OmegaConf.to_yaml(OmegaConf.structured(config))
    write_text(arguments.settings, text)
