"""Observations kept from a fit, and what they say about it."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .._arrays import as_generator
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
