"""Lorenz-63 with the paper's settings: learn from 5 % noise, forecast, judge.

    python examples/lorenz63.py           # about 20 minutes on one CPU core
    python examples/lorenz63.py --fast    # seconds, only to see it run

Trains WP-NODE (p = 8, ell = 50, q = 2; one-step strong term, lambda = 0.5) on 10^4
samples and prints valid prediction times from 30 clean starts; the paper reports 2.90
Lyapunov times. The figure goes to ``figures/lorenz63.png``.
"""

# %%
import argparse
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt

from wpnode_ext.data import add_noise
from wpnode_ext.metrics.evaluation import Evaluation
from wpnode_ext.model.estimator import WPNODE
from wpnode_ext.systems import Lorenz63
from wpnode_ext.weak.noise import estimate_noise


@dataclass
class Settings:
    n_samples: int = 10_000
    n_test: int = 10_000
    dt: float = 0.01
    noise_ratio: float = 0.05  # of the RMS of the clean signal
    p: int = 8
    ell: int = 50
    q: int = 2
    lam: float = 0.5
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
    estimated = ", ".join(f"{s:.3f}" for s in estimate_noise(noisy).sigma)
    print(f"noise (std): {sigma[0]:.3f} added to each component, {estimated} estimated")

    # %% Model
    model = WPNODE(
        method="wp",
        p=settings.p,
        ell=settings.ell,
        q=settings.q,
        lam=settings.lam,
        epochs=settings.epochs,
        seed=settings.seed,
        verbose=True,
    )

    # %% Train
    model.fit(noisy, settings.dt)

    # %% Judge
    result = model.evaluate(
        test, settings.dt, lyapunov_exponent=system.lyapunov_exponent, threshold=0.3
    )
    print(result)
    draw(result, figure)
    print(f"figure: {figure}")


def draw(result: Evaluation, path: Path) -> None:
    """The forecast of median length in all components, and the attractor."""
    member = result.vpt.vpt.argsort()[len(result.starts) // 2]
    figure = plt.figure(figsize=(10, 4), layout="constrained")
    grid = figure.add_gridspec(3, 3)
    for number, name in enumerate("xyz"):
        axes = figure.add_subplot(grid[number, :2])
        axes.plot(result.t, result.u[:, member, number], "k", lw=1, label="truth")
        axes.plot(result.t, result.u_hat[:, member, number], "C1--", label="forecast")
        axes.axvline(result.vpt.vpt_time[member].item(), color="grey", lw=0.8)
        axes.set_ylabel(name)
    axes.set_xlabel("time")
    axes.legend(loc="lower left", ncols=2)
    axes = figure.add_subplot(grid[:, 2])
    for states, style in ((result.u, "k"), (result.u_hat, "C1")):
        axes.plot(states[..., 0].flatten(), states[..., 2].flatten(), f"{style},")
    axes.set(xlabel="x", ylabel="z", title="all forecasts and truths")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="seconds, for tests")
    parser.add_argument("--figure", type=Path, default=Path("figures/lorenz63.png"))
    arguments = parser.parse_args()
    small = Settings(n_samples=1000, n_test=1000, epochs=2)
    main(small if arguments.fast else Settings(), arguments.figure)
