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
from dataclasses import dataclass
from pathlib import Path

import torch
from command_line import start
from torch import Tensor

import wpnode_ext as wp
from wpnode_ext.figures import forecast, save_figure


@dataclass
class Settings:
    n_samples: int = 3000
    epochs: int = 300
    seed: int = 0


DT, NOISE = 0.05, 0.05


def van_der_pol(t: Tensor | float, u: Tensor) -> Tensor:
    x, y = u.unbind(-1)
    return torch.stack([y, (1 - x**2) * y - x], dim=-1)


def irregular_times(n: int, generator: torch.Generator) -> Tensor:
    """Jittered times without a random tenth of the samples and without a gap."""
    jitter = torch.rand(n, generator=generator).double() - 0.5
    t = DT * (torch.arange(n, dtype=torch.float64) + 0.6 * jitter)
    keep = torch.rand(n, generator=generator) > 0.1
    keep[n // 3 : n // 3 + n // 20] = False  # the instrument was off
    keep[0] = True
    return t[keep]


def main(settings: Settings, figure: Path) -> None:
    # %% Data and noise
    generator = torch.Generator().manual_seed(settings.seed)
    t = irregular_times(settings.n_samples, generator)
    clean = wp.rollout(van_der_pol, torch.tensor([[2.0, 0.0]]), t).u[:, 0]
    noise = torch.randn(clean.shape, generator=generator, dtype=torch.float64)
    noisy = clean + NOISE * noise

    # %% Model and training: with the true times, and with wrong ones
    network = {
        "method": "weak",
        "weak": {"p": 4, "ell": 30, "q": 2},
        "optim.epochs": settings.epochs,
        "seed": settings.seed,
    }
    models = {
        "true times": wp.WPNODE(config=network).fit(noisy, t=t),
        "times taken as uniform": wp.WPNODE(config=network).fit(
            noisy, dt=(t[-1] / len(t)).item()
        ),
    }

    # %% Judgement
    times = DT * torch.arange(400, dtype=torch.float64)
    starts = clean[:: max(1, len(clean) // 20)][:20]
    truth = wp.rollout(van_der_pol, starts, times).u
    paths = {name: m.rollout(starts, times).u for name, m in models.items()}
    for name, path in paths.items():
        error = (path - truth).square().mean().sqrt() / truth.std()
        print(f"{name:24s} error over {times[-1]:.0f} units of time: {error:.3f}")
    picture = forecast(
        times,
        torch.stack([path[:, 0] for path in paths.values()], dim=1),
        torch.stack([truth[:, 0]] * len(paths), dim=1),
        titles=list(paths),
        names=["x", "y"],
    )
    save_figure(picture, figure)


if __name__ == "__main__":
    start(main, Settings(), fast=Settings(n_samples=400, epochs=2))
