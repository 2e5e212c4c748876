"""Which method and weak form suit the data, where none were asked for."""

import torch
from torch import nn

from ..data import Series
from ..fields import FIELDS, LinearField
from ..settings.config import TrainConfig, WeakForm
from ..weak.selection import EXPONENTS, WeakFormChoice, select_weak_form

# Entries of a state up to which features of all of them together are worth drawing.
FEW = 12


def choose_method(
    series: Series,
    config: TrainConfig,
    field: nn.Module | None = None,
    *,
    processes: int = 1,
) -> tuple[str, str]:
    """The method, and why.

    Args:
        series: the observations.
        config: settings; a method that is not "auto" is taken.
        field: the user's own field, if there is one.
        processes: how many train together.
    """
    kind = config.field.kind
    if config.method != "auto":
        return config.method, "as asked"
    if processes > 1:
        return "wp", "several processes train together"
    if field is not None:
        if isinstance(field, LinearField):
            return "closed_form", "the field is linear in its coefficients"
        return "wp", f"{type(field).__name__} is not linear in its parameters"
    if kind != "auto" and not FIELDS.find(kind).linear:
        return "wp", f"the field {kind!r} is trained by gradients"
    if config.optim.epochs is not None:
        return "wp", "`epochs` speak of training by gradients"
    if kind != "auto":
        return "closed_form", f"the field {kind!r} is linear in its coefficients"
    if len(series.state_shape) != 1:
        return "wp", "states have more than one axis"
    if series.state_shape[0] > FEW:
        return (
            "wp",
            f"states of {series.state_shape[0]} entries need a network, or a field "
            "that says how they are arranged, e.g. field='ring'",
        )
    return "closed_form", f"states of {series.state_shape[0]} entries: solved at once"


def left_out(
    config: TrainConfig, device: torch.device, scaler: bool, validation: bool
) -> str:
    """What was asked for and the closed form does not heed, as the end of a reason.

    Args:
        config: settings.
        device: where it was to be computed.
        scaler, validation: whether these were given.
    """
    said = ""
    if device.type != "cpu":
        said += f"; computed on the CPU, not on {device}"
    if scaler and config.scaler == "minmax":
        said += "; scaled to zero mean and unit spread, not by `scaler='minmax'`"
    if validation:
        said += "; `validation` is not used"
    return said


def choose_weak_form(
    series: Series, config: TrainConfig
) -> tuple[WeakFormChoice | None, WeakForm]:
    """The weak form of a configuration, its open entries chosen by the filter.

    Where steps are irregular, or no weak form is used, they stay open.
    """
    weak = config.weak
    complete = all((weak.p, weak.ell, weak.q))
    if series.dt is None or config.method == "strong" or complete:
        return None, weak
    choice = select_weak_form(
        series.v,
        series.dt,
        p=[weak.p] if weak.p else EXPONENTS,
        ell=[weak.ell] if weak.ell else None,
        mask=series.mask,
        lengths=series.lengths,
    )
    return choice, WeakForm(choice.p, choice.ell, weak.q or choice.q)
