"""Lorenz-96 with one local map shared by all forty sites.

    python examples/lorenz96.py           # about 10 minutes on one CPU core
    python examples/lorenz96.py --fast    # seconds, only to see it run

The equations are the same at every site. A field that knows this (``field="conv"``, a
small network of five neighbouring values) learns from every site at once: here from
10^4 samples where the paper's network sees 10^5. Prints valid prediction times; times
are scaled by the exponent we compute (2.3) and by the paper's (1.68), which belongs to
another forcing. The figure goes to ``figures/lorenz96.png``.
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
from wpnode_ext.systems import Lorenz96


@dataclass
class Settings:
    n_samples: int = 10_000
    n_test: int = 3000
    dt: float = 0.01
    noise_ratio: float = 0.05
    p: int = 8
    ell: int = 80
    q: int = 4
    epochs: int = 150
    seed: int = 0


def main(settings: Settings, figure: Path) -> None:
    # %% Data
    system = Lorenz96()
    n = settings.n_samples
    clean = system.simulate(n + settings.n_test, settings.dt, seed=settings.seed)
    train, test = clean[:n], clean[n:]

    # %% Noise
    noisy, _ = add_noise(train, settings.noise_ratio, seed=settings.seed)

    # %% Model
    config = TrainConfig(
        method="weak",
        weak=WeakForm(p=settings.p, ell=settings.ell, q=settings.q),
        field=FieldConfig(kind="conv", width=48),
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
        lyapunov_exponent=system.computed_lyapunov_exponent,
        threshold=0.5,
        horizon=min(6.0, settings.dt * settings.n_test / 3),
    )
    print(result)
    paper = system.lyapunov_exponent
    if paper is not None:
        print(f"in the paper's Lyapunov times: {result.vpt.mean_time * paper:.2f}")
    draw(result, figure)
    print(f"figure: {figure}")


def draw(result: Evaluation, path: Path) -> None:
    """Truth, forecast and their difference over sites and time."""
    member = result.vpt.vpt.argsort()[len(result.starts) // 2]
    truth, forecast = result.u[:, member].T, result.u_hat[:, member].T
    panels = {"truth": truth, "forecast": forecast, "difference": forecast - truth}
    figure, rows = plt.subplots(3, 1, figsize=(8, 6), sharex=True, layout="constrained")
    extent = (0.0, result.t[-1].item(), 0.0, float(len(truth)))
    for axes, (name, values) in zip(rows, panels.items(), strict=True):
        image = axes.imshow(
            values, aspect="auto", extent=extent, cmap="RdBu_r", vmin=-12, vmax=12
        )
        axes.set(title=name, ylabel="site")
        axes.axvline(result.vpt.vpt_time[member].item(), color="k", lw=0.8)
    rows[-1].set_xlabel("time")
    figure.colorbar(image, ax=rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="seconds, for tests")
    parser.add_argument("--figure", type=Path, default=Path("figures/lorenz96.png"))
    arguments = parser.parse_args()
    small = Settings(n_samples=600, n_test=400, epochs=2)
    main(small if arguments.fast else Settings(), arguments.figure)
