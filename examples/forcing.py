"""A system that is driven from outside: a pendulum pushed by a known signal.

    python examples/forcing.py           # about two minutes on one CPU core
    python examples/forcing.py --fast    # seconds, only to see it run

The angle and the velocity are measured with noise; the push is known. The field takes
it as an input, ``f(u, x(t))``, interpolated where the solver needs it. Trained on two
records with different pushes, the model forecasts the response to a third one it has
never seen. Prints the error beside that of a model that was not told of the push, and
saves ``figures/forcing.png``.
"""

# %%
import argparse
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from wpnode_ext.fields import Forcing
from wpnode_ext.model.estimator import WPNODE
from wpnode_ext.solvers.rollouts import rollout


@dataclass
class Settings:
    n_samples: int = 4000  # of each record
    dt: float = 0.05
    noise: float = 0.03
    ell: int = 30
    q: int = 2
    epochs: int = 300
    seed: int = 0


def random_push(n: int, dt: float, generator: torch.Generator) -> Tensor:
    """A sum of six sines with random periods between 2 and 12 units of time."""
    t = dt * torch.arange(n, dtype=torch.float64)
    periods = 2 + 10 * torch.rand(6, generator=generator).double()
    phases = 6.3 * torch.rand(6, generator=generator).double()
    return 0.5 * torch.sin(6.2832 * t[:, None] / periods + phases).sum(-1)


def respond(push: Tensor, dt: float) -> Tensor:
    """``angle' = velocity``, ``velocity' = -sin(angle) - 0.2 velocity + push``."""
    t = dt * torch.arange(len(push), dtype=torch.float64)
    signal = Forcing(t, push[:, None])

    def field(time: Tensor, u: Tensor) -> Tensor:
        angle, velocity = u.unbind(-1)
        slope = -torch.sin(angle) - 0.2 * velocity + signal(time)
        return torch.stack([velocity, slope], dim=-1)

    return rollout(field, torch.tensor([[0.5, 0.0]]), t, method="rk4").u[:, 0]


def main(settings: Settings, figure: Path) -> None:
    # %% Data
    generator = torch.Generator().manual_seed(settings.seed)
    n, dt = settings.n_samples, settings.dt
    pushes = [random_push(n, dt, generator) for _ in range(3)]
    clean = [respond(push, dt) for push in pushes]

    # %% Noise
    noisy = [
        u + settings.noise * torch.randn(u.shape, generator=generator).double()
        for u in clean
    ]

    # %% Model and training
    def learn(forcing: list[Tensor] | None) -> WPNODE:
        model = WPNODE(
            method="weak",
            p=8,
            ell=settings.ell,
            q=settings.q,
            epochs=settings.epochs,
            seed=settings.seed,
            verbose=True,
        )
        return model.fit(noisy[:2], dt, forcing=forcing)

    told, untold = learn(pushes[:2]), learn(None)

    # %% Judge: the response to a push that was not trained on
    steps = min(200, n - 1)
    t = dt * torch.arange(steps + 1, dtype=torch.float64)
    truth, push = clean[2][: steps + 1], pushes[2][: steps + 1]
    paths = {
        "told of the push": told.forecast(truth[0], t, forcing=push),
        "not told": untold.forecast(truth[0], t),
    }
    for name, path in paths.items():
        error = (path - truth).square().mean().sqrt() / truth.std()
        print(f"{name:18s} error over {t[-1]:.0f} units of time: {error:.3f}")
    draw(t, truth, push, paths, figure)
    print(f"figure: {figure}")


def draw(
    t: Tensor, truth: Tensor, push: Tensor, paths: dict[str, Tensor], path: Path
) -> None:
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(8, 4), sharex=True, layout="constrained", height_ratios=(2, 1)
    )
    top.plot(t, truth[:, 0], "k", label="truth")
    for name, states in paths.items():
        top.plot(t, states[:, 0], "--", label=name)
    top.set_ylabel("angle")
    top.legend(loc="upper right")
    bottom.plot(t, push, "C2")
    bottom.set(xlabel="time", ylabel="push")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="seconds, for tests")
    parser.add_argument("--figure", type=Path, default=Path("figures/forcing.png"))
    arguments = parser.parse_args()
    small = Settings(n_samples=300, epochs=2)
    main(small if arguments.fast else Settings(), arguments.figure)
