"""Ensembles: fields that suit the data as well as the best one, and their forecasts."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from ..common.arrays import Array, Field, as_float64
from ..data import Series
from ..fields import LinearField
from ..settings.config import TrainConfig
from ..smoothing import ProjectedStep, WideStep
from ..solvers.rollouts import rollout


@dataclass(frozen=True)
class EnsembleForecast:
    """States of every member at the times asked for.

    Attributes:
        members: ``[M, T, *state]`` or ``[M, T, B, *state]``; NaN once one diverged.
        t: times, ``[T]``.
    """

    members: Float[Tensor, "M T ..."]
    t: Float[Tensor, " T"]

    @property
    def mean(self) -> Float[Tensor, "T ..."]:
        """Over the members that have not diverged."""
        return self.members.nanmean(0)

    @property
    def std(self) -> Float[Tensor, "T ..."]:
        """Spread of the members that have not diverged; NaN of fewer than two."""
        seen = (~self.members.isnan()).sum(0)
        square = (self.members - self.mean).square().nansum(0)
        # One member has no spread.
        return torch.where(seen > 1, (square / (seen - 1)).sqrt(), torch.nan)

    def interval(
        self, level: float = 0.9, *, sigma: Array | float = 0.0, seed: int = 0
    ) -> tuple[Float[Tensor, "T ..."], Float[Tensor, "T ..."]]:
        """Ends of the central interval that holds a further member with chance `level`.

        Quantiles of the M members themselves would hold it less often, by a factor of
        ``(M - 1) / (M + 1)``. Few members hold no wide
        intervals: beyond a level of that size the ends are those of all members.

        Args:
            level: between 0 and 1.
            sigma: noise of observations to be covered, a number or ``[*state]``; 0
                for the states themselves.
            seed: of the noise added.
        """
        if not 0 < level < 1:
            raise ValueError(f"`level` must lie between 0 and 1; got {level}.")
        values = self.members
        noise = torch.as_tensor(sigma, dtype=torch.float64)
        if (noise != 0).any():
            generator = torch.Generator().manual_seed(seed)
            z = torch.randn(values.shape, generator=generator, dtype=values.dtype)
            values = values + noise * z
        ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=values.dtype)
        # Of M draws the k-th has the expected quantile k / (M + 1).
        count = len(values)
        ends = (((count + 1) * ends - 1) / max(1, count - 1)).clamp(0.0, 1.0)
        low, high = values.nanquantile(ends, dim=0)
        return low, high


def forecast_members(
    fields: Sequence[Field],
    u0: Float[Tensor, "B ..."] | Sequence[Float[Tensor, "B ..."]],
    t: Array,
    *,
    u0_std: Array | float = 0.0,
    seed: int = 0,
    **options,
) -> EnsembleForecast:
    """Solves every field from the same states, or from states as likely.

    Args:
        fields: the members, in the units of `u0`.
        u0: states at time ``t[0]``, ``[B, *state]``, or a list of such, one for each
            member.
        t: times, ``[T]``.
        u0_std: standard deviations of their errors, for instance error bars of refined
            states; each member starts from a draw of its own.
        seed: of these draws.
        **options: of :func:`~wpnode_ext.rollout`.
    """
    times, spread = as_float64(t, "t"), torch.as_tensor(u0_std, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    paths = []
    starts = [u0] * len(fields) if isinstance(u0, Tensor) else u0
    for field, start in zip(fields, starts, strict=True):
        z = torch.randn(start.shape, generator=generator, dtype=torch.float64)
        begin = start + (spread * z).to(start)
        paths.append(rollout(field, begin, times, **options).u)
    return EnsembleForecast(torch.stack(paths), times)


def draw_members(
    field: LinearField,
    config: TrainConfig,
    *,
    likely: ProjectedStep | WideStep | None,
    series: Series,
    states: Tensor | None,
    refit: Callable[[LinearField, Series, Tensor | None], object],
) -> list[LinearField]:
    """Copies of a field with other coefficients.

    Where the refinement gives a distribution of the coefficients, they are drawn from
    it; else each member is fitted to blocks of the record drawn with replacement.

    Args:
        field: the best field.
        config: number of members and blocks, weak form and seed.
        likely: the distribution of the coefficients, or None.
        series: the observations. Refined states obey the best field already: fitted to
            these alone, members would hardly differ.
        states: refined states, or None.
        refit: sets the coefficients of a field to those that suit part of the
            observations, given the states there.
    """
    generator = torch.Generator().manual_seed(config.seed)
    members = [deepcopy(field) for _ in range(config.ensemble)]
    if likely is not None:
        # The distribution is that of a further step, which may have been refused.
        others = likely.draw(config.ensemble, generator) - likely.coefficients
        for member, change in zip(members, others, strict=True):
            member.set_coefficients(field.coefficients + change)
        return members
    for member in members:
        blocks, there = _draw_blocks(series, config, generator), None
        if states is not None:
            there = replace(series, v=states, mask=None).cut(blocks).v
        refit(member, series.cut(blocks), there)
    return members


def resampled(
    series: Series, config: TrainConfig, generator: torch.Generator
) -> Series:
    """As many samples as there are, in blocks drawn with replacement."""
    return series.cut(_draw_blocks(series, config, generator))


def _draw_blocks(
    series: Series, config: TrainConfig, generator: torch.Generator
) -> list[tuple[int, int, int]]:
    """Blocks of a record, about as many samples as it has, drawn with replacement.

    A block is the number of a series, its first sample and the one after its last.
    """
    ell, least = config.weak.ell, config.ensemble_segments
    length = max(least * (ell + 1), series.n_samples // config.ensemble_blocks)
    blocks = [
        (number, first, min(n, first + length))
        for number, n in enumerate(series.lengths)
        for first in range(0, n, length)
    ]
    # The last block of a series may be too short for a segment.
    whole = [block for block in blocks if block[2] - block[1] > ell] or blocks
    picks = torch.randint(len(whole), (len(whole),), generator=generator)
    return [whole[pick] for pick in picks.tolist()]
