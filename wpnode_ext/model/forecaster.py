"""A learned field in use: forecasts, scores, and states of observations."""

import warnings
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..common.arrays import Array, as_float64
from ..coordinates.scaling import Scaler, scale_series
from ..data import Data, Series, as_series
from ..fields import Forcing
from ..fields.base import FarField, attached, device_of
from ..metrics import GoodnessOfFit, goodness_of_fit
from ..metrics.climate import Climate, evaluate_climate
from ..metrics.evaluation import Evaluation, evaluate_field
from ..settings.config import TrainConfig
from ..smoothing import (
    LocalFit,
    first_states,
    likely_states,
    smooth_around_gaps,
    step_error,
)
from ..solvers.rollouts import RolloutResult, rollout
from ..training.validation import ForecastValidation
from .ensemble import EnsembleForecast, forecast_members
from .export import equations_of
from .files import RefinedStates, write_model
from .inputs import inputs_at, inputs_of, refuse_inputs, running_clocks
from .prepare import filtered, make_record
from .verdict import Verdict


@dataclass(frozen=True)
class ForecasterSettings:
    """Numbers that forecasts and estimates of states assume.

    Attributes:
        far: size of a diverged forecast, in units of the largest known state. No
            system whose data fill its attractor comes near it.
        process_noise: error of a field from sample to sample, in units of the noise,
            where the fit estimated none.
    """

    far: float = 100.0
    process_noise: float = 0.1


_SETTINGS = ForecasterSettings()


class Forecaster:
    """A field in scaled coordinates with its scaler, used in the units of the data.

    Attributes:
        field_: the trained field, in scaled coordinates.
        physical_field_: the same as a module ``field(t, u)`` in the units of the data.
        scaler_, forcing_scaler_: of the state and of the inputs.
        config_: settings that were used.
        state_shape_, dt_, names_: of the data it was trained on.
        members_: other fields that suit the data about as well, in scaled coordinates;
            empty unless an ensemble was asked for.
        process_noise_: error of the field from sample to sample, in units of the noise;
            found by the refinement, None without one.
        why_: why the method is the one in ``config_.method``.
        verdict_: whether to use the model, and why; ``print(model.verdict_)`` gives it
            in two lines. None where training was stopped.
    """

    names_: tuple[str, ...] | None = None
    dt_: float | None = None
    members_: Sequence[nn.Module] = ()
    process_noise_: float | None = None
    why_: str = ""
    verdict_: Verdict | None = None

    def forecast(
        self,
        u0: Array,
        t: Array,
        *,
        forcing: Array | Forcing | None = None,
        method: str = "dopri5",
        **options: Any,
    ) -> Float[Tensor, "T ..."]:
        """States at times `t` from `u0`, in the units of the data, in float64.

        Args:
            u0: a state ``[*state]`` or a batch ``[B, *state]``, at time ``t[0]``.
            t: increasing times, ``[T]``.
            forcing: for a model that has inputs, these at the times `t`, ``[T, C]``, or
                a :class:`~wpnode_ext.fields.Forcing` that covers them.
            method: solver; see :func:`~wpnode_ext.rollout`, also for `options`. The
                `bound` is by default 100 times the largest of the states `u0` and of
                the data the model was fitted to.

        Returns:
            ``[T, *state]`` or ``[T, B, *state]``; NaN once a forecast has diverged.
        """
        batched, start = self._states(u0)
        result = self.rollout(start, t, forcing=forcing, method=method, **options)
        warn_of_divergence(result.u, result.t, "forecast")
        return result.u if batched else result.u[:, 0]

    def rollout(
        self,
        u0: Float[Tensor, "B ..."],
        t: Array,
        *,
        forcing: Array | Forcing | None = None,
        **options: Any,
    ) -> RolloutResult:
        """:meth:`forecast` of a batch, with the times at which members diverged."""
        self._check_fitted()
        times = as_float64(t, "t")
        inputs = inputs_at(forcing, times, self.forcing_scaler_)
        options = {"bound": self._bound(u0)} | options
        with attached(self.field_, inputs):
            return rollout(self.physical_field_, u0, times, **options)

    def forecast_ensemble(
        self,
        u0: Array,
        t: Array,
        *,
        u0_std: Array | float = 0.0,
        seed: int = 0,
        **options: Any,
    ) -> EnsembleForecast:
        """Forecasts by every member; their spread estimates the error.

        Args:
            u0, t: as in :meth:`forecast`; or for each of the M members a batch of its
                own, ``[M, B, *state]``, see
                :meth:`~wpnode_ext.model.forecaster.Assimilator.draw_starts`.
            u0_std: errors of the start, for instance ``states_std_[-1]``, drawn entry
                by entry, without correlations.
            seed: of the starts drawn with them.
            **options: of :func:`~wpnode_ext.rollout`.
        """
        if not self.members_:
            raise RuntimeError("the model has no ensemble; fit it with `ensemble=30`.")
        if self.forcing_scaler_ is not None:
            raise RuntimeError("ensembles of models with inputs are not offered.")
        given, m = as_float64(u0, "u0"), len(self.members_)
        own = given.dim() == len(self.state_shape_) + 2 and len(given) == m
        batched, start = self._states(given.flatten(0, 1) if own else given)
        starts = list(start.unflatten(0, (m, -1))) if own else start
        fields = [self.scaler_.to_physical(member) for member in self.members_]
        options = {"bound": self._bound(start)} | options
        found = forecast_members(fields, starts, t, u0_std=u0_std, seed=seed, **options)
        paths = found.members.movedim(0, 1).flatten(1, 2)
        warn_of_divergence(paths, found.t, "member")
        if batched:
            return found
        return EnsembleForecast(found.members[:, :, 0], found.t)

    def score(self, v: Data, dt: float | None = None, *, t: Any = None) -> float:
        """Skill of short forecasts on held-out data: 1 is perfect, 0 is lost.

        One minus the validation error, see
        :class:`~wpnode_ext.training.ForecastValidation`; the data are filtered first.
        For a model with inputs they are a Series that has them.
        """
        self._check_fitted()
        series = as_series(v, dt=dt, t=t)
        clock = series.times
        if self.forcing_scaler_ is not None:
            clock = running_clocks([series])[0]
        inputs = inputs_of(series, clock, self.forcing_scaler_)
        config = self.config_.validation
        record = make_record(
            filtered(series, self.config_, None),
            self.scaler_,
            clock,
            next(self.field_.parameters()).dtype,
        )
        validate = ForecastValidation(
            record, starts=config.starts, horizon=config.horizon
        )
        with attached(self.field_, inputs):
            return 1.0 - validate(self.field_)["val_error"]

    def evaluate(self, u: Array, dt: float, **options: Any) -> Evaluation:
        """Judges forecasts against a reference trajectory.

        Args:
            u: reference ``[N, *state]`` that was not trained on.
            dt: distance of its samples.
            **options: see :func:`~wpnode_ext.evaluate_field`.
        """
        self._check_fitted()
        refuse_inputs(self.forcing_scaler_, "evaluate")
        options = {"bound": self._bound(as_float64(u, "u"))} | options
        return evaluate_field(self.physical_field_, u, dt, **options)

    def climate(self, u: Array, dt: float, **options: Any) -> Climate:
        """Compares long forecasts with a reference trajectory.

        Args:
            u: reference ``[N, *state]``.
            dt: distance of its samples.
            **options: see :func:`~wpnode_ext.metrics.climate.evaluate_climate`.
        """
        self._check_fitted()
        refuse_inputs(self.forcing_scaler_, "climate")
        return evaluate_climate(FarField(self.physical_field_), u, dt, **options)

    def goodness_of_fit(
        self, v: Data, dt: float | None = None, **options: Any
    ) -> GoodnessOfFit:
        """How well the field explains observations, without a reference trajectory.

        Args:
            v: noisy observations at equal distances, as in :meth:`WPNODE.fit`.
            dt: their distance; none for a Series, which has its own.
            **options: see :func:`~wpnode_ext.metrics.goodness_of_fit`.
        """
        self._check_fitted()
        series = as_series(v, dt=dt)
        if series.dt is None:
            raise ValueError("`v` must have samples at equal distances.")
        weak = self.config_.weak
        where = {"p": weak.p, "ell": weak.ell} | options
        # Times of the residuals: samples one after another, whatever their series.
        clock = series.dt * torch.arange(series.n_samples, dtype=torch.float64)
        inputs = inputs_of(series, clock, self.forcing_scaler_)
        # Without a completion: noise in entries it adds would hide all other noise.
        physical = self.scaler_.plain().to_physical(self.field_)
        with attached(self.field_, inputs):
            return goodness_of_fit(
                FarField(physical),
                series.v,
                dt=series.dt,
                lengths=series.lengths,
                mask=series.mask,
                **where,
            )

    def equations(
        self, names: Sequence[str] | None = None, digits: int = 4
    ) -> list[str]:
        """The learned equations in the units of the data; for "library" fields."""
        self._check_fitted()
        return equations_of(
            self.field_,
            self.scaler_,
            self.forcing_scaler_,
            names or self.names_,
            digits,
        )

    def save(self, path: str | Path) -> None:
        """Writes the model to one file; see :func:`~wpnode_ext.load`."""
        self._check_fitted()
        write_model(self, path)

    def _set_model(
        self,
        field: nn.Module,
        scaler: Scaler,
        forcing_scaler: Scaler | None,
        config: TrainConfig,
        series: Series | None = None,
    ) -> None:
        self.field_, self.config_ = field, config
        self.scaler_, self.forcing_scaler_ = scaler, forcing_scaler
        self.physical_field_: nn.Module = scaler.to_physical(field)
        if series is not None:
            self.state_shape_ = tuple(series.state_shape)
            self.dt_, self.names_ = series.dt, series.names

    def _states(self, u0: Array) -> tuple[bool, Float[Tensor, "B ..."]]:
        self._check_fitted()
        start = as_float64(u0, "u0")
        shape = self.state_shape_
        if tuple(start.shape[-len(shape) :]) != shape or start.dim() > len(shape) + 1:
            raise ValueError(
                f"`u0` must have shape {list(shape)} or [B, {str(list(shape))[1:]}; "
                f"got {list(start.shape)}."
            )
        batched = start.dim() == len(shape) + 1
        start = start if batched else start[None]
        return batched, start.to(self.scaler_device())

    def _bound(self, u: Float[Tensor, "..."]) -> float:
        """Size from which on a forecast has diverged: far from all known states.

        The start alone gives no such size: a growing state may begin small.
        """
        known = u[u.isfinite()].abs().max().item() if u.isfinite().any() else 0.0
        size = (self.scaler_.shift.abs() + self.scaler_.scale).max().item()
        return _SETTINGS.far * max(1.0, known, size)

    def scaler_device(self) -> torch.device:
        """Where forecasts are computed: the device of the field."""
        return device_of(self.field_)

    def _check_fitted(self) -> None:
        if not hasattr(self, "field_"):
            raise RuntimeError("the model is not fitted; call `fit` first.")


def warn_of_divergence(
    paths: Float[Tensor, "T n ..."], t: Float[Tensor, " T"], name: str
) -> None:
    """Warns of paths that are not finite to the end, with the first time of it.

    Args:
        paths: states; once one is not finite, all later ones of its path are not.
        t: their times.
        name: of one path, for the message.
    """
    gone = ~paths.flatten(2).isfinite().all(2)
    count, total = int(gone[-1].sum()), gone.shape[1]
    if count == 0:
        return
    which = f"the {name}" if total == 1 else f"{count} of {total} {name}s"
    first = t[int(gone.any(1).int().argmax())].item()
    warnings.warn(
        f"{which} diverged at t = {first:g}; states are NaN from then on.",
        RuntimeWarning,
        stacklevel=3,
    )


class Assimilator(Forecaster):
    """A model that estimates states from observations it was not fitted to."""

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
        draws a state from the distribution that they leave: the errors of the draws are
        correlated, between components and with the field, as those of the data.
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
        return scale_series(series, self.scaler_)

    def _error(self, sigma: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Process noise; that of components without noise only keeps it positive."""
        known = self.process_noise_
        level = _SETTINGS.process_noise if known is None else known
        least = torch.finfo(torch.float64).eps
        return (level * sigma).clamp(min=least)
