"""Systems with known solutions, shared by the tests."""

from functools import lru_cache

import torch
from torch import Tensor

from trajectories import add_noise, lorenz63, lorenz96, normal


def lorenz63_field(u: Tensor) -> Tensor:
    x, y, z = u.unbind(-1)
    return torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], -1)


def noisy_lorenz63(n: int, ratio: float, seed: int = 1) -> tuple[Tensor, Tensor, float]:
    """Every 0.01, the same with noise of the global RMS, and the noise."""
    clean = lorenz63(n, 0.01)
    v, sigma = add_noise(clean, ratio, seed=seed)
    return clean, v, sigma[0].item()


@lru_cache
def noisy_lorenz96(sites: int, n: int) -> tuple[Tensor, Tensor]:
    """A ring every 0.02, and the same with noise of a tenth of its spread (4.4)."""
    clean = lorenz96(n, 0.02, sites=sites, seed=1)
    return clean, clean + 0.44 * normal(*clean.shape, seed=0)


def oscillator(n: int, dt: float) -> tuple[Tensor, Tensor]:
    """A smooth two-component trajectory and its exact time derivative."""
    t = torch.arange(n, dtype=torch.float64) * dt
    u = torch.stack([torch.sin(3 * t) * torch.exp(-0.1 * t), torch.cos(2 * t)], -1)
    slope = torch.stack(
        [
            torch.exp(-0.1 * t) * (3 * torch.cos(3 * t) - 0.1 * torch.sin(3 * t)),
            -2 * torch.sin(2 * t),
        ],
        -1,
    )
    return u, slope
