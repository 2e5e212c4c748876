"""Methods that learn a map ``u_{n+1} = Psi(u_n)``, tied to the distance of samples.

A map is given to the rest of the package as the field ``(Psi(u) - u) / dt``: Euler's
method with the step ``dt`` is then the map.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from ..common.arrays import as_float64
from ..common.typing import Array
from ..data import Data, Series, as_series
from ..fields import Forcing
from ..metrics import GoodnessOfFit
from ..metrics.climate import Climate
from ..metrics.evaluation import Evaluation
from ..solvers.rollouts import RolloutResult
from .base import Baseline
from .scaled import ROUNDING, same_distance


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
        """Iterates the map; the arguments `method` and `step` of solvers are unused."""
        self._check_fitted()
        dt = self._dt()
        times = as_float64(t, "t")
        steps = times.diff() / dt
        if ((steps - steps.round()).abs() > ROUNDING).any():
            raise ValueError(
                f"`t` must go in multiples of {dt:g}: the model is a map from one "
                "sample to the next."
            )
        options |= self._iterate()
        return super().rollout(u0, times, forcing=forcing, **options)

    def evaluate(self, u: Array, dt: float, **options: Any) -> Evaluation:
        """:meth:`Forecaster.evaluate`; `dt` must be that of the training data."""
        self._check_distance(dt)
        return super().evaluate(u, dt, **(options | self._iterate()))

    def climate(self, u: Array, dt: float, **options: Any) -> Climate:
        """:meth:`Forecaster.climate`; a map has one way to be solved."""
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
        raise TypeError("a map has no weak residual; `goodness_of_fit` needs a field.")

    def _step(self, module: nn.Module, dt: float) -> Callable[[Tensor], Tensor]:
        return lambda u: u + dt * module(0.0, u)

    def _check(self, series: Series) -> None:
        super()._check(series)
        if series.dt is None:
            raise ValueError(
                f"`v` must have samples at equal distances; {type(self).__name__} is a "
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
        """Options of solvers that make them apply the map once a sample."""
        # Times that rounding makes a little longer must not be cut in two.
        return {"method": "euler", "step": (1 + ROUNDING) * self._dt()}

    def _dt(self) -> float:
        assert self.dt_ is not None
        return self.dt_
