"""From checked observations to what the trainer needs: scaled records, a field."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..coordinates.reduced import Coordinates
from ..coordinates.scaling import Scaler, StandardScaler
from ..coordinates.symmetry import Symmetry
from ..data import Series
from ..fields import Field, Forcing
from ..settings.config import TrainConfig
from ..training.validation import ForecastValidation
from ..weak.filter import filter_series
from .reduced import declared, make_state_scaler, plain_scaler, scaled_maps

# Spacing of the filter's bumps, as a share of the window, where none was chosen.
_FILTER_SHARE = 6


@dataclass
class Prepared:
    """Data of a training run.

    Attributes:
        record: scaled training data.
        validate: forecasts from held-out data, or None.
        scaler: of the state.
        forcing_scaler: of the inputs, or None.
        forcing: the scaled inputs on the record's clock, or None.
        symmetry: of the system, in scaled coordinates, or None.
    """

    record: Series
    validate: ForecastValidation | None
    scaler: Scaler
    forcing_scaler: Scaler | None
    forcing: Forcing | None
    symmetry: Symmetry | None


def prepare(
    training: Series,
    validation: Series | None,
    config: TrainConfig,
    *,
    q_filter: int | None = None,
    dtype: torch.dtype = torch.float32,
    symmetry: Symmetry | None = None,
    coordinates: str | Coordinates | Tensor | None = None,
) -> Prepared:
    """Scales the data by their training part and filters the held-out part.

    Args:
        training: what is learned from.
        validation: what decides the weights that are kept, or None.
        config: resolved settings.
        q_filter: spacing of the filter's bumps; a sixth of `ell` by default.
        dtype: precision of training.
        symmetry, coordinates: of the system, in the units of the data; those of the
            settings by default. With either the scaler is one of zero mean and unit
            spread that suits them.
    """
    symmetry, coordinates = declared(training, config, symmetry, coordinates)
    if symmetry is None and coordinates is None:
        scaler = plain_scaler(training, config, config.scaler)
    else:
        scaler = make_state_scaler(training, config, symmetry, coordinates)
    forcing_scaler = None
    if training.forcing is not None:
        forcing_scaler = StandardScaler().fit(training.forcing.flatten(1))
    both = [training] if validation is None else [training, validation]
    clocks, forcing = _common_clock(both, forcing_scaler)
    records = [
        make_record(series, scaler, clock, dtype)
        for series, clock in zip(both, clocks, strict=True)
    ]
    validate = None
    if validation is not None:
        smooth = filtered(validation, config, q_filter)
        records[1] = make_record(smooth, scaler, clocks[1], dtype)
        validate = ForecastValidation(
            records[1],
            starts=config.validation.starts,
            horizon=config.validation.horizon,
        )
    maps = scaled_maps(symmetry, scaler)
    return Prepared(records[0], validate, scaler, forcing_scaler, forcing, maps)


def hold_out(series: Series, config: TrainConfig) -> tuple[Series, Series | None]:
    """The end of every series for validation; nothing where it would be too short."""
    if config.validation.fraction == 0.0:
        return series, None
    try:
        return series.split(config.validation.fraction, min_length=config.weak.ell + 1)
    except ValueError:
        return series, None


def attach_forcing(field: nn.Module, forcing: Forcing | None) -> None:
    """Gives `field` its input; a field that cannot take one is refused."""
    if forcing is None:
        return
    if not isinstance(field, Field):
        raise TypeError(
            "`forcing` needs a field that takes inputs (a subclass of "
            f"wpnode_ext.fields.Field); got {type(field).__name__}."
        )
    field.forcing = forcing


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
    """The series without its noise where the filter can be used: on uniform times."""
    ell = config.weak.ell
    if series.dt is None or min(series.lengths) < ell + 1:
        return series
    smooth = filter_series(
        series.v.double(),
        p=config.weak.p,
        ell=ell,
        q=q_filter or max(1, ell // _FILTER_SHARE),
        mask=series.mask,
        lengths=series.lengths,
    )
    # Missing samples stay as they were: no forecast starts or ends there.
    return replace(series, v=torch.where(smooth.isfinite(), smooth, series.v.double()))


def _common_clock(
    both: list[Series], scaler: Scaler | None
) -> tuple[list[Tensor], Forcing | None]:
    """Times of all samples, and the input as a function of them."""
    if scaler is None:
        return [series.times for series in both], None
    clocks, tables = running_clocks(both), []
    for series in both:
        assert series.forcing is not None
        tables.append(scaler.transform(series.forcing.flatten(1).double()))
    return clocks, Forcing(torch.cat(clocks), torch.cat(tables))


def running_clocks(many: list[Series]) -> list[Float[Tensor, " N"]]:
    """Times that give each series a stretch of its own.

    One table then holds the inputs of all of them.
    """
    clocks, offset = [], 0.0
    for series in many:
        parts = []
        for times in series.times.split(list(series.lengths)):
            parts.append(times - times[0] + offset)
            offset = parts[-1][-1].item() + max(1.0, (times[-1] - times[0]).item())
        clocks.append(torch.cat(parts))
    return clocks
