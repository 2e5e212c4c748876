"""Settings chosen by forecasts of held-out data, never by the data trained on."""

from collections.abc import Callable, Sequence
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from ..data import Series
from ..weak.segments import gap_free_runs, window_starts

_STARTS = 32
_LONGEST = 1000
# Errors beyond the spread of the data count alike: the forecast is lost.
_LOST = 1.0


class HeldOut:
    """Mean error of forecasts from states of filtered data, between 0 and 1.

    The mean over starts and lead times of ``min(E, 1)`` with ``E`` the distance of
    forecast and data in units of their spread, as in
    :class:`~wpnode_ext.training.ForecastValidation`, for anything that takes states
    one sample ahead.

    Args:
        series: filtered data at equal distances, in the coordinates of the model.
        longest: most samples to forecast.
        starts: number of forecasts.

    Attributes:
        dt: distance of the samples, which a step goes ahead.
        horizon: samples that are forecast.
    """

    def __init__(
        self, series: Series, *, longest: int = _LONGEST, starts: int = _STARTS
    ) -> None:
        self.dt = series.dt
        runs = gap_free_runs(
            series.n_samples,
            lengths=series.lengths,
            missing=series.missing,
            t=series.t,
        )
        room = max((stop - first for first, stop in runs), default=0)
        self.horizon = max(1, min(longest, room // 2))
        candidates = window_starts(runs, self.horizon + 1)
        if len(candidates) == 0:
            raise ValueError("the held-out data have no two samples in a row.")
        chosen = torch.linspace(0, len(candidates) - 1, min(starts, len(candidates)))
        self._starts = candidates[chosen.round().long()]
        self._v = series.v.double()
        inside = torch.cat([self._v[first:stop] for first, stop in runs])
        self._spread = inside.var(0, correction=0).sum().sqrt()

    def __call__(self, step: Callable[[Tensor], Tensor]) -> float:
        """The error of a model whose `step` goes from ``[B, D]`` one sample ahead."""
        return self.errors(step).mean().item()

    @torch.no_grad()
    def errors(self, step: Callable[[Tensor], Tensor]) -> Float[Tensor, " B"]:
        """Those of every start, means over the lead times."""
        u: Float[Tensor, "B D"] = self._v[self._starts]
        alive = torch.ones(len(u), dtype=torch.bool)
        errors = torch.full((self.horizon, len(u)), _LOST, dtype=torch.float64)
        for lead in range(self.horizon):
            u = step(u)
            wanted = self._v[self._starts + lead + 1]
            error = (u - wanted).norm(dim=1) / self._spread
            alive &= error < 100 * _LOST
            if not alive.any():
                break
            errors[lead] = torch.where(alive, error.clamp(max=_LOST), _LOST)
            # Members that ran away wait on the data, where any model is finite.
            u = torch.where(alive[:, None], u, wanted)
        return errors.mean(0)


def simplest(errors: Sequence[Float[Tensor, " B"]]) -> int:
    """The first of several models, simplest first, that forecasts as well as the best.

    Its mean error may exceed the least one by two standard errors of the difference,
    two because forecasts of one record overlap: richer models are not taken for what
    may be chance.

    Args:
        errors: of each model, for the same starts.
    """
    best = min(errors, key=lambda found: found.mean().item())
    for place, found in enumerate(errors):
        worse = found - best
        chance = 2 * worse.std(correction=0).item() / sqrt(len(worse))
        if worse.mean().item() <= chance:
            return place
    raise ValueError("there are no models to choose from.")
