"""Samples at irregular times, some of them missing: a Van der Pol oscillator.

    python examples/irregular_sampling.py           # about a minute on one CPU core
    python examples/irregular_sampling.py --fast    # seconds, only to see it run

Sampling times are jittered, a tenth of the samples is lost, and the instrument was off
for a while. Each segment has quadrature weights of its own, from a spline through its
sample times; no segment reaches across the gap. Prints the error of forecasts of the
learned field, and the error of one learned while pretending that times are uniform.
The figure goes to ``figures/irregular_sampling.png``.
"""

# %%
import argparse
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from wpnode_ext.model.estimator import WPNODE
from wpnode_ext.solvers.rollouts import rollout


@dataclass
class Settings:
    n_samples: int = 3000
    dt: float = 0.05
    noise: float = 0.05
    ell: int = 30
    q: int = 2
    epochs: int = 300
    seed: int = 0


def van_der_pol(t: Tensor | float, u: Tensor) -> Tensor:
    x, y = u.unbind(-1)
    return torch.stack([y, (1 - x**2) * y - x], dim=-1)


def main(settings: Settings, figure: Path) -> None:
    # %% Data
    generator = torch.Generator().manual_seed(settings.seed)
    n = settings.n_samples
    jitter = torch.rand(n, generator=generator).double() - 0.5
    t = settings.dt * (torch.arange(n, dtype=torch.float64) + 0.6 * jitter)
    keep = torch.rand(n, generator=generator) > 0.1
    keep[n // 3 : n // 3 + n // 20] = False  # the instrument was off
    keep[0] = True
    t = t[keep]
    clean = rollout(van_der_pol, torch.tensor([[2.0, 0.0]]), t).u[:, 0]

    # %% Noise
    noise = torch.randn(clean.shape, generator=generator, dtype=torch.float64)
    noisy = clean + settings.noise * noise

    # %% Model and training
    def learn(times: dict) -> WPNODE:
        model = WPNODE(
            method="weak",
            p=4,
            ell=settings.ell,
            q=settings.q,
            epochs=settings.epochs,
            seed=settings.seed,
            verbose=True,
        )
        return model.fit(noisy, **times)

    right = learn({"t": t})
    wrong = learn({"dt": (t[-1] / len(t)).item()})

    # %% Judge
    times = settings.dt * torch.arange(400, dtype=torch.float64)
    starts = clean[:: max(1, len(clean) // 20)][:20]
    truth = rollout(van_der_pol, starts, times).u
    paths = {
        "true times": right.rollout(starts, times).u,
        "times taken as uniform": wrong.rollout(starts, times).u,
    }
    spread = truth.std()
    for name, path in paths.items():
        error = (path - truth).square().mean().sqrt() / spread
        print(f"{name:24s} error over {times[-1]:.0f} units of time: {error:.3f}")
    draw(times, truth[:, 0], {k: p[:, 0] for k, p in paths.items()}, figure)
    print(f"figure: {figure}")


def draw(t: Tensor, truth: Tensor, paths: dict[str, Tensor], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
    axes.plot(t, truth[:, 0], "k", label="truth")
    for name, states in paths.items():
        axes.plot(t, states[:, 0], "--", label=name)
    axes.set(xlabel="time", ylabel="x")
    axes.legend(loc="upper right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="seconds, for tests")
    default = Path("figures/irregular_sampling.png")
    parser.add_argument("--figure", type=Path, default=default)
    arguments = parser.parse_args()
    small = Settings(n_samples=400, epochs=2)
    main(small if arguments.fast else Settings(), arguments.figure)
