"""Base class of systems: a field, a shape, and trajectories to learn from."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ..common.arrays import Array, as_float64, as_generator

# Local error of reference trajectories; on Lorenz-63 the error after one time unit is
# below 1e-10, far below what any model can reach.
TOLERANCE = 1e-12


class System(ABC):
    """A dynamical system ``du/dt = field(t, u)`` with a known right-hand side.

    Attributes:
        burn_in: default time left out before the first sample, so that it lies on the
            attractor.
        method: solver of :func:`scipy.integrate.solve_ivp` for reference trajectories.
    """

    burn_in: float = 20.0
    method: str = "DOP853"

    @property
    @abstractmethod
    def state_shape(self) -> tuple[int, ...]:
        """Shape of one state."""

    @property
    def lyapunov_exponent(self) -> float | None:
        """Maximal exponent by which the paper scales times; None if it has none."""
        return None

    @property
    def computed_lyapunov_exponent(self) -> float | None:
        """Result of :func:`wpnode_ext.lyapunov_exponents`; None if not computed."""
        return None

    @abstractmethod
    def field(self, t: Tensor | float, u: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """``du/dt`` at the states ``[..., *state]``; differentiable."""

    @abstractmethod
    def random_state(self, generator: torch.Generator) -> Float[Tensor, "..."]:
        """A float64 state in the basin of the attractor."""

    def simulate(
        self,
        n: int,
        dt: float,
        *,
        seed: int | torch.Generator = 0,
        burn_in: float | None = None,
        u0: Array | None = None,
    ) -> Float[Tensor, "n ..."]:
        """A reference trajectory at ``0, dt, ..., (n - 1) dt``.

        Args:
            n: number of samples.
            dt: time between samples.
            seed: seed or generator of the random start; unused where `u0` is given.
            burn_in: time left out before the first sample; default `self.burn_in`, or
                0 where `u0` is given.
            u0: start, ``[*batch, *state]``; a batch is integrated together.

        Returns:
            float64 ``[n, *batch, *state]`` on the CPU.
        """
        if n < 1:
            raise ValueError(f"`n` must be an integer >= 1; got {n}.")
        if not dt > 0:
            raise ValueError(f"`dt` must be positive; got {dt}.")
        if burn_in is None:
            burn_in = self.burn_in if u0 is None else 0.0
        if u0 is None:
            start = self.random_state(as_generator(seed))
        else:
            start = as_float64(u0, "u0")
            if start.shape[start.dim() - len(self.state_shape) :] != self.state_shape:
                raise ValueError(
                    f"`u0` must end in the state shape {list(self.state_shape)}; "
                    f"got {list(start.shape)}."
                )
        if burn_in > 0:
            start = self._integrate(start, np.array([0.0, burn_in]))[-1]
        trajectory = self._integrate(start, dt * np.arange(n))
        if not trajectory.isfinite().all():
            raise ValueError(
                f"the trajectory of {type(self).__name__} left every bound; "
                "choose a start in the basin of the attractor."
            )
        return trajectory

    def _integrate(
        self, start: Float[Tensor, "..."], t: NDArray[Any]
    ) -> Float[Tensor, "n ..."]:
        """The trajectory from `start` at the times `t`, ``t[0] = 0``."""

        from scipy.integrate import solve_ivp

        if len(t) == 1:
            return start[None].clone()

        def rhs(time: float, y: NDArray[Any]) -> NDArray[Any]:
            return self._numpy_field(time, y.reshape(start.shape)).reshape(-1)

        solution = solve_ivp(
            rhs,
            (t[0], t[-1]),
            start.reshape(-1).numpy(),
            method=self.method,
            t_eval=t,
            rtol=TOLERANCE,
            atol=TOLERANCE * max(1.0, float(start.abs().max())),
        )
        if not solution.success:
            raise ValueError(
                f"the trajectory of {type(self).__name__} could not be computed: "
                f"{solution.message}"
            )
        return torch.from_numpy(solution.y.T.copy()).view(len(t), *start.shape)

    def _numpy_field(self, t: float, u: NDArray[Any]) -> NDArray[Any]:
        """`field` for small states, where a call of torch costs more than its work."""
        return self.field(t, torch.from_numpy(u)).numpy()
