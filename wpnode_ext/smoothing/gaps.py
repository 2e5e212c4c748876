"""Smoothing around long gaps, stretches of a record without any value.

An inaccurate or chaotic field leads a smoother to a wrong path across a long gap, with
wrong states on both sides. So the record is cut at the gap, and the states in it are
forecast from the last state before it.
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

# A forecast ends at this multiple of the largest distance of the data from their mean.
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
        first: their first states.
        substeps: steps of the model in an interval.
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

    A sample is missing if no value of it was observed; some values are enough for the
    smoother.
    """
    if series.mask is None:
        return []
    n = series.n_samples
    seen = ~series.mask.reshape(n, -1).all(1)
    runs = gap_free_runs(n, lengths=series.lengths, missing=seen)
    return [(first, stop) for first, stop in runs if stop - first > longest]


def ended_at(series: Series, gaps: list[Gap]) -> Series:
    """The same samples, with a series ending at the end of every gap."""
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
    """The states, with those in gaps forecast from the last state before the gap.

    The given states remain in gaps at the start of a series, and from the sample where
    a forecast leaves the range of the data.
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
    """Pieces of the whole record, with additional cuts before `edges`."""
    pieces, begin = [], 0
    for number, length in enumerate(series.lengths):
        inner = sorted(edge - begin for edge in edges if 0 < edge - begin < length)
        ends = [0, *inner, length]
        pieces += [(number, a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)]
        begin += length
    return pieces
