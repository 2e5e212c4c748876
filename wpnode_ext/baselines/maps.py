"""Methods that learn a map ``u_{n+1} = Psi(u_n)`` for one distance of samples.

The rest of the package sees the field ``(Psi(u) - u) / dt``: Euler's method with the
step ``dt`` is then the map.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from ..common.arrays import Array, as_float64
from ..data import Data, Series, as_series
from ..fields import Forcing
from ..metrics import GoodnessOfFit
from ..metrics.climate import Climate
from ..metrics.evaluation import Evaluation
from ..solvers.rollouts import RolloutResult
from .base import ROUNDING, Baseline, same_distance


@dataclass(kw_only=True, eq=False)
class MapBaseline(Baseline):
    """A method that learns a map from one sample to the next.

    Forecasts are at multiples of the distance of the samples it was trained on.
    """

    def rollout(
        self,
        u0: Float[Tensor, "B ..."],
        t: Array,
        *,
        forcing: Array | Forcing | None = None,
        **options: Any,
    ) -> RolloutResult:
        """Iterates the map; ignores the solver's arguments `method` and `step`."""
        self._check_fitted()
        dt = self._dt()
        times = as_float64(t, "t")
        steps = times.diff() / dt
        if ((steps - steps.round()).abs() > ROUNDING).any():
            raise ValueError(
                f"`t` must have steps that are multiples of {dt:g}: the model is a map "
                "from one sample to the next."
            )
        options |= self._iterate()
        return super().rollout(u0, times, forcing=forcing, **options)

    def evaluate(self, u: Array, dt: float, **options: Any) -> Evaluation:
        """:meth:`Forecaster.evaluate`; `dt` must be that of the training data."""
        self._check_distance(dt)
        return super().evaluate(u, dt, **(options | self._iterate()))

    def climate(self, u: Array, dt: float, **options: Any) -> Climate:
        """:meth:`Forecaster.climate` of the iterated map."""
        self._check_distance(dt)
        how = self._iterate()
        fixed = {"solvers": (how["method"],), "step": how["step"], "exponent": False}
        return super().climate(u, dt, **(options | fixed))

    def score(self, v: Data, dt: float | None = None, *, t: Any = None) -> float:
        """:meth:`Baseline.score`; samples must be as far apart as those of training."""
        series = as_series(v, dt=dt, t=t)
        if series.dt is not None:
            self._check_distance(series.dt)
        return super().score(series)

    def goodness_of_fit(
        self, v: Data, dt: float | None = None, **options: Any
    ) -> GoodnessOfFit:
        raise TypeError("`goodness_of_fit` needs a field; a map has no weak residual.")

    def _step(self, module: nn.Module, dt: float) -> Callable[[Tensor], Tensor]:
        return lambda u: u + dt * module(0.0, u)

    def _check(self, series: Series) -> None:
        super()._check(series)
        if series.dt is None:
            raise ValueError(
                f"`v` must have samples at equal distances: {type(self).__name__} is a "
                "map from one to the next."
            )

    def _check_validation(self, validation: Series, series: Series) -> None:
        super()._check_validation(validation, series)
        if not same_distance(validation.dt, series.dt):
            raise ValueError(
                f"`validation` must have samples {series.dt:g} apart, as `v` has: "
                f"{type(self).__name__} is a map from one to the next; got "
                f"{'irregular times' if validation.dt is None else validation.dt}."
            )

    def _check_distance(self, dt: float) -> None:
        self._check_fitted()
        if not same_distance(dt, self._dt()):
            raise ValueError(
                f"`dt` must be {self._dt():g}, the distance of the samples the map was "
                f"trained on; got {dt:g}."
            )

    def _iterate(self) -> dict[str, Any]:
        """Solver options that apply the map once a sample."""
        # A step that rounding makes a little longer must not be cut in two.
        return {"method": "euler", "step": (1 + ROUNDING) * self._dt()}

    def _dt(self) -> float:
        assert self.dt_ is not None
        return self.dt_
