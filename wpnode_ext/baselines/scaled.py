"""Observations as methods of comparison see them."""

from dataclasses import replace

from ..coordinates.scaling import Scaler
from ..data import Series

# Relative difference of distances of samples that rounding of times can make.
ROUNDING = 1e-6


def scaled(series: Series, scaler: Scaler) -> Series:
    """The same in the coordinates of a model, float64."""
    return replace(series, v=scaler.transform(series.v.double()))


def same_distance(one: float | None, other: float | None) -> bool:
    """Whether samples are equally far apart; irregular ones are not."""
    return one is not None and other is not None and abs(one / other - 1) <= ROUNDING
