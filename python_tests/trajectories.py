"""Chaotic trajectories and noise whose bits are the same on every machine.

Vector instructions round sums and products differently, and a chaotic trajectory
amplifies that difference to its full size within thirty units of time. Here every
number comes from single additions, multiplications and divisions of float64, which
IEEE 754 rounds in one way only: no reductions of unknown order, no matrix products, no
functions of the mathematics library. ``test_trajectories.py`` holds the checksums.

``WPNODE_TEST_DRAW=3`` changes the seed of every trajectory and every noise: a claim
that fails for some draws has too little margin.
"""

import math
import os
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from operator import mul
from typing import Any

import mpmath
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

DRAW = int(os.environ.get("WPNODE_TEST_DRAW", "0"))

# Taylor series of this order and step err by 1e-14 a step on both attractors.
ORDER, STEP = 16, 0.01
# Time before the first sample, in which the state reaches the attractor.
BURN_IN = 20.0


def draw(seed: int) -> int:
    """The seed that replaces `seed` in this run."""
    return seed + 100_000 * DRAW


class _Stream:
    """The generator of :func:`normal` without a seed."""

    generator = np.random.default_rng(0)


def restart(seed: int) -> None:
    """Seeds :func:`normal`; conftest does so before every test."""
    _Stream.generator = np.random.default_rng(draw(seed))


def normal(*shape: int, seed: int | np.random.Generator | None = None) -> Tensor:
    """Independent standard normal float64 numbers.

    Values that outlive a test (module fixtures, cached values) need a `seed`.
    """
    if seed is None:
        seed = _Stream.generator
    elif isinstance(seed, int):
        seed = np.random.default_rng(draw(seed))
    values = seed.standard_normal(shape)
    # Three in ten thousand come from a logarithm; rounding removes its last bits.
    return torch.from_numpy(np.rint(values * 2.0**40) / 2.0**40)


def rms(u: Tensor) -> float:
    """Root mean square, rounded once."""
    squares = (u.detach().double() ** 2).flatten().tolist()
    return math.sqrt(math.fsum(squares) / len(squares))


def add_noise(clean: Tensor, ratio: float, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """`clean` with noise of `ratio` times its global RMS, and its standard deviation.

    The same as :func:`wpnode_ext.data.add_noise`, but with :func:`normal`.
    """
    sigma = torch.full(clean.shape[1:], ratio * rms(clean), dtype=torch.float64)
    return clean + sigma * normal(*clean.shape, seed=seed), sigma


def lorenz63(
    n: int, dt: float, *, seed: int = 0, start: tuple[float, ...] | None = None
) -> Tensor:
    """Lorenz-63 on its attractor, or from `start`, every `dt`; ``[n, 3]``."""
    rows, steps = _lorenz63_rows(dt, seed, start), _steps(dt)
    while len(rows) < n:
        rows.append(_lorenz63_over(rows[-1], steps))
    return torch.tensor(rows[:n], dtype=torch.float64)


@lru_cache
def _lorenz63_rows(
    dt: float, seed: int, start: tuple[float, ...] | None
) -> list[list[float]]:
    """Samples computed so far, a list that callers extend."""
    return [list(start) if start else _lorenz63_start(seed)]


def _lorenz63_start(seed: int) -> list[float]:
    x, y, z = _start(seed, 3).tolist()
    return _lorenz63_over([x, y, z + 27.0], _steps(BURN_IN))


@lru_cache
def lorenz63_at(times: tuple[float, ...], seed: int = 0) -> Tensor:
    """Lorenz-63 on its attractor at increasing times."""
    rows = [_lorenz63_start(seed)]
    for left, right in pairwise(times):
        rows.append(_lorenz63_over(rows[-1], _steps(right - left)))
    return torch.tensor(rows, dtype=torch.float64)


def _lorenz63_over(state: list[float], steps: list[float]) -> list[float]:
    for h in steps:
        state = _lorenz63_step(state, h)
    return state


def _start(seed: int, size: int) -> Tensor:
    """Normal numbers that differ from noise with the same `seed`."""
    return normal(size, seed=np.random.default_rng([draw(seed), size]))


def _steps(length: float) -> list[float]:
    count = max(1, math.ceil(length / STEP - 1e-6))
    return [length / count] * count


def _lorenz63_step(state: list[float], h: float) -> list[float]:
    x, y, z = ([value] for value in state)
    for k in range(ORDER):
        # `fsum` is exact: its result does not depend on the order.
        xz = math.fsum(map(mul, x, reversed(z)))
        xy = math.fsum(map(mul, x, reversed(y)))
        x_k, y_k, z_k = x[k], y[k], z[k]
        x.append(10.0 * (y_k - x_k) / (k + 1))
        y.append((28.0 * x_k - y_k - xz) / (k + 1))
        z.append((xy - 8.0 / 3.0 * z_k) / (k + 1))
    return [_horner(c, h) for c in (x, y, z)]


def _horner(coefficients: Any, h: float) -> Any:
    value = coefficients[-1]
    for c in coefficients[-2::-1]:
        value = value * h + c
    return value


@lru_cache(maxsize=64)
def lorenz96(
    n: int, dt: float, *, sites: int = 40, forcing: float = 10.0, seed: int = 0
) -> Tensor:
    """Lorenz-96 on its attractor every `dt`, ``[n, sites]``."""
    u = (forcing + 0.1 * _start(seed, sites)).numpy()
    for h in _steps(BURN_IN):
        u = _lorenz96_step(u, forcing, h)
    rows, steps = [u], _steps(dt)
    for _ in range(n - 1):
        for h in steps:
            u = _lorenz96_step(u, forcing, h)
        rows.append(u)
    return torch.from_numpy(np.stack(rows))


def _lorenz96_step(u: NDArray[Any], forcing: float, h: float) -> NDArray[Any]:
    d = len(u)
    ahead, behind = np.roll(np.arange(d), -1), np.roll(np.arange(d), 1)
    c, spread, before = (np.zeros((ORDER + 1, d)) for _ in range(3))
    c[0] = u
    for k in range(ORDER):
        before[k] = c[k][behind]
        spread[k] = c[k][ahead] - before[k][behind]
        # Along the first axis rows are added one after another.
        products = (spread[: k + 1] * before[k::-1]).sum(0)
        c[k + 1] = (products - c[k] + (forcing if k == 0 else 0.0)) / (k + 1)
    return _horner(c, h)


@lru_cache(maxsize=16)
def kuramoto_sivashinsky(
    n: int, dt: float, *, points: int = 64, seed: int = 0
) -> Tensor:
    """Kuramoto-Sivashinsky with period 22 on its attractor, ``[n, points]``."""
    phases = _start(seed, 3).tolist()
    with mpmath.workdps(30):
        waves = [(2 * mpmath.mpf(m), 2 * p) for m, p in enumerate(phases, 1)]
        start = [
            float(sum(mpmath.sinpi(m * j / points + p) for m, p in waves))
            for j in range(points)
        ]
    count = math.ceil(32 * dt - 1e-9)
    step = _ExponentialStep(points, dt / count)
    modes = _product(np.array(start), step.to_modes)
    for _ in range(math.ceil(200 / dt) * count):
        modes = step(modes)
    rows = [_product(modes, step.to_points)]
    for _ in range(n - 1):
        for _ in range(count):
            modes = step(modes)
        rows.append(_product(modes, step.to_points))
    return torch.from_numpy(np.stack(rows))


def _product(v: NDArray[Any], matrix: NDArray[Any]) -> NDArray[Any]:
    """``v @ matrix``, summed in one order everywhere."""
    return (v[:, None] * matrix).sum(0)


class _ExponentialStep:
    """A step of ETDRK4 (Cox and Matthews) on cosine and sine modes of zero mean.

    The constants are rounded from 30 digits.
    """

    def __init__(self, points: int, h: float) -> None:
        half = points // 2
        with mpmath.workdps(30):
            self._set(points, [m for m in range(1, half) for _ in (0, 1)], h)

    def _set(self, points: int, waves: list[int], h: float) -> None:
        def table(rows: Iterator[Iterator[Any]]) -> NDArray[Any]:
            return np.array([[float(value) for value in row] for row in rows])

        def wave(i: int, j: int) -> Any:
            """Cosine or sine of mode `i` at point `j`."""
            angle = 2 * mpmath.mpf(waves[i] * j % points) / points
            return mpmath.sinpi(angle) if i % 2 else mpmath.cospi(angle)

        every, grid = range(len(waves)), range(points)
        k = [2 * mpmath.pi / 22 * m for m in waves]
        self.to_points = table((wave(i, j) for j in grid) for i in every)
        self.to_modes = 2 / points * self.to_points.T
        # -(1/2) d/dx takes the cosine to k/2 sine and the sine to -k/2 cosine: the
        # mode of the result is read off the other wave of the pair.
        self.to_slopes = table(
            ((-k[i] if i % 2 == 0 else k[i]) / points * wave(i ^ 1, j) for i in every)
            for j in grid
        )
        z = [h * (value**2 - value**4) for value in k]

        def column(function: Any) -> NDArray[Any]:
            return np.array([float(function(value)) for value in z])

        exp = mpmath.exp
        self.half_exp = column(lambda z: exp(z / 2))
        self.full_exp = column(exp)
        self.half_phi = column(lambda z: h * (exp(z / 2) - 1) / z)
        self.b1 = column(lambda z: h * (-4 - z + exp(z) * (4 - 3 * z + z**2)) / z**3)
        self.b23 = column(lambda z: 2 * h * (2 + z + exp(z) * (z - 2)) / z**3)
        self.b4 = column(lambda z: h * (-4 - 3 * z - z**2 + exp(z) * (4 - z)) / z**3)

    def __call__(self, v: NDArray[Any]) -> NDArray[Any]:
        n_v = self._nonlinear(v)
        half = self.half_exp * v
        a = half + self.half_phi * n_v
        n_a = self._nonlinear(a)
        n_b = self._nonlinear(half + self.half_phi * n_a)
        n_c = self._nonlinear(self.half_exp * a + self.half_phi * (2.0 * n_b - n_v))
        return (
            self.full_exp * v + self.b1 * n_v + self.b23 * (n_a + n_b) + self.b4 * n_c
        )

    def _nonlinear(self, v: NDArray[Any]) -> NDArray[Any]:
        u = _product(v, self.to_points)
        return _product(u * u, self.to_slopes)
