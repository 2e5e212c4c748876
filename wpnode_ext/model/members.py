"""Fields that suit the data about as well as the best one: an ensemble."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor

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
    states: Tensor | None,
    refit: Callable[[LinearField, Series, Tensor | None], object],
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
        series: the observations. Refined states obey the best field already: fitted to
            these alone, members would hardly differ.
        states: refined states, where there are any.
        refit: sets the coefficients of a field to those that suit part of the
            observations, given the states there.
        ell: samples of a segment of the weak form.
        seed: of the draws.
    """
    generator = torch.Generator().manual_seed(seed)
    members = [deepcopy(field) for _ in range(count)]
    if likely is not None:
        # What is likely was found by a further step, which may have been refused.
        others = likely.draw(count, generator) - likely.coefficients
        for member, change in zip(members, others, strict=True):
            member.set_coefficients(field.coefficients + change)
        return members
    for member in members:
        blocks = draw_blocks(series, ell, generator)
        believed = None
        if states is not None:
            believed = replace(series, v=states, mask=None).cut(blocks).v
        refit(member, series.cut(blocks), believed)
    return members


def resampled(series: Series, ell: int, generator: torch.Generator) -> Series:
    """As many samples as there are, in blocks drawn with replacement."""
    return series.cut(draw_blocks(series, ell, generator))


def draw_blocks(
    series: Series, ell: int, generator: torch.Generator
) -> list[tuple[int, int, int]]:
    """Blocks of a record, about as many samples as it has, drawn with replacement.

    Each is the number of a series and the first and last but one of its samples.
    """
    length = max(SEGMENTS * (ell + 1), series.n_samples // BLOCKS)
    blocks = [
        (number, first, min(n, first + length))
        for number, n in enumerate(series.lengths)
        for first in range(0, n, length)
    ]
    # The last block of a series may be too short for a segment.
    whole = [block for block in blocks if block[2] - block[1] > ell] or blocks
    picks = torch.randint(len(whole), (len(whole),), generator=generator)
    return [whole[pick] for pick in picks.tolist()]
