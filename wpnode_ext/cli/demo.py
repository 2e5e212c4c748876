"""``wpnode demo``: the whole way on noisy Lorenz-63, with a report at the end."""

import argparse
import time
from pathlib import Path

import numpy as np

from ..data import add_noise, make_series
from ..estimator import WPNODE
from ..noise import estimate_noise
from ..report import write_report
from ..selection import select_weak_form
from ..systems import Lorenz63
from ..training import OptimConfig, WeakForm
from ..training.run_folder import RunFolder
from .common import add_command, print_table
from .data import DataConfig, RunConfig

DT, NOISE, EXPONENT = 0.01, 0.05, 0.91


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "demo",
        "see all of it on noisy Lorenz-63, in about two minutes",
        "Simulates the Lorenz attractor, adds noise, estimates the noise, chooses the "
        "window\nof the weak form, trains a network, forecasts, and writes a report "
        "with pictures.",
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), help="where to write"
    )
    parser.add_argument("--fast", action="store_true", help="seconds; learns nothing")
    parser.add_argument("--seed", type=int, default=0, help="of everything")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    began = time.perf_counter()
    n, epochs = (1200, 3) if arguments.fast else (10_000, 600)
    folder = RunFolder(arguments.runs / "demo").create(overwrite=True)

    print(f"1. Lorenz-63, {n} samples {DT:g} apart, {NOISE:.0%} noise")
    clean = Lorenz63().simulate(2 * n, DT, seed=arguments.seed)
    noisy, sigma = add_noise(clean[:n], NOISE, seed=arguments.seed)
    data = folder.path / "data.npz"
    np.savez_compressed(data, v=noisy, u=clean[:n], test=clean[n:], dt=DT)

    found = estimate_noise(noisy).sigma
    print(f"2. noise: {sigma[0]:.3f} was added; from the data alone {found.mean():.3f}")

    choice = select_weak_form(noisy, DT)
    print(
        f"3. window: segments of {choice.ell + 1} samples, p = {choice.p}, one every "
        f"{choice.q} samples"
    )

    print(f"4. training a network of 2 x 200 neurons for {epochs} epochs")
    config = RunConfig(
        method="weak",
        weak=WeakForm(choice.p, choice.ell, choice.q),
        optim=OptimConfig(lr=4e-3, epochs=epochs, plateau_patience=40),
        seed=arguments.seed,
        name="demo",
        runs=str(arguments.runs),
        data=DataConfig(path=str(data), dt=DT),
    )
    folder.write_config(config)
    folder.write_environment()
    model = WPNODE(config=config, verbose=True)
    model.fit(make_series(noisy, dt=DT), run=folder)
    model.save(folder.model)

    print("5. forecasting from 30 clean states the model has not seen")
    result = model.evaluate(clean[n:], DT, lyapunov_exponent=EXPONENT, threshold=0.3)
    long = {"members": 3, "duration": 1.0} if arguments.fast else {}
    climate = model.climate(clean[n:], DT, lyapunov_exponent=EXPONENT, **long)
    print("6. writing the report")
    path = write_report(
        folder,
        model,
        series=make_series(noisy, dt=DT),
        clean=clean[:n],
        evaluation=result,
        climate=climate,
        fit=model.goodness_of_fit(noisy, DT),
        note="Reference: the clean trajectory after the training part.",
    )

    unit = round(1 / DT)
    print()
    print_table(
        [
            (
                "noise found in the data",
                f"{found.mean():.2f}",
                f"{sigma[0]:.2f} was added",
            ),
            (
                "forecasts stay right for",
                f"{result.vpt.mean_time:.1f} units of time",
                f"{result.vpt.mean:.1f} Lyapunov times; a swing of the attractor takes "
                "0.75 units",
            ),
            (
                "error after 1 unit of time",
                f"{result.rmse[unit].item():.0%} of the spread",
                f"{result.rmse_persistence[unit].item():.0%} if nothing changed",
            ),
            (
                "long forecasts on the attractor",
                f"{climate.bounded.share:.0%}",
                f"of {climate.u_hat.shape[1]}, over {climate.t[-1].item():.0f} units",
            ),
            (
                "largest Lyapunov exponent",
                "none"
                if climate.lyapunov is None
                else f"{climate.lyapunov.maximal:.2f}",
                f"{EXPONENT} is the system's: how fast small errors grow",
            ),
            ("time taken", f"{time.perf_counter() - began:.0f} s", ""),
        ],
        ("what", "found", "compare with"),
    )
    print(f"\nthe report with pictures: {path}\nthe model: {folder.model}")
    print(f"forecast with it: wpnode forecast {folder.path} --data {data} --steps 500")
