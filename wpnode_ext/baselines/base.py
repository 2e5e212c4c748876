"""The interface of all methods of comparison: fit, forecast, score, save.

A method learns a field, which any solver can follow, or a map from one sample to the
next, see :mod:`~wpnode_ext.baselines.maps`. A new one is a subclass of
:class:`Baseline` in a file of its own and an entry of :data:`METHODS`.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn

from ..common.arrays import Array
from ..common.registry import Registry, suggestion
from ..coordinates.scaling import Scaler, make_scaler, scale_series
from ..data import Data, Series, as_series
from ..model.choose import choose_weak_form
from ..model.files import data_entries, restore_data
from ..model.forecaster import Forecaster
from ..model.prepare import filtered, hold_out
from ..settings.config import TrainConfig, ValidationConfig, resolve
from ..solvers.runge_kutta import integrate
from ..training import ForecastValidation, checkpoint
from ..weak.plan import WeakForm
from .evaluations import counted_evaluations

Learned = tuple[nn.Module, dict[str, Any]]
ScalerKind = Literal["minmax", "standard", "identity"]
Item = TypeVar("Item")

# Relative difference between sample distances that rounding of times can cause.
ROUNDING = 1e-6
# Most samples of a forecast that settings are chosen by.
LONGEST = 1000
# Attributes of a model that its file stores under entries of their own.
_STORED_APART = {
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


class Method(Protocol):
    """An entry of :data:`METHODS`."""

    def for_system(
        self, system: str | None, *, seed: int, options: Mapping[str, Any]
    ) -> Forecaster:
        """An unfitted model with the settings known to suit a system.

        Args:
            system: name of one of the paper's systems; None for any data.
            seed: of all random numbers the model draws.
            options: settings that replace those of the system.
        """
        ...


METHODS: Registry[Method] = Registry("methods", "methods")


@dataclass
class Cost:
    """The cost of a fit.

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
        seed: of all random numbers.
        scaler: scaling of the states, "minmax", "standard" or "identity".
        held_out: share of every series, at its end, by which settings are chosen; the
            same as in :class:`~wpnode_ext.WPNODE`. Methods without a choice to make
            hold nothing out.
        verbose: show progress.

    Attributes:
        cost_: seconds, evaluations and epochs of the last fit.

    The other attributes are those of :class:`~wpnode_ext.model.forecaster.Forecaster`.
    """

    seed: int = 0
    scaler: ScalerKind = "minmax"
    held_out: float = 0.1
    verbose: bool = False

    # "whole" scales all components alike, which keeps the symmetry of a ring.
    _per: ClassVar[Literal["component", "whole"]] = "component"

    def __post_init__(self) -> None:
        self._weak_form: WeakForm | None = None
        self._q_filter: int | None = None

    @classmethod
    def for_system(
        cls, system: str | None, *, seed: int, options: Mapping[str, Any]
    ) -> Self:
        """:meth:`Method.for_system`; raises ValueError for an unknown setting."""
        known = [entry.name for entry in fields(cls)]
        for key in options:
            if key not in known:
                raise ValueError(
                    f"{cls.__name__} has no setting {key!r}; it has "
                    f"{', '.join(sorted(known))}.{suggestion(key, known)}"
                )
        settings: dict[str, Any] = {"seed": seed}
        if system is not None:
            settings |= cls._settings_for(system)
        return cls(**(settings | dict(options)))

    @classmethod
    def _settings_for(cls, system: str) -> dict[str, Any]:
        """Settings the literature uses for one of the paper's systems."""
        return {}

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
            t: times of the samples, for methods that accept irregular ones.
            mask: True where a value is missing.
            validation: held-out series by which settings are chosen; by default the end
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
        held = None if validation is None else scale_series(validation, scaler)
        with counted_evaluations() as counter:
            module, recipe = self._learn(scale_series(series, scaler), held)
        self.cost_.evaluations = counter[0]
        self._keep(module, recipe, scaler, series)
        self.cost_.seconds = time.perf_counter() - began
        return self

    @abstractmethod
    def _learn(self, series: Series, validation: Series | None) -> Learned:
        """The fitted module in scaled coordinates, and its arguments for `_build`.

        Args:
            series: scaled observations, float64.
            validation: scaled held-out observations, if the user gave any.
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
            raise ValueError(
                f"`forcing` must be absent: {type(self).__name__} takes no inputs."
            )

    def _check_validation(self, validation: Series, series: Series) -> None:
        if validation.state_shape != series.state_shape:
            raise ValueError(
                f"`validation` must have states of shape {list(series.state_shape)}; "
                f"got {list(validation.state_shape)}."
            )

    def _check_least(self, **least: float) -> None:
        """Raises for settings below the given bounds; None is left to the fit."""
        for name, bound in least.items():
            if not self._number(name, bound) >= bound:
                raise ValueError(
                    f"`{name}` must be >= {bound:g}; got {getattr(self, name)}."
                )

    def _check_positive(self, *names: str) -> None:
        """Raises for settings that are not above zero; None is left to the fit."""
        for name in names:
            if not self._number(name, 1.0) > 0:
                raise ValueError(f"`{name}` must be > 0; got {getattr(self, name)}.")

    def _number(self, name: str, if_none: float) -> float:
        value = getattr(self, name)
        if value is None:
            return if_none
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"`{name}` must be a number; got {value!r}.")
        return value

    def _step(self, module: nn.Module, dt: float) -> Callable[[Tensor], Tensor]:
        """The map one sample ahead: a classical Runge-Kutta step of the field."""
        start, hop = torch.zeros(()), torch.tensor(dt, dtype=torch.float64)

        def step(u: Tensor) -> Tensor:
            return integrate(module, u, start, [hop], method="rk4_classic")[0]

        return step

    def _choose_filter(self, series: Series, weak: WeakForm | None = None) -> None:
        """Chooses the filter, and open entries of the weak form, from the data."""
        config = TrainConfig(method="weak", weak=weak or WeakForm())
        try:
            choice, self._weak_form = choose_weak_form(series, config)
        except ValueError:
            # Series too short to compare windows: open entries are the paper's.
            choice, self._weak_form = None, config.weak
        self._q_filter = None if choice is None else choice.q_filter

    def _split(
        self, series: Series, validation: Series | None
    ) -> tuple[Series, Series | None]:
        """The data to learn from, and filtered data by which settings are chosen."""
        if self._weak_form is None:
            self._choose_filter(series)
        if validation is None:
            series, validation = hold_out(series, self._settings())
        return series, None if validation is None else self._filtered(validation)

    def _filtered(self, series: Series) -> Series:
        return filtered(series, self._settings(), self._q_filter)

    def _settings(self) -> TrainConfig:
        """The settings that filters and scores of the package read."""
        validation = ValidationConfig(fraction=self.held_out)
        weak = self._weak_form or WeakForm()
        return resolve(TrainConfig(weak=weak, validation=validation, seed=self.seed))

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def _progress(
        self, items: Iterable[Item], total: int, label: str
    ) -> Iterator[Item]:
        """The items, with a progress bar while a verbose model goes through them.

        Args:
            items: to go through.
            total: their number.
            label: name of the items, shown before the bar.
        """
        if not self.verbose:
            return iter(items)
        try:
            from tqdm import tqdm
        except ImportError:
            return iter(items)
        return iter(tqdm(items, total=total, desc=label))

    def score(self, v: Data, dt: float | None = None, *, t: Any = None) -> float:
        """Skill of short forecasts on held-out data: 1 is perfect, 0 is lost."""
        self._check_fitted()
        series = scale_series(as_series(v, dt=dt, t=t), self.scaler_)
        if series.dt is None:
            raise ValueError("`v` must have samples at equal distances.")
        judge = judge_of(self._filtered(series))
        return 1.0 - judge.error_of_map(self._step(self.field_, series.dt))

    def save(self, path: str | Path) -> None:
        """Writes the model and all else that the fit found to one file."""
        self._check_fitted()
        state = {
            "method": name_of(type(self)),
            "settings": asdict(self),
            "recipe": self.recipe_,
            "weights": checkpoint.weights_of(self.field_),
            "cost": asdict(self.cost_),
            "weak": asdict(self.config_.weak),
            "q_filter": self._q_filter,
            "fitted": self._fitted(),
        }
        checkpoint.save(path, "baseline", state | data_entries(self))

    def _fitted(self) -> dict[str, Any]:
        """Results of the fit besides the model, in tensors and builtin types."""
        return {
            name: value
            for name, value in vars(self).items()
            if name.endswith("_") and name not in _STORED_APART
        }

    def _set_fitted(self, found: dict[str, Any]) -> None:
        """Restores what :meth:`_fitted` returned."""
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
        FileNotFoundError: there is no such file.
        CheckpointError: it is damaged, foreign, newer, or of an unknown method.
    """
    state = checkpoint.load(path, "baseline")
    with checkpoint.whole_file(path, "baseline"):
        kind: Any = METHODS.find(state["method"])
        model = kind(**state["settings"])
        module = kind._build(state["recipe"]).double()
        module.load_state_dict(state["weights"])
        scaler = restore_data(model, state)
        model.cost_ = Cost(**state["cost"])
        model._weak_form = WeakForm(**state["weak"])
        model._q_filter = state["q_filter"]
        model._keep(module, state["recipe"], scaler)
        model._set_fitted(state["fitted"])
    return model


def name_of(kind: type[Baseline]) -> str:
    """The name under which a class is in :data:`METHODS`."""
    for name, entry in METHODS.items():
        if entry is kind:
            return name
    raise ValueError(
        f"{kind.__name__} must be in METHODS to be saved; add it with `METHODS.add`."
    )


def judge_of(
    held: Series, *, horizon: int = LONGEST, starts: int = 32
) -> ForecastValidation:
    """Scores models by their forecasts of filtered, scaled data.

    Args:
        held: the data.
        horizon: most samples to forecast.
        starts: number of forecasts.
    """
    return ForecastValidation(held.to(torch.float64), starts=starts, horizon=horizon)


def same_distance(one: float | None, other: float | None) -> bool:
    """True for two equal distances of samples; None stands for irregular ones."""
    return one is not None and other is not None and abs(one / other - 1) <= ROUNDING
