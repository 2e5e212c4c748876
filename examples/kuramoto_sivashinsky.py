"""Kuramoto-Sivashinsky: a partial differential equation from noisy snapshots.

    python examples/kuramoto_sivashinsky.py           # about 15 minutes on one CPU core
    python examples/kuramoto_sivashinsky.py --fast    # seconds, only to see it run

Sixty-four points on a ring of length 22, four snapshots a unit of time, 5 % noise. The
field is one local map of nine neighbouring values: it does not change along the ring,
as the equation does not. Prints valid prediction times (threshold 0.5); truth, forecast
and their difference over space and time go to ``figures/kuramoto_sivashinsky.png``.
"""

# %%
import argparse
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt

from wpnode_ext.data import add_noise
from wpnode_ext.metrics.evaluation import Evaluation
from wpnode_ext.model.estimator import WPNODE
from wpnode_ext.settings.config import FieldConfig, OptimConfig, TrainConfig, WeakForm
from wpnode_ext.systems import KuramotoSivashinsky


@dataclass
class Settings:
    n_samples: int = 10_000
    n_test: int = 3000
    dt: float = 0.25
    noise_ratio: float = 0.05
    p: int = 16
    ell: int = 60
    q: int = 4
    epochs: int = 150
    seed: int = 0


def main(settings: Settings, figure: Path) -> None:
    # %% Data
    system = KuramotoSivashinsky()
    n = settings.n_samples
    clean = system.simulate(n + settings.n_test, settings.dt, seed=settings.seed)
    train, test = clean[:n], clean[n:]

    # %% Noise
    noisy, _ = add_noise(train, settings.noise_ratio, seed=settings.seed)

    # %% Model
    config = TrainConfig(
        method="weak",
        weak=WeakForm(p=settings.p, ell=settings.ell, q=settings.q),
        field=FieldConfig(kind="conv", width=48, kernels=[9, 1, 1]),
        optim=OptimConfig(lr=5e-3, epochs=settings.epochs, batch_size=128),
        scaler="standard",
        seed=settings.seed,
    )

    # %% Train
    model = WPNODE(config=config, verbose=True).fit(noisy, settings.dt)

    # %% Judge
    result = model.evaluate(
        test,
        settings.dt,
        lyapunov_exponent=system.lyapunov_exponent,
        threshold=0.5,
        horizon=min(150.0, settings.dt * settings.n_test / 3),
    )
    print(result)
    draw(result, figure)
    print(f"figure: {figure}")


def draw(result: Evaluation, path: Path) -> None:
    """Truth, forecast and their difference over space and time."""
    member = result.vpt.vpt.argsort()[len(result.starts) // 2]
    truth, forecast = result.u[:, member].T, result.u_hat[:, member].T
    panels = {"truth": truth, "forecast": forecast, "difference": forecast - truth}
    figure, rows = plt.subplots(3, 1, figsize=(8, 6), sharex=True, layout="constrained")
    extent = (0.0, result.t[-1].item(), 0.0, 22.0)
    for axes, (name, values) in zip(rows, panels.items(), strict=True):
        image = axes.imshow(
            values, aspect="auto", extent=extent, cmap="RdBu_r", vmin=-3, vmax=3
        )
        axes.set(title=name, ylabel="x")
        axes.axvline(result.vpt.vpt_time[member].item(), color="k", lw=0.8)
    rows[-1].set_xlabel("time")
    figure.colorbar(image, ax=rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="seconds, for tests")
    default = Path("figures/kuramoto_sivashinsky.png")
    parser.add_argument("--figure", type=Path, default=default)
    arguments = parser.parse_args()
    small = Settings(n_samples=600, n_test=400, epochs=2)
    main(small if arguments.fast else Settings(), arguments.figure)
