"""Choose: the method, the weak form and every other setting that was left open."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..coordinates.reduced import Coordinates
from ..coordinates.symmetry import Symmetry
from ..data import Series
from ..fields import FIELDS, as_linear
from ..settings.config import TrainConfig, WeakForm, resolve
from ..weak.selection import WeakFormChoice, select_weak_form


@dataclass(frozen=True)
class Declared:
    """Parts of a fit that settings, which are plain values, cannot hold.

    Attributes:
        field: a module to fit in place of the field of the settings, or None.
        symmetry: of the system, in the units of the data, or None.
        coordinates: to learn in, likewise; a matrix holds them in its columns.
        scaler: whether the scaler of the settings was asked for.
    """

    field: nn.Module | None = None
    symmetry: Symmetry | None = None
    coordinates: Coordinates | Tensor | None = None
    scaler: bool = False


NOTHING = Declared()


@dataclass(frozen=True)
class Choice:
    """Settings of a fit and the reasons for them.

    Attributes:
        config: the settings, every entry filled in.
        why: the reason for their method.
        asked: settings as they were given.
        declared: parts of the fit that settings cannot hold.
        weak: comparison of weak forms that decided theirs, or None if it was given.
        given_up: complaint about the closed form that was tried before, or "".
    """

    config: TrainConfig
    why: str
    asked: TrainConfig
    declared: Declared = NOTHING
    weak: WeakFormChoice | None = None
    given_up: str = ""

    @property
    def falls_back(self) -> bool:
        """Whether a network takes the place of a closed form that misses the data."""
        return self.asked.method == "auto" and self.config.method == "closed_form"

    @property
    def restart(self) -> TrainConfig:
        """Settings from which a run that is killed makes the same choice again.

        The closed form goes on choosing while it learns: random features, a fallback.
        """
        return self.asked if self.config.method == "closed_form" else self.config

    def instead(self, complaint: str) -> "Choice":
        """A network in place of the closed form, about which there is a complaint."""
        kind = self.asked.field.kind
        config = resolve(
            replace(
                self.asked,
                method="wp",
                weak=self.config.weak,
                field=replace(self.asked.field, kind="auto"),
                scaler_per=self.config.scaler_per,
            )
        )
        why = f"the closed form was tried, but {complaint}"
        if self.declared.field is None and kind != "auto":
            why += f"; {config.field.kind!r} is trained in place of the field {kind!r}"
        return replace(self, config=config, why=why, given_up=complaint)


def choose(
    series: Series,
    config: TrainConfig,
    declared: Declared = NOTHING,
    *,
    processes: int = 1,
    device: torch.device | None = None,
    validation: bool = False,
) -> Choice:
    """Every setting of a fit to `series`, with the reason for its method.

    Args:
        series: observations.
        config: settings, of which some are open.
        declared: parts of the fit that settings cannot hold.
        processes: number of processes that train together.
        device: where training by gradients computes; by default that of the settings.
        validation: whether held-out series were given.
    """
    method, why = choose_method(series, config, declared.field, processes=processes)
    open_ = replace(config, method=method)
    if open_.scaler_per == "auto" and declared.field is not None:
        same = getattr(declared.field, "same_at_sites", False)
        open_ = replace(open_, scaler_per="channel" if same else "component")
    found, weak = choose_weak_form(series, open_)
    chosen = resolve(replace(open_, weak=weak))
    if method == "closed_form":
        why += _unused(
            chosen, device or torch.device(config.device), declared.scaler, validation
        )
    return Choice(chosen, why, config, declared, found)


def choose_method(
    series: Series,
    config: TrainConfig,
    field: nn.Module | None = None,
    *,
    processes: int = 1,
) -> tuple[str, str]:
    """The method and the reason for it.

    Args:
        series: observations.
        config: settings; a method other than "auto" is taken as it is.
        field: the user's own field, or None.
        processes: number of processes that train together.
    """
    kind = config.field.kind
    if config.method != "auto":
        return config.method, "as asked"
    if processes > 1:
        return "wp", "several processes train together"
    if field is not None:
        if as_linear(field) is not None:
            return "closed_form", "the field is linear in its coefficients"
        return "wp", f"{type(field).__name__} is not linear in its parameters"
    if kind != "auto" and not FIELDS.find(kind).linear:
        return "wp", f"the field {kind!r} is trained by gradients"
    if config.optim.epochs is not None:
        return "wp", "`epochs` is a setting of training by gradients"
    if kind != "auto":
        return "closed_form", f"the field {kind!r} is linear in its coefficients"
    if len(series.state_shape) != 1:
        return "wp", "states have more than one axis"
    size = series.state_shape[0]
    if size > config.closed_form.largest_state:
        return (
            "wp",
            f"states of {size} entries need a network, or a field "
            "that says how they are arranged, e.g. field='ring'",
        )
    return "closed_form", f"states of {size} entries: solved at once"


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
        p=[weak.p] if weak.p else None,
        ell=[weak.ell] if weak.ell else None,
        mask=series.mask,
        lengths=series.lengths,
    )
    return choice, WeakForm(choice.p, choice.ell, weak.q or choice.q)


def _unused(
    config: TrainConfig, device: torch.device, scaler: bool, validation: bool
) -> str:
    """Arguments that the closed form does not use, as the end of a reason."""
    notes = ""
    if device.type != "cpu":
        notes += f"; computed on the CPU, not on {device}"
    if scaler and config.scaler == "minmax":
        notes += "; scaled to zero mean and unit spread, not by `scaler='minmax'`"
    if validation:
        notes += "; `validation` is not used"
    return notes
