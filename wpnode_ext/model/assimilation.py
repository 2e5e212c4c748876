"""States of noisy observations under a learned field, and starts for its ensemble."""

from collections.abc import Sequence
from copy import deepcopy

import torch
from jaxtyping import Float
from torch import Tensor

from ..common.typing import Array
from ..data import Data, Series, as_series
from ..smoothing import LocalFit, first_states, smooth_around_gaps, step_error
from ..smoothing.likely_states import likely_states
from ..training.states_file import RefinedStates
from .forecaster import Forecaster
from .reduced import scaled_series

# Error of a field from sample to sample, in units of the noise, where none is known.
PROCESS_NOISE = 0.1


class Assimilator(Forecaster):
    """A model that can tell states from observations it was not fitted to."""

    def estimate_states(
        self,
        v: Data,
        dt: float | None = None,
        *,
        t: Array | Sequence[Array] | None = None,
        mask: Array | Sequence[Array] | None = None,
    ) -> RefinedStates:
        """States between observations and the learned field, with error bars.

        Noise is estimated from the observations; the field is not changed. Errors of
        the field as a whole are not in the error bars; see :meth:`draw_starts`.

        Args:
            v, dt, t, mask: observations as in :meth:`~wpnode_ext.WPNODE.fit`.
        """
        series = self._scaled(as_series(v, dt=dt, t=t, mask=mask))
        first = first_states(series)
        found = smooth_around_gaps(
            deepcopy(self.field_).cpu(),
            series,
            first,
            sigma=first.sigma,
            process_noise=self._error(first.sigma),
        )
        assert found.std is not None
        return RefinedStates(
            self.scaler_.inverse(found.states),
            self.scaler_.spread(found.std),
            self.scaler_.spread(first.sigma),
            [],
        )

    def draw_starts(
        self,
        v: Data,
        dt: float | None = None,
        *,
        at: int | Sequence[int] | Tensor = -1,
        t: Array | Sequence[Array] | None = None,
        mask: Array | Sequence[Array] | None = None,
        seed: int = 0,
    ) -> Float[Tensor, "M B ..."]:
        """States to forecast from, one for each member of the ensemble.

        Every member smooths the observations around a sample with its own field and
        takes one draw of what they leave open: the correlations of the errors, between
        components and with the field, are those of the data.
        ``forecast_ensemble(model.draw_starts(v, dt), t)`` forecasts from the end.

        Args:
            v, dt, t, mask: observations as in :meth:`~wpnode_ext.WPNODE.fit`, those of
                training or later ones.
            at: samples to start at, counted from the end where negative; of several
                series, counted through all of them.
            seed: of the draws.
        """
        if not self.members_:
            raise RuntimeError("the model has no ensemble; fit it with `ensemble=30`.")
        series = self._scaled(as_series(v, dt=dt, t=t, mask=mask))
        places = torch.as_tensor(at, dtype=torch.int64).reshape(-1)
        places = torch.where(places < 0, places + series.n_samples, places)
        first = first_states(series)
        found = likely_states(
            [deepcopy(member).cpu() for member in self.members_],
            series,
            places,
            sigma=first.sigma,
            process_noise=self._own_error(series, first),
            start=first.states,
            seed=seed,
        )
        return self.scaler_.inverse(found)

    def _own_error(self, series: Series, first: LocalFit) -> Float[Tensor, "..."]:
        """Process noise of largest evidence: members differ where the field errs."""
        return step_error(
            deepcopy(self.field_).cpu(),
            series,
            first.states,
            sigma=first.sigma,
            process_noise=self._error(first.sigma),
        )

    def _scaled(self, series: Series) -> Series:
        self._check_fitted()
        if self.forcing_scaler_ is not None:
            raise RuntimeError("states of models with inputs are not estimated.")
        if tuple(series.state_shape) != self.state_shape_:
            raise ValueError(
                f"`v` must have states of shape {list(self.state_shape_)}; got "
                f"{list(series.state_shape)}."
            )
        return scaled_series(series, self.scaler_, None)

    def _error(self, sigma: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Process noise; that of components without noise only keeps it positive."""
        known = self.process_noise_
        level = PROCESS_NOISE if known is None else known
        least = torch.finfo(torch.float64).eps
        return (level * sigma).clamp(min=least)
