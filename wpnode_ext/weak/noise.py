"""Estimates the noise of a series without a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import factorial

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .. import ops
from ..common.arrays import Array, as_float64
from .segments import missing_values, segment_starts


@dataclass(frozen=True)
class NoiseStencil:
    """Finite differences that remove a smooth signal and keep white noise.

    Attributes:
        width: points of a difference. A signal must be smooth over so many samples.
        order: order of the difference; higher ones remove more of the signal.
        lower_order: order of a second estimate, which sees more of the signal.
        disagreement: relative difference of the two estimates from which neither is
            reliable.
    """

    width: int = 17
    order: int = 6
    lower_order: int = 4
    disagreement: float = 0.1


_DEFAULT = NoiseStencil()


@dataclass(frozen=True)
class NoiseEstimate:
    """Standard deviation of the noise per component.

    Attributes:
        sigma: the estimate, float64 ``[*state]``.
        sigma_lower_order: a second one that sees more of the signal, ``[*state]``.
        reliable: where the two differ by less than 10 %, ``[*state]``. Elsewhere the
            signal is not smooth over 17 samples and `sigma` is only an upper bound:
            a smaller step separates noise from signal.
        n_windows: windows behind the estimate, of the component that has fewest.
    """

    sigma: Float[Tensor, "..."]
    sigma_lower_order: Float[Tensor, "..."]
    reliable: Bool[Tensor, "..."]
    n_windows: int


def estimate_noise(
    v: Array,
    *,
    mask: Array | None = None,
    lengths: Sequence[int] | None = None,
    stencil: NoiseStencil = _DEFAULT,
) -> NoiseEstimate:
    """Standard deviation of white noise on a smooth series, without a model.

    A finite difference of order 6 on 17 points, with coefficients of unit norm, removes
    a smooth signal and keeps the variance of white noise. The estimate is the root mean
    square of these differences. Steps must be uniform; their size does not matter.

    Args:
        v: series, ``[N, *state]``; NaN marks missing values.
        mask: True where a value is missing, ``[N]`` or ``[N, *state]``.
        lengths: lengths of several series laid end to end.
        stencil: the differences.

    Raises:
        ValueError: the series has no 17 consecutive samples.
    """
    width = stencil.width
    data = as_float64(v, "v")
    if data.dim() == 0:
        raise ValueError("`v` must have a time axis; got a single number.")
    state = data.shape[1:]
    flat = data.reshape(len(data), state.numel())
    missing = ~flat.isfinite()
    if mask is not None:
        missing = missing | missing_values(mask, data).reshape(len(data), -1)
    starts = segment_starts(len(data), width - 1, 1, lengths=lengths)
    if len(starts) == 0:
        raise ValueError(
            f"`v` must have {width} consecutive samples, to separate noise from "
            f"signal; got {max(lengths or [len(data)])} in a row."
        )
    clean, use = flat[None].contiguous(), None
    counts = torch.full((flat.shape[1],), len(starts))
    if missing.any():
        clean = clean.masked_fill(missing, 0.0)
        ones = torch.ones(width, dtype=torch.float64)
        use = ops.corr(missing.double()[None], ones, starts=starts)[0] == 0
        counts = use.sum(0)
    if (counts == 0).any():
        raise ValueError(
            f"`v` must have {width} consecutive samples of every component; got none "
            f"for {int((counts == 0).sum())} of {len(counts)}."
        )
    levels = []
    for order in (stencil.order, stencil.lower_order):
        left = ops.corr(clean, _coefficients(width, order), starts=starts)[0]
        if use is not None:
            left *= use
        squares = left.square_().sum(0)
        levels.append((squares / counts).sqrt().reshape(state))
    sigma, lower = levels
    # Rounding of the data is the least noise there can be.
    floor = torch.finfo(torch.float64).eps * clean[0].abs().amax(0).reshape(state)
    return NoiseEstimate(
        sigma=sigma,
        sigma_lower_order=lower,
        reliable=(sigma - lower).abs() <= stencil.disagreement * sigma + floor,
        n_windows=int(counts.min()),
    )


@lru_cache(maxsize=8)
def _coefficients(width: int, order: int) -> Float[Tensor, " width"]:
    """Coefficients of the derivative, exact to degree `width` - 1, of unit norm.

    They solve ``sum_i c_i x_i^j = j! [j = order]``; centred offsets in units of the
    half width keep the system well conditioned.
    """
    x = np.linspace(-1.0, 1.0, width)
    right = np.zeros(width)
    right[order] = factorial(order)
    c = np.linalg.solve(np.vander(x, increasing=True).T, right)
    return torch.from_numpy(c / np.linalg.norm(c))
