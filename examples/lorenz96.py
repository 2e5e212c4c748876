"""Lorenz-96: a network of five neighbours, shared by all forty sites.

    python examples/lorenz96.py           # about 10 minutes on one CPU core
    python examples/lorenz96.py --fast    # seconds, only to see it run

The equations are the same at every site. A network that knows this (kind "conv", five
neighbouring values in, one rate out) learns from every site at once: here from 10^4
samples where the paper's network sees 10^5. Prints valid prediction times in units of
the exponent we compute (2.3) and of the paper's (1.68), which belongs to another
forcing. The figure goes to ``figures/lorenz96.png``.
"""

# %%
from dataclasses import dataclass
from pathlib import Path

from command_line import start

import wpnode_ext as wp
from wpnode_ext.data import add_noise
from wpnode_ext.figures import save_figure, space_time
from wpnode_ext.systems import Lorenz96


@dataclass
class Settings:
    n_samples: int = 10_000
    n_test: int = 3000
    dt: float = 0.01
    noise_ratio: float = 0.05
    epochs: int = 150
    seed: int = 0


def main(settings: Settings, figure: Path) -> None:
    # %% Data and noise
    system = Lorenz96()
    n = settings.n_samples
    clean = system.simulate(n + settings.n_test, settings.dt, seed=settings.seed)
    noisy, _ = add_noise(clean[:n], settings.noise_ratio, seed=settings.seed)

    # %% Model and training
    config = {
        "method": "weak",
        "weak": {"p": 8, "ell": 80, "q": 4},
        "field": {"kind": "conv", "width": 48},
        "optim": {"lr": 5e-3, "epochs": settings.epochs, "batch_size": 128},
        "scaler": "standard",
        "seed": settings.seed,
    }
    model = wp.WPNODE(config=config, verbose=True).fit(noisy, settings.dt)

    # %% Judgement
    result = model.evaluate(
        clean[n:],
        settings.dt,
        lyapunov_exponent=system.computed_lyapunov_exponent,
        threshold=0.5,
        horizon=min(6.0, settings.dt * settings.n_test / 3),
    )
    print(result)
    paper = system.lyapunov_exponent
    if paper is not None:
        print(f"in the paper's Lyapunov times: {result.vpt.mean_time * paper:.2f}")
    median = result.vpt.vpt.argsort()[len(result.starts) // 2]
    picture = space_time(
        result.t,
        result.u_hat[:, median],
        result.u[:, median],
        valid_until=result.vpt.vpt_time[median].item(),
    )
    save_figure(picture, figure)


if __name__ == "__main__":
    start(main, Settings(), fast=Settings(n_samples=600, n_test=400, epochs=2))
