"""Lorenz-63 with the paper's settings: learn from 5 % noise, forecast, judge.

    python examples/lorenz63.py           # about 20 minutes on one CPU core
    python examples/lorenz63.py --fast    # seconds, only to see it run

Trains WP-NODE (p = 8, ell = 50, q = 2; one-step strong term, lambda = 0.5) on 10^4
samples and prints valid prediction times from 30 clean starts; the paper reports 2.90
Lyapunov times. The figure shows three forecasts: ``figures/lorenz63.png``.
"""

# %%
from dataclasses import dataclass
from pathlib import Path

from command_line import start

import wpnode_ext as wp
from wpnode_ext.data import add_noise
from wpnode_ext.figures import forecast, save_figure
from wpnode_ext.systems import Lorenz63


@dataclass
class Settings:
    n_samples: int = 10_000
    n_test: int = 10_000
    dt: float = 0.01
    noise_ratio: float = 0.05  # of the RMS of the clean signal
    epochs: int = 1500
    seed: int = 0


def main(settings: Settings, figure: Path) -> None:
    # %% Data
    system = Lorenz63()
    n = settings.n_samples
    clean = system.simulate(n + settings.n_test, settings.dt, seed=settings.seed)
    train, test = clean[:n], clean[n:]

    # %% Noise
    noisy, sigma = add_noise(train, settings.noise_ratio, seed=settings.seed)
    estimated = ", ".join(f"{s:.3f}" for s in wp.estimate_noise(noisy).sigma)
    print(f"noise (std): {sigma[0]:.3f} added to each component, {estimated} estimated")

    # %% Model and training
    model = wp.WPNODE(
        method="wp",
        p=8,
        ell=50,
        q=2,
        lam=0.5,
        epochs=settings.epochs,
        seed=settings.seed,
        verbose=True,
    ).fit(noisy, settings.dt)

    # %% Judgement
    result = model.evaluate(
        test, settings.dt, lyapunov_exponent=system.lyapunov_exponent, threshold=0.3
    )
    print(result)
    picture = forecast(
        result.t,
        result.u_hat,
        result.u,
        valid_until=result.vpt.vpt_time,
        titles=[f"start {number}" for number in range(1, 4)],
        names=["x", "y", "z"],
    )
    save_figure(picture, figure)


if __name__ == "__main__":
    start(main, Settings(), fast=Settings(n_samples=1000, n_test=1000, epochs=2))
