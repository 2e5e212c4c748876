"""Kuramoto-Sivashinsky: a flame front on a ring, chaotic in space and time."""

import operator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, pi
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ..solvers.exponential import etdrk4_step
from .base import System

# Longest internal step. With it the error after one time unit is below 1e-7.
MAX_STEP = 1 / 64


@dataclass(frozen=True)
class KuramotoSivashinsky(System):
    """``u_t = -u u_x - u_xx - nu u_xxxx`` with period `length`, on `n_points` points.

    Space is discretised by Fourier modes without de-aliasing: at the default 64 points
    on 22 units the last modes decay at the rate 7000 and stay near 0. Transforms are
    real. With complex ones, rounding would create an anti-Hermitian part on which the
    nonlinear term does not act; it would grow at the linear rate 1/4 and end the run
    after some 150 time units. The Nyquist mode of odd derivatives is 0.
    """

    length: float = 22.0
    n_points: int = 64
    nu: float = 1.0

    burn_in: float = 200.0

    def __post_init__(self) -> None:
        if self.n_points < 8 or self.n_points % 2:
            raise ValueError(
                f"`n_points` must be an even integer >= 8; got {self.n_points}."
            )

    @property
    def state_shape(self) -> tuple[int, ...]:
        return (self.n_points,)

    @property
    def lyapunov_exponent(self) -> float | None:
        return 0.05 if (self.length, self.nu) == (22.0, 1.0) else None

    @property
    def computed_lyapunov_exponent(self) -> float | None:
        return 0.048 if (self.length, self.nu) == (22.0, 1.0) else None

    @cached_property
    def _wavenumbers(self) -> NDArray[Any]:
        return 2 * pi / self.length * np.arange(self.n_points // 2 + 1)

    @cached_property
    def _linear(self) -> NDArray[Any]:
        """Symbol of ``-d^2/dx^2 - nu d^4/dx^4``."""
        k = self._wavenumbers
        return k**2 - self.nu * k**4

    @cached_property
    def _minus_half_ddx(self) -> NDArray[Any]:
        """Symbol of ``-(1/2) d/dx``, which takes ``u^2`` to ``-u u_x``."""
        symbol = -0.5j * self._wavenumbers
        symbol[-1] = 0.0
        return symbol

    def field(self, t: Tensor | float, u: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        linear = torch.from_numpy(self._linear).to(u)
        symbol = torch.from_numpy(self._minus_half_ddx)
        symbol = symbol.to(u.device, u.dtype.to_complex())
        spectrum = linear * torch.fft.rfft(u) + symbol * torch.fft.rfft(u * u)
        return torch.fft.irfft(spectrum, n=self.n_points)

    def step(self, u: Float[Tensor, "..."], dt: float) -> Float[Tensor, "..."]:
        """Advances float64 states by `dt`, as `simulate` does; differentiable.

        The field is stiff (rates to 7000), so explicit solvers need tiny steps.
        Lyapunov exponents in tangent space use this map instead.
        """
        count = _substeps(dt)
        scheme = _Etdrk4(*map(torch.from_numpy, _scheme(self, dt / count)))
        v = u @ scheme.to_modes
        for _ in range(count):
            v = scheme.advance(v)
        return v @ scheme.to_points

    def random_state(self, generator: torch.Generator) -> Float[Tensor, " n_points"]:
        """Three long waves of random phase; the mean is 0 and stays so."""
        x = torch.arange(self.n_points, dtype=torch.float64) / self.n_points
        phases = torch.rand(3, 1, generator=generator, dtype=torch.float64)
        modes = torch.arange(1, 4)[:, None]
        return torch.sin(2 * pi * (modes * x + phases)).sum(0)

    def _integrate(
        self, start: Float[Tensor, "..."], t: NDArray[Any]
    ) -> Float[Tensor, "n ..."]:
        trajectory = np.empty((len(t), *start.shape))
        trajectory[0] = start.numpy()
        if len(t) > 1:
            # Times are uniform here: samples, or the two ends of the burn-in.
            dt = float(t[-1]) / (len(t) - 1)
            count = _substeps(dt)
            scheme = _scheme(self, dt / count)
            v = trajectory[0] @ scheme.to_modes
            for n in range(1, len(t)):
                for _ in range(count):
                    v = scheme.advance(v)
                trajectory[n] = v @ scheme.to_points
        return torch.from_numpy(trajectory)


def _substeps(dt: float) -> int:
    return ceil(dt / MAX_STEP - 1e-9)


@lru_cache(maxsize=16)
def _scheme(system: KuramotoSivashinsky, h: float) -> "_Etdrk4":
    return _Etdrk4.of(system, h)


class _Etdrk4(NamedTuple):
    """A step by exponential time differencing, :mod:`wpnode_ext.solvers.exponential`.

    It takes the real and imaginary parts of the modes as one real vector, a numpy array
    or a tensor. The real transforms are matrices: for the usual number of points a
    product is several times faster than a call of an FFT.

    Attributes:
        to_modes, to_points: the real transform and its inverse, ``[n, n]``.
        to_minus_half_ddx: from values at the points to the modes of ``-(1/2) d/dx``
            of them.
        half, whole, p, b1, b2, b3: factors of the modes, see
            :func:`~wpnode_ext.solvers.exponential.etdrk4_step`.
    """

    to_modes: Any
    to_points: Any
    to_minus_half_ddx: Any
    half: Any
    whole: Any
    p: Any
    b1: Any
    b2: Any
    b3: Any

    @classmethod
    def of(cls, system: KuramotoSivashinsky, h: float) -> "_Etdrk4":
        spectra = np.fft.rfft(np.eye(system.n_points))
        to_modes = _real_parts(spectra)
        linear = h * _real_parts((1 + 1j) * system._linear)
        # Near z = 0 these formulas lose digits by cancellation. On a circle around each
        # z they do not, and their mean over the circle is the value at its centre
        # (Kassam and Trefethen).
        circle = np.exp(1j * pi * (np.arange(1, 65) - 0.5) / 64, dtype=np.complex128)
        z = linear[:, None] + circle
        ez = np.exp(z)

        def at_centre(values: NDArray[Any]) -> NDArray[Any]:
            return h * values.mean(1).real

        return cls(
            to_modes=to_modes,
            to_points=np.linalg.inv(to_modes),
            to_minus_half_ddx=_real_parts(spectra * system._minus_half_ddx),
            half=np.exp(linear / 2),
            whole=np.exp(linear),
            p=at_centre((np.exp(z / 2) - 1) / z),
            b1=at_centre((-4 - z + ez * (4 - 3 * z + z**2)) / z**3),
            b2=at_centre(2 * (2 + z + ez * (z - 2)) / z**3),
            b3=at_centre((-4 - 3 * z - z**2 + ez * (4 - z)) / z**3),
        )

    def advance(self, v: Any) -> Any:
        return etdrk4_step(self, lambda _, v: self._nonlinear(v), v, operator.mul)

    def _nonlinear(self, v: Any) -> Any:
        u = v @ self.to_points
        return (u * u) @ self.to_minus_half_ddx


def _real_parts(spectrum: NDArray[Any]) -> NDArray[Any]:
    """All real parts, then the imaginary parts that are not 0 by symmetry."""
    return np.concatenate([np.real(spectrum), np.imag(spectrum)[..., 1:-1]], axis=-1)
