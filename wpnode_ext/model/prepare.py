"""Prepare: observations in the coordinates a field is learned in, computed once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..common.arrays import Array, as_float64
from ..coordinates.reduced import Coordinates
from ..coordinates.scaling import (
    LinearScaler,
    Per,
    Scaler,
    StandardScaler,
    make_scaler,
    scale_series,
    scaler_from_state_dict,
)
from ..coordinates.symmetry import Symmetry
from ..data import Series
from ..fields import FIELDS
from ..settings.config import TrainConfig
from ..smoothing import LocalFit, first_states
from ..training.trainer import TrainResult
from ..weak.filter import filter_series
from .choose import Choice, Declared
from .files import RefinedStates


@dataclass(frozen=True)
class Prepared:
    """Observations as every method learns from them.

    Attributes:
        series: all observations, in their own units.
        training: the part that is learned from, in its own units.
        held_out: observations kept from learning, or None.
        scaler: of the state, fitted to `training`.
        forcing_scaler: of the inputs, or None.
        symmetry: of the system, in the units of the data, or None.
        maps: the same in scaled coordinates.
    """

    series: Series
    training: Series
    held_out: Series | None
    scaler: Scaler
    forcing_scaler: Scaler | None
    symmetry: Symmetry | None
    maps: Symmetry | None

    def scale(self, part: Series) -> Series:
        """Observations in scaled coordinates, float64."""
        return scale_series(part, self.scaler, self.forcing_scaler)

    @cached_property
    def scaled(self) -> Series:
        """All observations in scaled coordinates."""
        return self.scale(self.series)

    @cached_property
    def first(self) -> LocalFit:
        """First states and noise of `scaled`, from local polynomials."""
        return first_states(self.scaled)

    @property
    def scaled_shape(self) -> tuple[int, ...]:
        """Shape of a scaled state."""
        return self.scaler.scaled_shape(tuple(self.series.state_shape))

    @property
    def forcing_dim(self) -> int:
        """Number of inputs."""
        forcing = self.series.forcing
        return 0 if forcing is None else forcing[0].numel()


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A field learned from prepared observations, as the estimator keeps it.

    Attributes:
        field: the field, in scaled coordinates.
        config: settings that were used, with those that learning has found.
        scaler: of the state.
        result: how learning ended.
        members: other fields that suit the data about as well; empty unless asked for.
        refined: refined states in the units of the data; None if not asked for.
        complaint: the reason not to use the field, "" if there is none.
    """

    field: nn.Module
    config: TrainConfig
    scaler: Scaler
    result: TrainResult
    members: Sequence[nn.Module] = ()
    refined: RefinedStates | None = None
    complaint: str = ""

    def without_end(self, fraction: float) -> nn.Module | None:
        """The field learned without the end of every series, if there is a way."""
        return None


def prepare(series: Series, validation: Series | None, choice: Choice) -> Prepared:
    """Holds data out and fits the scalers.

    Training by gradients keeps the end of every series, unless held-out series are
    given; the closed form learns from all observations.

    Args:
        series: observations, in their own units.
        validation: held-out series, or None.
        choice: settings, symmetry and coordinates.
    """
    config = choice.config
    symmetry, coordinates = declared(series, config, choice.declared)
    training, held_out = series, validation
    if config.method != "closed_form" and held_out is None:
        training, held_out = hold_out(series, config)
    scaler = make_state_scaler(training, config, symmetry, coordinates)
    forcing_scaler = None
    if training.forcing is not None:
        forcing_scaler = StandardScaler().fit(training.forcing.flatten(1))
    maps = scaled_maps(symmetry, scaler)
    return Prepared(series, training, held_out, scaler, forcing_scaler, symmetry, maps)


def hold_out(series: Series, config: TrainConfig) -> tuple[Series, Series | None]:
    """The end of every series for validation; none where it would be too short."""
    if config.validation.fraction == 0.0:
        return series, None
    try:
        return series.split(config.validation.fraction, min_length=config.weak.ell + 1)
    except ValueError:
        return series, None


def make_record(
    series: Series, scaler: Scaler, clock: Float[Tensor, " N"], dtype: torch.dtype
) -> Series:
    """The scaled record of a series."""
    v, mask = scaler.transform(series.v.double()).to(dtype), None
    if series.mask is not None:
        # Scaled states may have other entries, all of them missing with one.
        mask = series.missing.reshape(-1, *(1,) * (v.dim() - 1)).expand(v.shape)
    return replace(series.at_times(clock), v=v, mask=mask)


def filtered(series: Series, config: TrainConfig, q_filter: int | None) -> Series:
    """The series without its noise where the filter can be used: on uniform times.

    Args:
        series: observations.
        config: settings with a weak form.
        q_filter: spacing of the filter's bumps; that of the settings by default.
    """
    ell = config.weak.ell
    if series.dt is None or min(series.lengths) < ell + 1:
        return series
    smooth = filter_series(
        series.v.double(),
        p=config.weak.p,
        ell=ell,
        q=q_filter or max(1, ell // config.validation.filter_share),
        mask=series.mask,
        lengths=series.lengths,
    )
    # Missing samples stay as they were: no forecast starts or ends there.
    return replace(series, v=torch.where(smooth.isfinite(), smooth, series.v.double()))


def checked_symmetry(given: Symmetry | str | None) -> Symmetry | str | None:
    """`given`; for a matrix the error shows how to make a Symmetry of it."""
    if given is None or isinstance(given, Symmetry | str):
        return given
    raise TypeError(
        "`symmetry` must be a Symmetry or words such as 'shifts'; got "
        f"{type(given).__name__}. Of a matrix g make one: Symmetry([g])."
    )


def checked_coordinates(
    given: str | Coordinates | Array | None,
) -> str | Coordinates | Tensor | None:
    """`given`, a matrix of any kind as a tensor."""
    if given is None or isinstance(given, str | Coordinates):
        return given
    return as_float64(given, "coordinates")


def declared(
    series: Series, config: TrainConfig, given: Declared
) -> tuple[Symmetry | None, str | Coordinates | Tensor | None]:
    """Symmetry and coordinates, as objects or from the words of the settings.

    Raises:
        ValueError: they do not fit the states of `series`.
    """
    words, symmetry = config.closed_form, given.symmetry
    coordinates = given.coordinates
    if coordinates is None:
        coordinates = words.coordinates or None
    state = tuple(series.state_shape)
    used = symmetry is not None or words.symmetry or coordinates is not None
    if used and len(state) != 1:
        raise ValueError(
            "`symmetry` and `coordinates` take states of one axis; the data have shape "
            f"{list(state)}. Flatten them."
        )
    if symmetry is None and words.symmetry:
        symmetry = Symmetry.named(words.symmetry, state[0])
    if symmetry is not None and symmetry.dim != state[0]:
        raise ValueError(
            f"`symmetry` must have maps of the {state[0]} entries of a state; got "
            f"{symmetry.dim} x {symmetry.dim}."
        )
    return symmetry, coordinates


def make_state_scaler(
    series: Series,
    config: TrainConfig,
    symmetry: Symmetry | None = None,
    coordinates: str | Coordinates | Tensor | None = None,
) -> Scaler:
    """The scaler of the state, alike for components that a symmetry exchanges.

    The closed form, and any method under a symmetry, scales to zero mean and unit
    spread where the settings say "minmax".
    """
    if coordinates is not None:
        return reduced_scaler(series, coordinates, symmetry)
    by_gradients = config.method in ("wp", "weak", "strong")
    kind, per = config.scaler, _per(config)
    if kind == "minmax" and not (by_gradients and symmetry is None):
        kind = "standard"
    if kind == "identity":
        return make_scaler(kind).fit(series.v)
    if symmetry is None:
        return make_scaler(kind, per).fit(series.with_nan())
    shift, scale = symmetry.statistics(series.v[_whole(series)])
    if per != "component":
        spread = scale.square().mean() + shift.var(correction=0)
        shift, scale = shift.mean().expand_as(shift), spread.sqrt().expand_as(scale)
    scale = torch.where(scale > 0, scale, 1.0)
    return scaler_from_state_dict(
        {"kind": "standard", "per": "component", "shift": shift, "scale": scale}
    )


def reduced_scaler(
    series: Series,
    coordinates: str | Coordinates | Tensor,
    symmetry: Symmetry | None,
) -> LinearScaler:
    """The scaler to coordinates of zero mean and unit spread.

    Coordinates that a symmetry exchanges are scaled alike.

    Args:
        series: observations in their own units, ``[N, D]``.
        coordinates: see :meth:`~wpnode_ext.coordinates.reduced.Coordinates.choose`.
        symmetry: of the system, in the units of the data.
    """
    v, whole = series.v.double(), _whole(series)
    found = Coordinates.choose(
        coordinates, v, lengths=series.lengths, missing=series.missing
    )
    if symmetry is None:
        a = found.to(v[whole])
        shift, scale = a.mean(0), a.std(0, correction=0)
    else:
        # Maps act linearly on coordinates only about a centre they leave in place.
        centre = (symmetry.group @ found.centre.double().cpu()).mean(0)
        found = replace(found, centre=centre)
        a = found.to(v[whole])
        maps = symmetry.in_coordinates(found.encode, found.decode)
        shift, scale = maps.statistics(a)
    return found.scaler(shift, torch.where(scale > 0, scale, 1.0))


def scaled_maps(symmetry: Symmetry | None, scaler: Scaler) -> Symmetry | None:
    """The symmetry in scaled coordinates."""
    if symmetry is None:
        return None
    return scaler.scaled_symmetry(symmetry)


def _per(config: TrainConfig) -> Per:
    if config.scaler_per != "auto":
        return config.scaler_per
    # A configuration that is not resolved describes no field yet.
    kind = config.field.kind
    shared = kind != "auto" and FIELDS.find(kind).shared
    return "channel" if shared else "component"


def _whole(series: Series) -> Bool[Tensor, " N"]:
    """Samples of which no value is missing."""
    whole = ~series.missing
    if not whole.any():
        raise ValueError(
            "`symmetry` and `coordinates` need samples of which no value is missing; "
            "got none."
        )
    return whole
