"""The systems of Lorenz: three modes of convection, and a ring of sites."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from .base import System

# Maximal exponents of 40 sites, computed in tangent space.
_COMPUTED = {8.0: 1.69, 10.0: 2.30}


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


@dataclass(frozen=True)
class Lorenz96(System):
    """``x_i' = (x_{i+1} - x_{i-2}) x_{i-1} - x_i + F`` on a ring of `d` sites.

    The paper scales times by the exponent 1.68, which belongs to F = 8; for the F = 10
    it states, tangent space gives 2.30. Report times in raw units as well.
    """

    d: int = 40
    forcing: float = 10.0

    def __post_init__(self) -> None:
        if self.d < 4:
            raise ValueError(f"`d` must be an integer >= 4; got {self.d}.")

    @property
    def state_shape(self) -> tuple[int, ...]:
        return (self.d,)

    @property
    def lyapunov_exponent(self) -> float | None:
        return 1.68 if (self.d, self.forcing) in {(40, 8.0), (40, 10.0)} else None

    @property
    def computed_lyapunov_exponent(self) -> float | None:
        return _COMPUTED.get(self.forcing) if self.d == 40 else None

    def field(self, t: Tensor | float, u: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        ahead, behind = u.roll(-1, -1), u.roll(1, -1)
        return (ahead - u.roll(2, -1)) * behind - u + self.forcing

    def random_state(self, generator: torch.Generator) -> Float[Tensor, " d"]:
        noise = torch.randn(self.d, generator=generator, dtype=torch.float64)
        return self.forcing + 0.1 * noise

    def _numpy_field(self, t: float, u: NDArray[Any]) -> NDArray[Any]:
        # Two cells before and one after the ring: neighbours are then plain slices.
        wide = np.concatenate([u[..., -2:], u, u[..., :1]], axis=-1)
        return (wide[..., 3:] - wide[..., :-3]) * wide[..., 1:-2] - u + self.forcing
