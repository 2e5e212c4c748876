"""What all methods of comparison share: one way to fit, forecast, judge and keep them.

A method learns either a field, solved by any solver, or a map from sample to sample,
see :mod:`~wpnode_ext.baselines.maps`.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from ..common.typing import Array
from ..coordinates.scaling import Scaler, make_scaler, scaler_from_state_dict
from ..data import Data, Series, as_series
from ..model.estimator import choose_weak_form
from ..model.forecaster import Forecaster
from ..model.prepare import filtered
from ..settings.config import TrainConfig, ValidationConfig, WeakForm, resolve
from ..training import checkpoint
from .evaluations import counted_evaluations
from .held_out import HeldOut
from .scaled import scaled

Learned = tuple[nn.Module, dict[str, Any]]
ScalerKind = Literal["minmax", "standard", "identity"]
# Attributes of a model that its file holds in another form; the others as they are.
_APART = {
    "config_",
    "cost_",
    "dt_",
    "field_",
    "forcing_scaler_",
    "names_",
    "physical_field_",
    "recipe_",
    "scaler_",
    "state_shape_",
}


@dataclass
class Cost:
    """What a fit took.

    Attributes:
        seconds: wall time.
        evaluations: see :mod:`~wpnode_ext.baselines.evaluations`.
        epochs: passes over the data, 1 for methods that solve.
    """

    seconds: float = 0.0
    evaluations: int = 0
    epochs: int = 1


@dataclass(kw_only=True, eq=False)
class Baseline(Forecaster, ABC):
    """A method that learns a field from noisy observations.

    Args:
        seed: of everything that is drawn.
        scaler: "minmax", "standard" or "identity"; how states are scaled.
        held_out: share of every series, at its end, that settings are chosen by; the
            same as in :class:`~wpnode_ext.WPNODE`. Nothing is held out by methods that
            have nothing to choose.
        verbose: show progress.

    Attributes:
        cost_: seconds, evaluations and epochs of the last fit.

    Those of :class:`~wpnode_ext.model.forecaster.Forecaster` hold the model.
    """

    seed: int = 0
    scaler: ScalerKind = "minmax"
    held_out: float = 0.1
    verbose: bool = False

    name: ClassVar[str]
    # One shift and scale for all components: a ring of alike sites stays one.
    _per: ClassVar[Literal["component", "whole"]] = "component"
    _methods: ClassVar[dict[str, type["Baseline"]]] = {}

    def __post_init__(self) -> None:
        self._weak_form: WeakForm | None = None
        self._q_filter: int | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in cls.__dict__:
            Baseline._methods[cls.name] = cls

    def fit(
        self,
        v: Data,
        dt: float | None = None,
        *,
        t: Array | Sequence[Array] | None = None,
        mask: Array | Sequence[Array] | None = None,
        validation: Series | None = None,
    ) -> Self:
        """Learns from one series, or from a list of them.

        Args:
            v: observations ``[N, D]``, a list of such arrays, or a Series. NaN marks
                missing values.
            dt: distance of the samples. Give either `dt` or `t`.
            t: times of the samples, where the method can take irregular ones.
            mask: True where a value is missing.
            validation: held-out series that settings are chosen by; by default the end
                of every series, see `held_out`.
        """
        series = as_series(v, dt=dt, t=t, mask=mask)
        self._check(series)
        if validation is not None:
            self._check_validation(validation, series)
        began = time.perf_counter()
        self.cost_ = Cost()
        self._weak_form = self._q_filter = None
        scaler = make_scaler(self.scaler, self._per).fit(series.with_nan())
        held = None if validation is None else scaled(validation, scaler)
        with counted_evaluations() as counter:
            module, recipe = self._learn(scaled(series, scaler), held)
        self.cost_.evaluations = counter[0]
        self._keep(module, recipe, scaler, series)
        self.cost_.seconds = time.perf_counter() - began
        return self

    @abstractmethod
    def _learn(self, series: Series, validation: Series | None) -> Learned:
        """The fitted module in scaled coordinates, and how :meth:`_build` remakes it.

        Args:
            series: scaled observations, float64.
            validation: held-out ones, where they were given.
        """

    @classmethod
    @abstractmethod
    def _build(cls, recipe: dict[str, Any]) -> nn.Module:
        """A module of the same shape, whose weights are then read from a file."""

    def _check(self, series: Series) -> None:
        if series.v.dim() != 2:
            raise ValueError(
                f"`v` must have shape [N, D]; got states of shape "
                f"{list(series.state_shape)}. Flatten them."
            )
        if series.forcing is not None:
            raise ValueError(f"{type(self).__name__} takes no `forcing`.")

    def _check_validation(self, validation: Series, series: Series) -> None:
        if validation.state_shape != series.state_shape:
            raise ValueError(
                f"`validation` must have states of shape {list(series.state_shape)}; "
                f"got {list(validation.state_shape)}."
            )

    def _step(self, module: nn.Module, dt: float) -> Callable[[Tensor], Tensor]:
        """One sample ahead: the classical Runge-Kutta step of the field."""

        def step(u: Tensor) -> Tensor:
            k1 = module(0.0, u)
            k2 = module(0.0, u + dt / 2 * k1)
            k3 = module(0.0, u + dt / 2 * k2)
            k4 = module(0.0, u + dt * k3)
            return u + dt / 6 * (k1 + 2 * (k2 + k3) + k4)

        return step

    def _choose_filter(self, series: Series, weak: WeakForm | None = None) -> None:
        """Takes the weak form, and the filter, from the data where it is open."""
        config = TrainConfig(method="weak", weak=weak or WeakForm())
        try:
            choice, self._weak_form = choose_weak_form(series, config)
        except ValueError:
            # Series too short to compare windows: open entries are the paper's.
            choice, self._weak_form = None, config.weak
        self._q_filter = None if choice is None else choice.q_filter

    def _parts(
        self, series: Series, validation: Series | None
    ) -> tuple[Series, Series | None]:
        """What is learned from, and filtered data that settings are chosen by."""
        if self._weak_form is None:
            self._choose_filter(series)
        if validation is None and self.held_out > 0:
            shortest = self._settings().weak.ell + 1
            try:
                series, validation = series.split(self.held_out, min_length=shortest)
            except ValueError:
                return series, None
        return series, None if validation is None else self._filtered(validation)

    def _split(
        self, series: Series, validation: Series | None
    ) -> tuple[Series, HeldOut | None]:
        """What is learned from, and the judge of settings; None without such data."""
        series, held = self._parts(series, validation)
        return series, None if held is None else HeldOut(held)

    def _filtered(self, series: Series) -> Series:
        return filtered(series, self._settings(), self._q_filter)

    def _settings(self) -> TrainConfig:
        """What filters and scores of the package read from a model's settings."""
        validation = ValidationConfig(fraction=self.held_out)
        weak = self._weak_form or WeakForm()
        return resolve(TrainConfig(weak=weak, validation=validation, seed=self.seed))

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def score(self, v: Data, dt: float | None = None, *, t: Any = None) -> float:
        """Skill of short forecasts on held-out data: 1 is perfect, 0 is lost."""
        self._check_fitted()
        series = scaled(as_series(v, dt=dt, t=t), self.scaler_)
        if series.dt is None:
            raise ValueError("`v` must have samples at equal distances.")
        judge = HeldOut(self._filtered(series))
        return 1.0 - judge(self._step(self.field_, series.dt))

    def save(self, path: str | Path) -> None:
        """Writes the model and what else was found to one file, see :func:`load`."""
        self._check_fitted()
        state = {
            "method": self.name,
            "settings": asdict(self),
            "recipe": self.recipe_,
            "weights": checkpoint.weights_of(self.field_),
            "scaler": self.scaler_.state_dict(),
            "state_shape": list(self.state_shape_),
            "dt": self.dt_,
            "names": None if self.names_ is None else list(self.names_),
            "cost": asdict(self.cost_),
            "weak": asdict(self.config_.weak),
            "q_filter": self._q_filter,
            "fitted": self._fitted(),
            "versions": {name: version(name) for name in ("wpnode_ext", "torch")},
        }
        checkpoint.save(path, "baseline", state)

    def _fitted(self) -> dict[str, Any]:
        """What a fit found besides the model, in tensors and builtin types."""
        return {
            name: value
            for name, value in vars(self).items()
            if name.endswith("_") and name not in _APART
        }

    def _set_fitted(self, found: dict[str, Any]) -> None:
        """Takes back what :meth:`_fitted` gave to a file."""
        vars(self).update(found)

    def _keep(
        self,
        module: nn.Module,
        recipe: dict[str, Any],
        scaler: Scaler,
        series: Series | None = None,
    ) -> None:
        self.recipe_ = recipe
        self._set_model(module, scaler, None, self._settings(), series)


def load(path: str | Path) -> Baseline:
    """The model that :meth:`Baseline.save` wrote.

    Raises:
        FileNotFoundError, CheckpointError: no such file; damaged, foreign or newer.
    """
    state = checkpoint.load(path, "baseline")
    try:
        kind = Baseline._methods[state["method"]]
        model = kind(**state["settings"])
        module = kind._build(state["recipe"]).double()
        module.load_state_dict(state["weights"])
        model.state_shape_ = tuple(state["state_shape"])
        model.dt_ = state["dt"]
        model.names_ = None if state["names"] is None else tuple(state["names"])
        model.cost_ = Cost(**state["cost"])
        model._weak_form = WeakForm(**state["weak"])
        model._q_filter = state["q_filter"]
        model._keep(module, state["recipe"], scaler_from_state_dict(state["scaler"]))
        model._set_fitted(state["fitted"])
    except (KeyError, TypeError, RuntimeError) as error:
        raise checkpoint.CheckpointError(
            f"{path} is not a whole model of this release: {error}"
        ) from error
    return model
