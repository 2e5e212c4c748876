"""Fields that suit the data about as well as the best one: an ensemble."""

from collections.abc import Callable
from copy import deepcopy

import torch

from ..data import Series
from ..fields import LinearField
from ..smoothing import ProjectedStep, WideStep

# Blocks a record is cut into for resampling, and their least length in segments.
BLOCKS, SEGMENTS = 40, 4


def draw_members(
    field: LinearField,
    count: int,
    *,
    likely: ProjectedStep | WideStep | None,
    series: Series,
    refit: Callable[[LinearField, Series], object],
    ell: int,
    seed: int,
) -> list[LinearField]:
    """Copies of a field with other coefficients.

    Where the refinement tells how well the data determine the coefficients, they are
    drawn from that distribution; else each member is fitted to blocks of the record
    drawn with replacement.

    Args:
        field: the best field.
        count: members wanted.
        likely: what the refinement knows of the coefficients.
        series: what `refit` fits to: observations, or refined states.
        refit: sets the coefficients of a field to those that suit a series.
        ell: samples of a segment of the weak form.
        seed: of the draws.
    """
    generator = torch.Generator().manual_seed(seed)
    members = [deepcopy(field) for _ in range(count)]
    if likely is not None:
        for member, head in zip(members, likely.draw(count, generator), strict=True):
            member.set_coefficients(head)
        return members
    for member in members:
        refit(member, resampled(series, ell, generator))
    return members


def resampled(series: Series, ell: int, generator: torch.Generator) -> Series:
    """As many samples as there are, in blocks drawn with replacement."""
    length = max(SEGMENTS * (ell + 1), series.n_samples // BLOCKS)
    blocks = [
        (number, first, min(n, first + length))
        for number, n in enumerate(series.lengths)
        for first in range(0, n, length)
    ]
    # The last block of a series may be too short for a segment.
    whole = [block for block in blocks if block[2] - block[1] > ell] or blocks
    picks = torch.randint(len(whole), (len(whole),), generator=generator)
    return series.cut([whole[pick] for pick in picks.tolist()])
