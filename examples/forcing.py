"""A system that is driven from outside: a pendulum pushed by a known signal.

    python examples/forcing.py           # about two minutes on one CPU core
    python examples/forcing.py --fast    # seconds, only to see it run

The angle and the velocity are measured with noise; the push is known. The field takes
it as an input, ``f(u, x(t))``, interpolated where the solver needs it. Trained on two
records with different pushes, the model forecasts the response to a third one it has
never seen. Prints its error beside that of a model that does not know the push. The
figure goes to ``figures/forcing.png``.
"""

# %%
from dataclasses import dataclass
from pathlib import Path

import torch
from command_line import start
from torch import Tensor

import wpnode_ext as wp
from wpnode_ext.fields import Forcing
from wpnode_ext.figures import forecast, save_figure


@dataclass
class Settings:
    n_samples: int = 4000  # of each record
    epochs: int = 300
    seed: int = 0


DT, NOISE = 0.05, 0.03


def random_push(n: int, generator: torch.Generator) -> Tensor:
    """A sum of six sines with random periods between 2 and 12 units of time."""
    t = DT * torch.arange(n, dtype=torch.float64)
    periods = 2 + 10 * torch.rand(6, generator=generator).double()
    phases = 6.3 * torch.rand(6, generator=generator).double()
    return 0.5 * torch.sin(6.2832 * t[:, None] / periods + phases).sum(-1)


def respond(push: Tensor) -> Tensor:
    """``angle' = velocity``, ``velocity' = -sin(angle) - 0.2 velocity + push``."""
    t = DT * torch.arange(len(push), dtype=torch.float64)
    signal = Forcing(t, push[:, None])

    def field(time: Tensor, u: Tensor) -> Tensor:
        angle, velocity = u.unbind(-1)
        slope = -torch.sin(angle) - 0.2 * velocity + signal(time)
        return torch.stack([velocity, slope], dim=-1)

    return wp.rollout(field, torch.tensor([[0.5, 0.0]]), t, method="rk4").u[:, 0]


def main(settings: Settings, figure: Path) -> None:
    # %% Data and noise
    generator = torch.Generator().manual_seed(settings.seed)
    pushes = [random_push(settings.n_samples, generator) for _ in range(3)]
    clean = [respond(push) for push in pushes]
    noisy = [
        u + NOISE * torch.randn(u.shape, generator=generator).double() for u in clean
    ]

    # %% Model and training: with the push, and without
    network = {
        "method": "weak",
        "weak": {"p": 8, "ell": 30, "q": 2},
        "optim.epochs": settings.epochs,
        "seed": settings.seed,
    }
    driven = wp.WPNODE(config=network).fit(noisy[:2], DT, forcing=pushes[:2])
    ignorant = wp.WPNODE(config=network).fit(noisy[:2], DT)

    # %% Judgement: the response to a push that was not trained on
    steps = min(200, settings.n_samples - 1)
    t = DT * torch.arange(steps + 1, dtype=torch.float64)
    truth, push = clean[2][: steps + 1], pushes[2][: steps + 1]
    paths = {
        "knows the push": driven.forecast(truth[0], t, forcing=push),
        "does not": ignorant.forecast(truth[0], t),
    }
    for name, path in paths.items():
        error = (path - truth).square().mean().sqrt() / truth.std()
        print(f"{name:18s} error over {t[-1]:.0f} units of time: {error:.3f}")
    picture = forecast(
        t,
        torch.stack(list(paths.values()), dim=1),
        torch.stack([truth] * len(paths), dim=1),
        titles=list(paths),
        names=["angle", "velocity"],
    )
    save_figure(picture, figure)


if __name__ == "__main__":
    start(main, Settings(), fast=Settings(n_samples=300, epochs=2))
