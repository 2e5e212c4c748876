"""Observations kept from a fit, what they say about it, and parts of long records."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..common.arrays import as_generator
from ..data import Series

# Standard errors by which held-out errors must have risen to count as worse.
CONFIDENCE = 2.0


def hide_values(
    series: Series, share: float, seed: int | torch.Generator
) -> Bool[Tensor, "N ..."]:
    """Values to keep from the smoother, none of them missing."""
    if not 0 < share < 0.5:
        raise ValueError(f"`held_out` must lie between 0 and 0.5; got {share}.")
    hidden = torch.rand(series.v.shape, generator=as_generator(seed)) < share
    return hidden if series.mask is None else hidden & ~series.mask


def spread_stretches(
    series: Series, samples: int, length: int = 1000
) -> list[tuple[int, int, int]]:
    """Stretches of a record, evenly spread, with about so many samples together.

    Args:
        series: the record.
        samples: how many are wanted.
        length: of a stretch, where a series is that long.

    Returns:
        What :meth:`~wpnode_ext.data.Series.cut` takes.
    """
    blocks = [
        (number, first, min(n, first + length))
        for number, n in enumerate(series.lengths)
        for first in range(0, n, length)
        if n - first >= min(n, length)
    ]
    count = max(1, min(len(blocks), samples // length))
    picks = [round(i * (len(blocks) - 1) / max(1, count - 1)) for i in range(count)]
    return [blocks[pick] for pick in picks]


class Watch:
    """Compares held-out errors of a round with the best so far, value by value."""

    def __init__(self) -> None:
        self._best: Tensor | None = None

    def judge(self, errors: Float[Tensor, " H"]) -> Literal["better", "same", "worse"]:
        if self._best is None:
            self._best = errors
            return "better"
        rise = errors - self._best
        doubt = CONFIDENCE * rise.std().item() / max(1, len(rise)) ** 0.5
        mean = rise.mean().item()
        if not mean <= doubt:
            return "worse"
        if mean <= 0:
            self._best = errors
            return "better"
        return "same"
