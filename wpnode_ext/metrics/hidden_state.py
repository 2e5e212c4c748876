"""Test whether observations contain the whole state.

The next state of an autonomous system follows from its present one. If earlier
observations added to the present one predict the future far better than the present one
alone, the observations are a projection of a larger state, or an input drives them.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..data import Series
from ..weak.segments import window_starts


@dataclass(frozen=True)
class HiddenStateSettings:
    """Numbers of the search for a hidden state.

    Attributes:
        largest: most entries of a state; in more dimensions nearest neighbours are
            hardly nearer than other samples.
        samples: most samples that are used, spread evenly over the record.
        neighbours: number of neighbours that a prediction averages over.
        share: part of the record that is predicted.
        decrease: the past is needed if the error with it is below this share of the
            error without it, and of the variance.
    """

    largest: int = 12
    samples: int = 5000
    neighbours: int = 8
    share: float = 0.25
    decrease: float = 0.5


_DEFAULT = HiddenStateSettings()


@dataclass(frozen=True)
class HiddenState:
    """Mean square errors of predictions, in variances of the data.

    Attributes:
        present: error from the observation at one time.
        delayed: error from the observations at three times.
    """

    present: float
    delayed: float

    @property
    def likely(self) -> bool:
        """True if the state is probably observed only in part."""
        return self.delayed < _DEFAULT.decrease * min(1.0, self.present)

    def __str__(self) -> str:
        return (
            "the state is probably observed only in part (with the past, "
            f"{100 * self.delayed:.2g} % of the variance remain unexplained; with the "
            f"present alone, {100 * self.present:.2g} %)"
        )


def find_hidden_state(
    series: Series, *, lag: int, settings: HiddenStateSettings = _DEFAULT
) -> HiddenState | None:
    """Errors of predictions from the present, and from the present and the past.

    Predictions are means over nearest neighbours in the earlier part of the record.

    Args:
        series: observations at equal intervals.
        lag: samples to predict ahead; delays are half of it.
        settings: numbers of the search.

    Returns:
        None where the record is too short, its times irregular or its states too large.
    """
    from scipy.spatial import KDTree

    size = series.state_shape.numel()
    if series.dt is None or size > settings.largest:
        return None
    neighbours = settings.neighbours
    delay = max(1, lag // 2)
    starts = window_starts(series.runs, 2 * delay + lag + 1)
    if len(starts) < 20 * neighbours:
        return None
    count = min(settings.samples, len(starts))
    picks = torch.linspace(0, len(starts) - 1, count).long()
    now = starts[picks] + 2 * delay
    v = series.v.double().flatten(1)
    spread = v.std(0)
    scaled = ((v - v.mean(0)) / torch.where(spread > 0, spread, 1.0)).numpy()
    times = now.numpy()
    future = scaled[times + lag]
    border = int((1 - settings.share) * len(times))
    # The future of a neighbour must end before the predicted samples begin.
    known = times[:border] + lag < times[border]

    def error(features: NDArray[np.float64]) -> float:
        tree = KDTree(features[:border][known])
        _, near = tree.query(features[border:], k=neighbours)
        guess = future[:border][known][near].mean(1)
        return float(np.square(guess - future[border:]).mean())

    if known.sum() <= neighbours:
        return None
    delayed = [scaled[times - shift * delay] for shift in range(3)]
    return HiddenState(error(delayed[0]), error(np.concatenate(delayed, axis=1)))
