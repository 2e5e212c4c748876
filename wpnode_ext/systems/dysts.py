"""Chaotic systems of the package dysts."""

import warnings
from importlib import import_module
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ..common.registry import suggestion
from .base import System

# Standard deviations by which a random start differs from that of dysts, and Lyapunov
# times after which the difference has the size of the attractor.
PERTURBATION, FORGETTING = 1e-3, 8.0


class DystsSystem(System):
    """A system of dysts in its own coordinates; made by :func:`from_dysts`.

    NumPy evaluates the equations, one state after another. This is enough to simulate
    and to compare with; derivatives are not available. Phases of driven systems grow
    without bound.

    Attributes:
        name: of the system in dysts.
        period: its dominant period, in units of time.
        parameters: of the equations.
    """

    def __init__(self, flow: Any, method: str) -> None:
        self._flow = flow
        self.name: str = flow.name
        self.method = method
        self.period = float(flow.period)
        self.parameters: dict[str, Any] = dict(flow.params)
        exponent = float(flow.maximum_lyapunov_estimated)
        self._exponent = exponent if exponent > 0 else None
        # Long enough for different seeds to give different trajectories.
        self.burn_in = FORGETTING / exponent if exponent > 0 else 10 * self.period

    @property
    def state_shape(self) -> tuple[int, ...]:
        return (len(self._flow.ic),)

    @property
    def lyapunov_exponent(self) -> float | None:
        """The estimate that dysts lists."""
        return self._exponent

    def field(self, t: Tensor | float, u: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        time = float(t)
        rows = u.detach().cpu().double().reshape(-1, *self.state_shape).numpy()
        values = [self._numpy_field(time, row) for row in rows]
        return torch.from_numpy(np.stack(values)).reshape(u.shape).to(u)

    def random_state(self, generator: torch.Generator) -> Float[Tensor, " D"]:
        """The start that dysts lists plus noise of a thousandth of the spread."""
        start = torch.from_numpy(np.asarray(self._flow.ic, dtype=np.float64))
        spread = torch.from_numpy(np.asarray(self._flow.std, dtype=np.float64))
        noise = torch.randn(start.shape, generator=generator, dtype=torch.float64)
        return start + PERTURBATION * spread * noise

    def _numpy_field(self, t: float, u: NDArray[Any]) -> NDArray[Any]:
        if u.ndim > 1:
            return np.stack([self._numpy_field(t, row) for row in u])
        return np.asarray(self._flow.rhs(u, t), dtype=np.float64)


def from_dysts(
    name: str, *, method: str = "DOP853", **parameters: float
) -> DystsSystem:
    """The system `name` of dysts, e.g. "Rossler", "Thomas", "HyperLorenz".

    >>> system = from_dysts("Rossler")
    >>> u = system.simulate(5000, system.period / 100)

    Args:
        name: as dysts spells it.
        method: solver of :func:`scipy.integrate.solve_ivp` for trajectories; "Radau" or
            "LSODA" for the few stiff systems.
        **parameters: of the equations, in place of those that dysts lists.

    Raises:
        ImportError: dysts is not installed.
        ValueError: there is no such system or parameter, or it is a delay equation,
            whose state is a function and which therefore has no field.
    """
    flows = _flows()
    names = _names(flows)
    if name not in names:
        raise ValueError(
            f"`name` must be one of the {len(names)} systems of dysts; got {name!r}."
            f"{suggestion(name, names)}"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flow = getattr(flows, name)()
    if not hasattr(flow, "rhs"):
        raise ValueError(
            f"`name` must be a system with a field; got {name!r}, a delay equation, "
            "whose state is a function."
        )
    for key, value in parameters.items():
        if key not in flow.params:
            raise ValueError(
                f"`{key}` must be a parameter of {name}: {', '.join(flow.params)}."
            )
        flow.params[key] = value
    # Equations take their parameters in alphabetical order.
    flow.param_list = [flow.params[key] for key in sorted(flow.params)]
    return DystsSystem(flow, method)


def dysts_names() -> list[str]:
    """Names of all systems that :func:`from_dysts` can make."""
    flows = _flows()
    return [name for name in _names(flows) if hasattr(getattr(flows, name), "rhs")]


def _flows() -> Any:
    try:
        with warnings.catch_warnings():
            # dysts warns if numba is missing; nothing here needs numba.
            warnings.simplefilter("ignore")
            return import_module("dysts.flows")
    except ImportError as error:
        raise ImportError(
            "systems of dysts need that package; pip install 'wpnode_ext[dysts]'."
        ) from error


def _names(flows: Any) -> list[str]:
    """Sorted names of the classes that the module itself defines."""
    return sorted(
        name
        for name, value in vars(flows).items()
        if isinstance(value, type) and value.__module__ == flows.__name__
    )
