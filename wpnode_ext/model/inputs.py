"""Known inputs of a field: while it learns, forecasts or is judged."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ..common.arrays import Array, as_float64
from ..coordinates.scaling import Scaler
from ..data import Series
from ..fields import Forcing


def inputs_at(
    forcing: Array | Forcing | None,
    t: Float[Tensor, " T"],
    scaler: Scaler | None,
) -> Forcing | None:
    """Scaled inputs of a forecast.

    Args:
        forcing: at the times `t`, ``[T, C]``, or a table with times of its own.
        t: times of the forecast.
        scaler: of the inputs a field was trained with; None for one without.
    """
    if (forcing is None) != (scaler is None):
        raise ValueError(
            "`forcing` must be given, inputs at the times `t`: the model was "
            "trained with inputs."
            if forcing is None
            else "`forcing` was given; the model was trained without inputs."
        )
    if forcing is None or scaler is None:
        return None
    if not isinstance(forcing, Forcing):
        values = as_float64(forcing, "forcing")
        return Forcing(t, _scaled(values.reshape(len(values), -1), scaler))
    forcing.check_covers(t[0].item(), t[-1].item())
    return Forcing(forcing.t, _scaled(forcing.values.double(), scaler))


def inputs_of(
    series: Series, clock: Float[Tensor, " N"], scaler: Scaler | None
) -> Forcing | None:
    """Scaled inputs of a series on a clock that runs through all of it."""
    if (series.forcing is None) != (scaler is None):
        raise ValueError(
            "`v` must be a Series with inputs, make_series(..., forcing=...): the "
            "model was trained with inputs."
            if series.forcing is None
            else "`v` has inputs; the model was trained without. Leave them out."
        )
    if series.forcing is None or scaler is None:
        return None
    return Forcing(clock, _scaled(series.forcing.flatten(1).double(), scaler))


def common_clock(
    many: Sequence[Series], scaler: Scaler | None
) -> tuple[list[Float[Tensor, " N"]], Forcing | None]:
    """Times of all samples of some observations, and their inputs at these times."""
    if scaler is None:
        return [series.times for series in many], None
    clocks, tables = running_clocks(many), []
    for series in many:
        assert series.forcing is not None
        tables.append(_scaled(series.forcing.flatten(1).double(), scaler))
    return clocks, Forcing(torch.cat(clocks), torch.cat(tables))


def running_clocks(many: Sequence[Series]) -> list[Float[Tensor, " N"]]:
    """Times at which no two series overlap: one table holds the inputs of all."""
    clocks, offset = [], 0.0
    for series in many:
        parts = []
        for times in series.times.split(list(series.lengths)):
            parts.append(times - times[0] + offset)
            offset = parts[-1][-1].item() + max(1.0, (times[-1] - times[0]).item())
        clocks.append(torch.cat(parts))
    return clocks


def refuse_inputs(scaler: Scaler | None, what: str) -> None:
    """Raises for a model with inputs where forecasts start at many times."""
    if scaler is not None:
        raise ValueError(
            f"`{what}` is not offered for models with inputs: forecasts from many "
            "starts would need those of each. Use `score` with a Series that has "
            "inputs, or `forecast` with `forcing`."
        )


def _scaled(values: Float[Tensor, "T C"], scaler: Scaler) -> Float[Tensor, "T C"]:
    wanted = scaler.shift.numel()
    if values.shape[1] != wanted:
        raise ValueError(
            f"`forcing` must have the {wanted} inputs the model was trained with; got "
            f"{values.shape[1]}."
        )
    return scaler.transform(values)
