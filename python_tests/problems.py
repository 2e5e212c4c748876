"""Systems with known solutions, shared by the tests."""

from functools import lru_cache

import torch
from torch import Tensor

from trajectories import add_noise, lorenz63, lorenz96, normal
from wpnode_ext.coordinates.symmetry import Symmetry
from wpnode_ext.fields import LinearField


def lorenz63_field(u: Tensor) -> Tensor:
    x, y, z = u.unbind(-1)
    return torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], -1)


def noisy_lorenz63(n: int, ratio: float, seed: int = 1) -> tuple[Tensor, Tensor, float]:
    """A clean trajectory every 0.01, the same with noise, and the noise's size."""
    clean = lorenz63(n, 0.01)
    v, sigma = add_noise(clean, ratio, seed=seed)
    return clean, v, sigma[0].item()


@lru_cache
def noisy_lorenz96(sites: int, n: int) -> tuple[Tensor, Tensor]:
    """A clean ring every 0.02, and the same with noise of a tenth of its spread."""
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


def largest_violation(
    field: LinearField, symmetry: Symmetry, u: torch.Tensor | None = None
) -> float:
    """Largest error of ``f(g u) = g f(u)`` over all maps, relative to the field."""
    if u is None:
        u = normal(50, symmetry.dim, seed=9)
    value = field(0.0, u)
    moved = torch.stack([field(0.0, u @ g.T) - value @ g.T for g in symmetry.matrices])
    return (moved.norm(dim=-1).max() / value.norm(dim=-1).max()).item()


def noisy_ring(sites: int, n: int = 300) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    t = torch.arange(n, dtype=torch.float64)[:, None] * 0.02
    phases = 6.28 * torch.rand(sites, generator=generator).double()
    noise = normal(n, sites, seed=2)
    return torch.sin(3 * t + phases) + 0.3 * noise
