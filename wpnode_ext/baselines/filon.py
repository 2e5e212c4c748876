"""Integrals of splines against sines and cosines, as weights of their values.

Product integration after Filon: the spline is integrated exactly, whatever the
frequency. All integrals are linear in the values at the nodes, so that one matrix holds
those of a whole basis.
"""

from math import factorial, pi, sqrt

import numpy as np
from jaxtyping import Complex, Float

from .splines import natural_second_derivatives

_TERMS = 25
# Frequencies handled at a time: bounds the memory.
_CHUNK = 64


def moments(
    omega: Float[np.ndarray, "..."], h: Float[np.ndarray, "..."]
) -> Complex[np.ndarray, "..."]:
    """``int_0^h tau^n exp(i omega tau) d tau`` for n = 0 .. 3.

    By the recurrence where ``omega h >= 1``; below, where it cancels, by the series
    ``h^(n+1) sum_j (i omega h)^j / (j! (n + j + 1))``.
    """
    omega, h = np.broadcast_arrays(np.asarray(omega, float), np.asarray(h, float))
    theta = 1j * omega * h
    small = np.abs(theta) < 1
    safe = np.where(small, 1.0, theta)
    out = np.zeros((4, *theta.shape), dtype=complex)
    end = np.exp(safe)
    for n in range(4):
        if n == 0:
            grown = (end - 1) / safe
        else:
            grown = end / safe - n / safe * out[n - 1] / h**n
        series = np.zeros_like(theta)
        power = np.ones_like(theta)
        for j in range(_TERMS):
            series += power / (factorial(j) * (n + j + 1))
            power = power * np.where(small, theta, 0.0)
        out[n] = h ** (n + 1) * np.where(small, series, grown)
    return out


def spline_weights(
    t: Float[np.ndarray, " K+1"], omega: Float[np.ndarray, " M"]
) -> Complex[np.ndarray, "M K+1"]:
    """Weights of nodal values g in ``int exp(i omega t) s_g(t) dt``.

    ``s_g`` is the natural interpolating cubic spline; the integral runs over all nodes.
    On every cell it is ``a + b tau + c tau^2 + d tau^3``; moments of the four are taken
    back to c and g, and from c to g by the transposed tridiagonal system.
    """
    h = np.diff(t)
    parts = [
        _chunk(t, h, part)
        for part in np.split(omega, range(_CHUNK, len(omega), _CHUNK))
    ]
    return np.concatenate(parts)


def _chunk(t: np.ndarray, h: np.ndarray, omega: np.ndarray) -> np.ndarray:
    phase = np.exp(1j * omega[:, None] * t[:-1])
    steps = h[:1] if np.ptp(h) <= 1e-12 * h[0] else h
    a, b, c, d = phase * moments(omega[:, None], steps)
    on_g = np.zeros((len(omega), len(t)), dtype=complex)
    on_c = np.zeros_like(on_g)
    on_g[:, :-1] += a - b / h
    on_g[:, 1:] += b / h
    on_c[:, :-1] += c - 2 / 3 * h * b - d / (3 * h)
    on_c[:, 1:] += d / (3 * h) - h / 3 * b
    inner = on_c[:, 1:-1].T
    pulled = 3 * natural_second_derivatives(h, inner).T
    on_g[:, 2:] += pulled / h[1:]
    on_g[:, 1:-1] -= pulled * (1 / h[1:] + 1 / h[:-1])
    on_g[:, :-2] += pulled / h[:-1]
    return on_g


def sine_basis(
    t: Float[np.ndarray, " K+1"], count: int
) -> tuple[Float[np.ndarray, "M K+1"], Float[np.ndarray, "M K+1"]]:
    """Weights of the variational form on ``[t_0, t_K]`` for ``m = 1 .. count``.

    With ``g_m(t) = sqrt(2 / T) sin(pi m (t - t_0) / T)``, the first matrix takes values
    of f to ``int f g_m``, the second values of y to ``int y g_m'``; their sum is zero
    where ``f = y'``.
    """
    length = t[-1] - t[0]
    omega = pi * np.arange(1, count + 1) / length
    weights = sqrt(2 / length) * spline_weights(t - t[0], omega)
    return weights.imag, omega[:, None] * weights.real
