"""``wpnode demo``: from noisy data of Lorenz-63 to a report."""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..common.files import replacing
from ..data import Series, add_noise, make_series
from ..data.noise import NOISE_OF, noise_ratio
from ..metrics.climate import Climate
from ..metrics.evaluation import Evaluation
from ..model.estimator import WPNODE
from ..report.page import Judgement, write_report
from ..settings.config import WeakForm
from ..systems import preset
from ..training.run_folder import RunFolder
from ..weak.noise import estimate_noise
from ..weak.selection import select_weak_form
from .common import add_command, print_table, say
from .data import DataConfig, RunConfig, with_settings

NOISE = 0.05
L63 = preset("lorenz63")
# Mean time between two maxima of z on the attractor.
SWING = 0.75


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "demo",
        "try all steps on noisy Lorenz-63, in about a minute",
        "Simulates the Lorenz attractor, adds noise, estimates the noise, chooses the "
        "window\nof the weak form, learns the field, forecasts, and writes a report "
        "with figures.",
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), help="folder for the run"
    )
    parser.add_argument(
        "--fast", action="store_true", help="takes seconds, and learns little"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all steps")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    threads = torch.get_num_threads()
    # Work of this size gains nothing from a second thread, and beside other busy
    # programs threads mostly wait for each other.
    torch.set_num_threads(1)
    try:
        with RunFolder(arguments.runs / "demo").locked():
            _run(arguments)
    finally:
        torch.set_num_threads(threads)


def _run(arguments: argparse.Namespace) -> None:
    began = time.perf_counter()
    folder = RunFolder(arguments.runs / "demo").create(overwrite=True)
    data = _make_data(arguments, folder.path / "data.npz")
    series = make_series(data.noisy, dt=L63.dt)
    model = _learn(arguments, folder, series)

    print("5. forecasting from 30 states it has not seen, and far ahead from 20")
    exponent = L63.lyapunov_exponent
    result = model.evaluate(
        data.unseen, L63.dt, lyapunov_exponent=exponent, threshold=L63.threshold
    )
    long = {"members": 3, "duration": 1.0} if arguments.fast else {}
    climate = model.climate(data.unseen, L63.dt, lyapunov_exponent=exponent, **long)

    print("6. writing the report")
    found = Judgement(
        evaluation=result,
        climate=climate,
        fit=model.goodness_of_fit(series),
        note="Reference: the clean trajectory after the training data.",
    )
    path = write_report(folder, model, found, series=series, clean=data.clean)
    print()
    _show(data.noise, result, climate, time.perf_counter() - began)
    say(f"\nthe report with figures: {path}\nthe model: {folder.model}")
    start = f"--data {folder.path / 'data.npz'}"
    say(f"forecast with it: wpnode forecast {folder.path} {start} --steps 500")


class _Data(NamedTuple):
    """Noisy samples, the truth behind them, its continuation, the estimated noise."""

    noisy: Tensor
    clean: Tensor
    unseen: Tensor
    noise: float


def _make_data(arguments: argparse.Namespace, path: Path) -> _Data:
    """Simulates the data, writes them to a file, and prints their noise."""
    n, dt = 1500 if arguments.fast else L63.n_samples, L63.dt
    print(
        f"1. data: Lorenz-63, {n} samples {dt:g} apart, noise of {100 * NOISE:g} % of "
        f"{NOISE_OF['global_rms']}"
    )
    clean = L63.system.simulate(2 * n, dt, seed=arguments.seed)
    noisy, sigma = add_noise(clean[:n], NOISE, seed=arguments.seed)
    with replacing(path, "wb") as file:
        np.savez_compressed(file, v=noisy, u=clean[:n], test=clean[n:], dt=dt)
    noise = estimate_noise(noisy)
    ratio = noise_ratio(noisy, noise.sigma)
    levels = ", ".join(f"{level:.3f}" for level in noise.sigma.tolist())
    print(
        f"2. noise: {100 * ratio:.2g} % of the RMS found, "
        f"standard deviations {levels}; {sigma[0]:.3f} was added to each component"
    )
    return _Data(noisy, clean[:n], clean[n:], ratio)


def _learn(arguments: argparse.Namespace, folder: RunFolder, series: Series) -> WPNODE:
    """A model fitted in the default way, saved in its run folder."""
    choice = select_weak_form(series.v, L63.dt)
    print(
        f"3. window: segments of {choice.ell + 1} samples ({choice.window:g} units of "
        f"time), p = {choice.p}, one every {choice.q} samples"
    )
    config = RunConfig(
        weak=WeakForm(choice.p, choice.ell, choice.q),
        seed=arguments.seed,
        name="demo",
        runs=str(arguments.runs),
        data=DataConfig(path=str(folder.path / "data.npz"), dt=L63.dt),
    )
    if arguments.fast:
        config.method, config.refine = "closed_form", False
    model = WPNODE(config=config)
    print("4. learning the field in the default way ...")
    began = time.perf_counter()
    model.fit(series, run=folder)
    folder.write_config(with_settings(config, model.config_))
    folder.write_environment()
    model.save(folder.model)
    print(f"   {_how(model)} in {time.perf_counter() - began:.0f} s")
    return model


def _how(model: WPNODE) -> str:
    """The kind of field and fit, in words."""
    config = model.config_
    if config.method == "closed_form":
        more = ", states and field refined together" if config.refine else ""
        return f"{config.field.features} random features, solved at once{more}"
    return f"a network, trained for {model.result_.epochs} epochs ({config.method})"


def _show(
    noise: float,
    result: Evaluation,
    climate: Climate,
    seconds: float,
) -> None:
    unit = round(1 / L63.dt)
    exponent = climate.lyapunov
    print_table(
        [
            (
                "noise in the data",
                f"{100 * noise:.2g} % of the RMS",
                f"{100 * NOISE:g} % was added",
            ),
            (
                "forecasts stay right for",
                f"{result.vpt.mean_time:.1f} units of time",
                f"{SWING} units are one swing; errors grow e-fold in "
                f"{1 / L63.lyapunov_exponent:.1f}",
            ),
            (
                "error after 1 unit of time",
                f"{result.rmse[unit].item():.0%} of the spread",
                f"{result.rmse_persistence[unit].item():.0%} if nothing changed",
            ),
            (
                "long forecasts that stay on the attractor",
                f"{climate.bounded.share:.0%} of {climate.u_hat.shape[1]}",
                f"over {climate.t[-1].item():.0f} units of time",
            ),
            (
                "speed at which small errors grow",
                "none" if exponent is None else f"{exponent.maximal:.2f}",
                f"{L63.lyapunov_exponent} is the system's (Lyapunov exponent)",
            ),
            ("duration of the demo", f"{seconds:.0f} s", ""),
        ],
        ("quantity", "found", "compare with"),
    )
