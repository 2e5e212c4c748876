"""Systems with known solutions, shared by the tests."""

from functools import lru_cache

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from wpnode_ext.systems import Lorenz96


def lorenz63_field(u: Tensor) -> Tensor:
    x, y, z = u.unbind(-1)
    return torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], -1)


@lru_cache
def lorenz63_at(times: tuple[float, ...]) -> Tensor:
    """Lorenz-63 on its attractor at the given times, ``[N, 3]`` in float64."""

    def field(_, u):
        x, y, z = u
        return [10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z]

    tight = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-12}
    start = solve_ivp(field, (0, 20), [1.0, 1.0, 20.0], **tight).y[:, -1]
    span = (times[0], times[-1])
    return torch.from_numpy(
        solve_ivp(field, span, start, t_eval=times, **tight).y.T.copy()
    )


def lorenz63(n: int, dt: float) -> Tensor:
    return lorenz63_at(tuple(np.arange(n) * dt))


def noisy_lorenz63(n: int, ratio: float, seed: int = 1) -> tuple[Tensor, Tensor, float]:
    """Every 0.01, the same with noise of the global RMS, and the noise."""
    clean = lorenz63(n, 0.01)
    sigma = ratio * clean.square().mean().sqrt().item()
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(clean.shape, generator=generator, dtype=torch.float64)
    return clean, clean + sigma * noise, sigma


@lru_cache
def noisy_lorenz96(sites: int, n: int) -> tuple[Tensor, Tensor]:
    """A ring every 0.02, and the same with noise of a tenth of its spread."""
    clean = Lorenz96(sites).simulate(n, 0.02, seed=1)
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    return clean, clean + 0.1 * clean.std() * noise.double()


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
