"""Smoothing splines, the choice of their smoothing, and their Fourier integrals.

Filon's product integration gives the integral of a spline against a sine or cosine
exactly at any frequency. The integral is linear in the values of the spline at its
nodes, so one matrix of weights gives the integrals against a whole basis.
"""

from dataclasses import replace
from math import factorial, pi, sqrt

import numpy as np
import torch
from jaxtyping import Complex, Float

from ..data import Series
from ..weak.noise import estimate_noise

# Terms of the power series in `moments`: enough for full float64 precision.
_TERMS = 25
# Frequencies handled at a time; bounds the memory.
_CHUNK = 64


def smoothing_spline(
    t: Float[np.ndarray, " N"],
    y: Float[np.ndarray, "N D"],
    p: float,
    w: Float[np.ndarray, " N"] | None = None,
) -> Float[np.ndarray, "N D"]:
    """Values at `t` of the natural cubic spline s that minimises ::

        p sum_j w_j (y_j - s(t_j))^2 + (1 - p) int s''(t)^2 dt

    It interpolates for ``p = 1`` and is the regression line for ``p = 0``. On a uniform
    grid of step h it is a low-pass filter with the gain
    ``1 / (1 + h (1 - p) / p omega^4)``; see :func:`smoothing_of`.

    Args:
        t: increasing times.
        y: values, one column a component.
        p: smoothing parameter between 0 and 1; it depends on the unit of time.
        w: weights of the samples; 1 by default.
    """
    from scipy.linalg import solveh_banded

    if not 0 <= p <= 1:
        raise ValueError(f"`p` must lie between 0 and 1; got {p}.")
    h, slopes = np.diff(t), np.diff(y, axis=0) / np.diff(t)[:, None]
    if len(t) < 3 or p == 1:
        return y.copy()
    inverse = np.ones(len(t)) if w is None else 1 / w
    # Q^T has the rows (1/h_i, -1/h_i - 1/h_{i+1}, 1/h_{i+1}).
    low, high = 1 / h[:-1], 1 / h[1:]
    middle = -low - high
    bands = np.zeros((3, len(t) - 2))
    left, centre, right = inverse[:-2], inverse[1:-1], inverse[2:]
    bands[2] = low**2 * left + middle**2 * centre + high**2 * right
    bands[1, 1:] = (middle * centre)[:-1] * low[1:]
    bands[1, 1:] += high[:-1] * centre[1:] * middle[1:]
    bands[0, 2:] = high[:-2] * right[:-2] * low[2:]
    bands *= 6 * (1 - p)
    bands[2] += p * 2 * (h[:-1] + h[1:])
    bands[1, 1:] += p * h[1:-1]
    c = solveh_banded(bands, np.diff(slopes, axis=0))
    bent = np.zeros_like(y)
    bent[:-2] += low[:, None] * c
    bent[1:-1] += middle[:, None] * c
    bent[2:] += high[:, None] * c
    return y - 6 * (1 - p) * inverse[:, None] * bent


def smoothing_of(omega: float, h: float) -> float:
    """The smoothing parameter with a gain of one half at angular frequency `omega`."""
    return h * omega**4 / (1 + h * omega**4)


def cutoff_of(p: float, h: float) -> float:
    """The angular frequency at which smoothing by `p` has a gain of one half."""
    return (p / max((1 - p) * h, 1e-300)) ** 0.25


def choose_smoothing(series: Series, candidates: int = 40) -> float:
    """The smoothing parameter of least estimated error, for nearly uniform samples.

    Minimises ``mean |v - s|^2 - sigma^2 + 2 sigma^2 (freedom / N)`` with the noise of
    :func:`~wpnode_ext.estimate_noise`. ``freedom / N``, the degrees of freedom of the
    spline for each sample, is the mean of its gain over all frequencies.

    Args:
        series: the observations.
        candidates: number of cut-off frequencies that are tried, between 0.01 and 2
            times the Nyquist frequency.
    """
    noise = estimate_noise(series.v, mask=series.mask, lengths=series.lengths)
    variance = noise.sigma.square().numpy()
    h = float(np.median(np.diff(series.times.numpy())))
    angles = np.linspace(0.0, pi, 2001)
    best, least = 1.0, float("inf")
    for share in np.geomspace(0.01, 2.0, candidates):
        p = smoothing_of(share * pi / h, h)
        smooth = smoothed(series, p).v
        misfit = (series.v - smooth).square().mean(0).numpy()
        gain = 1 / (1 + (1 - p) / (p * h**3) * angles**4)
        risk = (misfit - variance + 2 * variance * gain.mean()) / (variance + 1e-300)
        if risk.sum() < least:
            best, least = float(p), float(risk.sum())
    return best


def smoothed(series: Series, p: float) -> Series:
    """Every series smoothed over the values it has; missing ones are interpolated."""
    from scipy.interpolate import CubicSpline

    out = series.v.double().clone()
    begin = 0
    for length in series.lengths:
        rows = slice(begin, begin + length)
        t = series.times[rows].numpy()
        y = series.v[rows].double().numpy()
        gone = None if series.mask is None else series.mask[rows].numpy()
        if gone is None or not gone.any():
            out[rows] = torch.from_numpy(smoothing_spline(t, y, p))
        else:
            for d in range(y.shape[1]):
                there = ~gone[:, d]
                s = smoothing_spline(t[there], y[there, d : d + 1], p)
                curve = CubicSpline(t[there], s, bc_type="natural")
                out[rows, d] = torch.from_numpy(curve(t)[:, 0])
        begin += length
    return replace(series, v=out)


def natural_second_derivatives(
    h: Float[np.ndarray, " K"], right: Float[np.ndarray, "K-1 M"]
) -> Float[np.ndarray, "K-1 M"]:
    """Solves the tridiagonal system of the natural interpolating spline."""
    from scipy.linalg import solve_banded

    bands = np.zeros((3, len(h) - 1))
    bands[1] = 2 * (h[:-1] + h[1:])
    bands[0, 1:] = h[1:-1]
    bands[2, :-1] = h[1:-1]
    return solve_banded((1, 1), bands, right)


def moments(
    omega: Float[np.ndarray, "..."], h: Float[np.ndarray, "..."]
) -> Complex[np.ndarray, "..."]:
    """``int_0^h tau^n exp(i omega tau) d tau`` for n = 0 .. 3.

    Uses a recurrence for ``omega h >= 1``. Below 1 the recurrence cancels, and the
    power series ``h^(n+1) sum_j (i omega h)^j / (j! (n + j + 1))`` is used.
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
    On every cell the spline is ``a + b tau + c tau^2 + d tau^3``. The moments of the
    four terms give weights of c and g; the transposed tridiagonal system turns those of
    c into weights of g.
    """
    h = np.diff(t)
    parts = [
        _chunk_of_weights(t, h, part)
        for part in np.split(omega, range(_CHUNK, len(omega), _CHUNK))
    ]
    return np.concatenate(parts)


def _chunk_of_weights(t: np.ndarray, h: np.ndarray, omega: np.ndarray) -> np.ndarray:
    """:func:`spline_weights` for a few frequencies."""
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

    With ``g_m(t) = sqrt(2 / T) sin(pi m (t - t_0) / T)``, the first matrix maps values
    of f to ``int f g_m``, the second maps values of y to ``int y g_m'``. The two
    integrals add up to zero if ``f = y'``.
    """
    length = t[-1] - t[0]
    omega = pi * np.arange(1, count + 1) / length
    weights = sqrt(2 / length) * spline_weights(t - t[0], omega)
    return weights.imag, omega[:, None] * weights.real
