"""Lorenz-63: three modes of convection, the butterfly."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from .base import System


@dataclass(frozen=True)
class Lorenz63(System):
    """``x' = sigma (y - x)``, ``y' = x (rho - z) - y``, ``z' = x y - beta z``."""

    sigma: float = 10.0
    rho: float = 28.0
    beta: float = 8.0 / 3.0

    @property
    def state_shape(self) -> tuple[int, ...]:
        return (3,)

    @property
    def lyapunov_exponent(self) -> float | None:
        return 0.91 if self == Lorenz63() else None

    @property
    def computed_lyapunov_exponent(self) -> float | None:
        return 0.906 if self == Lorenz63() else None

    def field(self, t: Tensor | float, u: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        x, y, z = u.unbind(-1)
        return torch.stack(
            [self.sigma * (y - x), x * (self.rho - z) - y, x * y - self.beta * z], -1
        )

    def random_state(self, generator: torch.Generator) -> Float[Tensor, " 3"]:
        start = torch.randn(3, generator=generator, dtype=torch.float64)
        return start + torch.tensor([0.0, 0.0, self.rho - 1])

    def _numpy_field(self, t: float, u: NDArray[Any]) -> NDArray[Any]:
        x, y, z = u[..., 0], u[..., 1], u[..., 2]
        f = np.empty_like(u)
        f[..., 0] = self.sigma * (y - x)
        f[..., 1] = x * (self.rho - z) - y
        f[..., 2] = x * y - self.beta * z
        return f
