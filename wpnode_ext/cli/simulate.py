"""``wpnode simulate``: reference trajectories of known systems, with noise."""

import argparse
from pathlib import Path

import numpy as np

from ..data import add_noise
from ..systems import KuramotoSivashinsky, Lorenz63, Lorenz96
from ..systems.base import System
from .common import add_command

# The paper's settings: system, samples, distance, threshold of valid forecasts.
SYSTEMS: dict[str, tuple[type[System], int, float, float]] = {
    "lorenz63": (Lorenz63, 10_000, 0.01, 0.3),
    "lorenz96": (Lorenz96, 100_000, 0.01, 0.5),
    "kuramoto_sivashinsky": (KuramotoSivashinsky, 100_000, 0.25, 0.5),
}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "simulate",
        "make observations of a known system",
        "Sizes and steps default to the paper's. A .npz file holds `v` (noisy), `u` "
        "(clean),\n`t`, `dt` and `sigma`; a .csv file the times and `v`. With --test a "
        "second file\nholds clean samples that continue the trajectory.",
        "example: wpnode simulate lorenz63 --noise 0.05 -o l63.npz --test l63_test.npz",
    )
    parser.add_argument("system", choices=SYSTEMS, help="which system")
    parser.add_argument("-n", "--samples", type=int, help="samples (system's default)")
    parser.add_argument("--dt", type=float, help="their distance (system's default)")
    parser.add_argument(
        "--noise", type=float, default=0.0, help="noise ratio, 0.05 for 5 %%"
    )
    parser.add_argument(
        "--mode",
        default="global_rms",
        choices=("global_rms", "component_rms", "component_std"),
        help="what the ratio refers to",
    )
    parser.add_argument("--seed", type=int, default=0, help="of start and noise")
    parser.add_argument("-o", "--output", type=Path, required=True, help=".npz or .csv")
    parser.add_argument("--test", type=Path, help="file for clean test samples")
    parser.add_argument("--test-samples", type=int, default=5000, help="in that file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    kind, samples, dt, _ = SYSTEMS[arguments.system]
    n, dt = arguments.samples or samples, arguments.dt or dt
    extra = arguments.test_samples if arguments.test else 0
    clean = kind().simulate(n + extra, dt, seed=arguments.seed)
    noisy, sigma = add_noise(
        clean[:n], arguments.noise, mode=arguments.mode, seed=arguments.seed + 1
    )
    write(arguments.output, noisy.numpy(), clean[:n].numpy(), dt, sigma.numpy())
    print(f"{arguments.output}: {n} samples of {arguments.system}, dt = {dt:g}")
    if arguments.test:
        rest = clean[n:].numpy()
        write(arguments.test, rest, rest, dt, np.zeros_like(rest[0]))
        print(f"{arguments.test}: {extra} clean samples that follow")


def write(
    path: Path, v: np.ndarray, u: np.ndarray, dt: float, sigma: np.ndarray
) -> None:
    """Writes a series by the ending of the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    t = dt * np.arange(len(v))
    if path.suffix == ".npz":
        np.savez_compressed(path, v=v, u=u, t=t, dt=dt, sigma=sigma)
    elif path.suffix == ".csv":
        table = np.column_stack([t, v.reshape(len(v), -1)])
        names = ["t", *(f"u{i}" for i in range(table.shape[1] - 1))]
        np.savetxt(path, table, delimiter=",", header=",".join(names), comments="")
    else:
        raise ValueError(f"`--output` must end in .npz or .csv; got {path.name!r}.")
