"""Stretches of a record without any value, too long to be bridged.

A smoother with an inaccurate or chaotic field finds a wrong path across such a gap, and
spoils the states on both sides. So the record ends there and begins anew behind it;
states in a gap are forecast from the last one before it.
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..common.arrays import Field
from ..data import Series
from ..weak.segments import gap_free_runs
from .first_states import LocalFit
from .smoother import SmoothedStates, smooth_states
from .steps import Step, make_step

# A forecast ends where it is so many times as far from the mean as the data ever are.
FAR = 3.0

Gap = tuple[int, int]


def smooth_around_gaps(
    field: Field, series: Series, first: LocalFit, *, substeps: int = 1, **options: Any
) -> SmoothedStates:
    """:func:`smooth_states` from first states, with forecasts in long gaps.

    Error bars in a gap grow with the forecast, up to the spread of the data.

    Args:
        field: callable ``field(t, u)``.
        series: observations.
        first: first states of them.
        substeps: of the model, as there.
        **options: the other arguments of :func:`smooth_states`.
    """
    gaps = long_gaps(series, first.width)
    step = make_step(field, series.state_shape, series.dt, substeps=substeps)
    found = smooth_states(
        field,
        ended_at(series, gaps),
        start=forecast_gaps(first.states, series, gaps, step),
        substeps=substeps,
        **options,
    )
    if not gaps or found.std is None:
        return found
    spread = first.states.std(0)
    return replace(found, std=torch.minimum(found.std, spread.maximum(first.sigma)))


def long_gaps(series: Series, longest: int) -> list[Gap]:
    """Rows ``first .. stop - 1`` of each run of more than `longest` missing samples.

    Samples are missing where no value was observed; with some of them a model finds its
    way.
    """
    if series.mask is None:
        return []
    n = series.n_samples
    seen = ~series.mask.reshape(n, -1).all(1)
    runs = gap_free_runs(n, lengths=series.lengths, missing=seen)
    return [(first, stop) for first, stop in runs if stop - first > longest]


def ended_at(series: Series, gaps: list[Gap]) -> Series:
    """The same samples, in series that end with every gap."""
    if not gaps:
        return series
    return series.cut(_pieces(series, {stop for _, stop in gaps}))


def without(series: Series, gaps: list[Gap]) -> list[tuple[int, int, int]]:
    """Pieces for :meth:`~wpnode_ext.data.Series.cut` that leave the gaps out."""
    offsets = [sum(series.lengths[:i]) for i in range(series.n_series)]
    firsts = {first for first, _ in gaps}
    pieces = _pieces(series, {row for gap in gaps for row in gap})
    return [piece for piece in pieces if offsets[piece[0]] + piece[1] not in firsts]


@torch.no_grad()
def forecast_gaps(
    states: Float[Tensor, "N ..."], series: Series, gaps: list[Gap], step: Step
) -> Float[Tensor, "N ..."]:
    """The states, those in gaps forecast by the model from the last one before.

    Given states remain in gaps at the start of a series, and from where the forecast
    leaves the range of the data.
    """
    found = states.double().reshape(series.n_samples, -1).clone()
    centre = found.mean(0)
    reach = FAR * (found - centre).abs().amax(0)
    times = series.times
    starts = [sum(series.lengths[:i]) for i in range(series.n_series)]
    for first, stop in gaps:
        for row in range(first, stop) if first not in starts else ():
            before = times[row - 1][None]
            h = times[row] - before if series.dt is None else before * 0 + series.dt
            ahead = step(found[row - 1][None], before, h)[0]
            if not ((ahead - centre).abs() <= reach).all():
                break
            found[row] = ahead
    return found.reshape(states.shape)


def _pieces(series: Series, edges: set[int]) -> list[tuple[int, int, int]]:
    """The whole record, cut before these rows too."""
    pieces, begin = [], 0
    for number, length in enumerate(series.lengths):
        inner = sorted(edge - begin for edge in edges if 0 < edge - begin < length)
        ends = [0, *inner, length]
        pieces += [(number, a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)]
        begin += length
    return pieces
