"""Smoothing splines, and the amount of smoothing the noise asks for."""

from dataclasses import replace
from math import pi

import numpy as np
import torch
from jaxtyping import Float
from scipy.interpolate import CubicSpline
from scipy.linalg import solve_banded, solveh_banded

from ..data import Series
from ..weak.noise import estimate_noise

# Cut-off frequencies tried, as shares of the Nyquist frequency.
_CUTOFFS = np.geomspace(0.01, 2.0, 40)


def smoothing_spline(
    t: Float[np.ndarray, " N"],
    y: Float[np.ndarray, "N D"],
    p: float,
    w: Float[np.ndarray, " N"] | None = None,
) -> Float[np.ndarray, "N D"]:
    """Values at `t` of the natural cubic spline s that minimises ::

        p sum_j w_j (y_j - s(t_j))^2 + (1 - p) int s''(t)^2 dt

    Interpolates for ``p = 1``; the regression line for ``p = 0``. One pentadiagonal
    system for all columns. On a uniform grid of step h it is a low-pass filter with the
    gain ``1 / (1 + h (1 - p) / p omega^4)``; see :func:`smoothing_of`.

    Args:
        t: increasing times.
        y: values, one column a component.
        p: smoothing parameter between 0 and 1; it depends on the unit of time.
        w: weights of the samples; 1 by default.
    """
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
    """The parameter whose gain is one half at the angular frequency `omega`."""
    return h * omega**4 / (1 + h * omega**4)


def cutoff_of(p: float, h: float) -> float:
    """The angular frequency at which the gain of parameter `p` is one half."""
    return (p / max((1 - p) * h, 1e-300)) ** 0.25


def choose_smoothing(series: Series) -> float:
    """The parameter of least estimated error, for samples at about equal distances.

    Minimises ``mean |v - s|^2 - sigma^2 + 2 sigma^2 (freedom / N)`` with the noise of
    :func:`~wpnode_ext.estimate_noise`; the freedom a sample is the mean of the gain
    over all frequencies.
    """
    noise = estimate_noise(series.v, mask=series.mask, lengths=series.lengths)
    variance = noise.sigma.square().numpy()
    h = float(np.median(np.diff(series.times.numpy())))
    angles = np.linspace(0.0, pi, 2001)
    best, least = 1.0, float("inf")
    for share in _CUTOFFS:
        p = smoothing_of(share * pi / h, h)
        smooth = smoothed(series, p).v
        miss = (series.v - smooth).square().mean(0).numpy()
        gain = 1 / (1 + (1 - p) / (p * h**3) * angles**4)
        risk = (miss - variance + 2 * variance * gain.mean()) / (variance + 1e-300)
        if risk.sum() < least:
            best, least = float(p), float(risk.sum())
    return best


def smoothed(series: Series, p: float) -> Series:
    """The series, each smoothed over the values that are there."""
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
    bands = np.zeros((3, len(h) - 1))
    bands[1] = 2 * (h[:-1] + h[1:])
    bands[0, 1:] = h[1:-1]
    bands[2, :-1] = h[1:-1]
    return solve_banded((1, 1), bands, right)
