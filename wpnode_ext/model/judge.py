"""The verdict on a fitted model, from the observations it was fitted to."""

from contextlib import ExitStack
from functools import partial

import torch
from torch import nn

from ..data import Series
from ..fields import as_field
from ..metrics import GoodnessOfFit
from ..smoothing.held_out import spread_stretches
from ..solvers.rollouts import in_dtype
from .forecaster import Forecaster
from .inputs import attached, inputs_of
from .prepare import running_clocks
from .verdict import Verdict, judge_fit

# Share of the data that forecasts are compared with where the settings hold out none,
# and samples whose residuals are looked at.
HELD_OUT, RESIDUAL_SAMPLES = 0.1, 20_000


def judge_model(
    model: Forecaster,
    series: Series,
    held_out: Series | None = None,
    *,
    probe: nn.Module | None = None,
    complaint: str = "",
) -> Verdict:
    """The verdict on a fitted model.

    Args:
        model: the model.
        series: observations it was fitted to.
        held_out: those it was not fitted to; by default the end of `series`.
        probe: its field fitted without that end, in scaled coordinates.
        complaint: what already speaks against the model.
    """
    unseen = held_out is not None or probe is not None
    training = series
    if held_out is None:
        fraction = model.config_.validation.fraction or HELD_OUT
        try:
            training, held_out = series.split(fraction)
        except ValueError as error:
            return Verdict("usable", f"forecasts could not be judged: {error}")
    clock = inputs = None
    if model.forcing_scaler_ is not None:
        clock = running_clocks([held_out])[0]
        inputs = inputs_of(held_out, clock, model.forcing_scaler_)
    fields = [model.field_] if probe is None else [model.field_, probe]
    with ExitStack() as inputs_attached:
        for field in fields:
            inputs_attached.enter_context(attached(field, inputs))
        physical = [
            as_field(in_dtype(model.scaler_.to_physical(f), torch.float64))
            for f in fields
        ]
        return judge_fit(
            physical[0],
            training,
            held_out,
            probe=physical[-1],
            clock=clock,
            goodness=partial(_residuals, model, series),
            unseen=unseen,
            complaint=complaint,
        )


def _residuals(model: Forecaster, series: Series) -> GoodnessOfFit | None:
    """Goodness of fit to part of the observations; None where it cannot be had."""
    length = max(1000, 20 * (model.config_.weak.ell + 1))
    part = series.cut(spread_stretches(series, RESIDUAL_SAMPLES, length))
    try:
        return model.goodness_of_fit(part)
    except (NotImplementedError, RuntimeError, ValueError):
        # Irregular times, no noise, too few segments, or a field without a derivative.
        return None
