"""Learn Lorenz-63 from noisy measurements with `weak_loss` in a plain torch loop.

    python examples/quickstart_lorenz63.py          # about a minute and a half
    python examples/quickstart_lorenz63.py --fast   # seconds, only to see it run

Prints how long forecasts stay valid. The figure, ``figures/quickstart_lorenz63.png``,
shows the noisy data, a forecast, the attractor.
"""

# %%
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from command_line import start
from scipy.integrate import solve_ivp
from torch import Tensor, nn
from torchdiffeq import odeint

import wpnode_ext as wp


@dataclass
class Settings:
    n_samples: int = 10_000
    dt: float = 0.01
    noise_ratio: float = 0.05  # of the RMS of the clean signal
    p: int = 8
    ell: int = 50
    q: int = 2
    steps: int = 2000
    learning_rate: float = 5e-3
    n_starts: int = 30
    horizon: float = 8.0  # Lyapunov times
    seed: int = 0


LYAPUNOV_EXPONENT = 0.906


# %% Data


def simulate(n_samples: int, dt: float) -> Tensor:
    """A trajectory on the attractor, accurate far below any model error, ``[N, 3]``."""

    def field(_: float, u: np.ndarray) -> list[float]:
        x, y, z = u
        return [10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z]

    times = 20 + dt * np.arange(n_samples)
    solution = solve_ivp(
        field, (0, times[-1]), [1, 1, 20], "DOP853", times, rtol=1e-11, atol=1e-11
    )
    return torch.from_numpy(solution.y.T.copy())


# %% Model


class Field(nn.Module):
    """Multilayer perceptron ``field(t, u)`` that sees standardised states."""

    def __init__(self, mean: Tensor, std: Tensor, width: int = 128) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.net = nn.Sequential(
            nn.Linear(3, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, 3),
        )

    def forward(self, t: Tensor | None, u: Tensor) -> Tensor:
        return self.std * self.net((u - self.mean) / self.std)


# %% Training


def train(field: nn.Module, v: Tensor, settings: Settings) -> None:
    """Full-batch Adam on the weak loss: one field evaluation per sample and step."""
    plan = wp.WeakPlan(v, dt=settings.dt, p=settings.p, ell=settings.ell, q=settings.q)
    optimiser = torch.optim.Adam(field.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, settings.learning_rate, settings.steps
    )
    for step in range(settings.steps):
        loss = plan.loss(field(None, v))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % (settings.steps // 10) == 0:
            print(f"step {step:5d}  weak loss {loss.item():.4e}")


# %% Judgement


@torch.no_grad()
def forecast(field: nn.Module, u0: Tensor, times: Tensor) -> Tensor:
    return odeint(field.double(), u0, times, rtol=1e-8, atol=1e-8)


def valid_times(u_hat: Tensor, u: Tensor, dt: float, threshold: float = 0.3) -> Tensor:
    """Time until the error exceeds `threshold` standard deviations, per forecast."""
    scale = u.flatten(0, 1).var(0).sum().sqrt()
    wrong = (u_hat - u).norm(dim=-1) / scale > threshold
    first = torch.where(wrong.any(0), wrong.int().argmax(0), len(u))
    return (first - 1) * dt


def draw(path: Path, v: Tensor, u: Tensor, u_hat: Tensor, settings: Settings) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(11, 6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[3, 2])
    lyapunov_times = np.arange(len(u)) * settings.dt * LYAPUNOV_EXPONENT
    for axis, i in zip(left.subplots(3, 1, sharex=True), range(3), strict=True):
        axis.plot(lyapunov_times, u[:, 0, i], color="0.3", label="truth")
        axis.plot(lyapunov_times, u_hat[:, 0, i], "--", color="C3", label="forecast")
        axis.set_ylabel("xyz"[i])
    axis.set_xlabel("Lyapunov times")
    left.axes[0].legend(loc="upper right", ncols=2)
    left.suptitle("Forecast from a clean start")
    axis = right.subplots(subplot_kw={"projection": "3d"})
    axis.plot(*v[:2000].T, ".", color="0.7", markersize=1.5, label="noisy data")
    axis.plot(
        *u_hat.flatten(1)[:, :3].T, color="C3", linewidth=0.8, label="learned field"
    )
    axis.legend()
    figure.savefig(path, dpi=120)


def main(settings: Settings, figure: Path) -> None:
    torch.manual_seed(settings.seed)
    n_horizon = int(settings.horizon / LYAPUNOV_EXPONENT / settings.dt)
    n_test = settings.n_starts * n_horizon
    u = simulate(settings.n_samples + n_test, settings.dt)
    training, test = u[: settings.n_samples], u[settings.n_samples :]
    sigma = settings.noise_ratio * training.square().mean().sqrt()
    v = (training + sigma * torch.randn_like(training)).float()
    print(f"{len(v)} samples of Lorenz-63 with {settings.noise_ratio:.0%} noise")

    field = Field(v.mean(0), v.std(0))
    began = time.perf_counter()
    train(field, v, settings)
    seconds = time.perf_counter() - began

    truth = test.unflatten(0, (settings.n_starts, n_horizon)).transpose(0, 1)
    times = torch.arange(n_horizon, dtype=torch.float64) * settings.dt
    u_hat = forecast(field, truth[0], times)
    valid = valid_times(u_hat, truth, settings.dt) * LYAPUNOV_EXPONENT
    draw(figure, v, truth, u_hat, settings)

    print(f"\ntrained in                {seconds:8.1f} s ({settings.steps} steps)")
    print(f"forecasts valid for       {valid.mean():8.2f} Lyapunov times on average")
    print(f"  best of {settings.n_starts:3d} starts       {valid.max():8.2f}")
    print(f"  worst of {settings.n_starts:3d} starts      {valid.min():8.2f}")


if __name__ == "__main__":
    fast = Settings(n_samples=2000, steps=200, n_starts=5, horizon=2.0)
    start(main, Settings(), fast=fast)
