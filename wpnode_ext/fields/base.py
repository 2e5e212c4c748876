"""Base class of fields, their inputs, and wrappers of users' functions."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import chain

import torch
from jaxtyping import Float
from torch import Tensor, nn

CPU = torch.device("cpu")
FieldFunction = Callable[[Tensor | float, Tensor], Tensor]


class Forcing:
    """An input from outside, such as a tide or a control signal: linear interpolation
    of a table of x(t).

    Times are float64 in fields of any precision: in float32 the stages of a Runge-Kutta
    step of 0.01 coincide from ``t = 1e5`` on.

    Args:
        t: increasing times, ``[M]``.
        values: the inputs at these times, ``[M, C]``.
    """

    def __init__(self, t: Float[Tensor, " M"], values: Float[Tensor, "M C"]) -> None:
        t = torch.as_tensor(t, dtype=torch.float64)
        values = torch.as_tensor(values)
        if t.dim() != 1 or len(t) < 2 or not (t.diff() > 0).all():
            raise ValueError(
                "`t` must be an increasing vector of at least two times; "
                f"got shape {list(t.shape)}. Sort it and drop repeated times."
            )
        if values.dim() != 2 or len(values) != len(t):
            raise ValueError(
                f"`values` must have shape [{len(t)}, channels], one row a time; "
                f"got {list(values.shape)}."
            )
        if not values.isfinite().all():
            raise ValueError("`values` must be finite; fill missing inputs first.")
        self.t = t
        self.values = values

    @property
    def dim(self) -> int:
        """Number C of inputs."""
        return self.values.shape[1]

    def check_covers(self, first: float, last: float) -> None:
        """Raises unless the table reaches from `first` to `last`."""
        begin, end = self.t[0].item(), self.t[-1].item()
        slack = 1e-9 * max(abs(begin), abs(end), end - begin)
        if first < begin - slack or last > end + slack:
            raise ValueError(
                f"`forcing` must cover the times {first:g} .. {last:g}; "
                f"got {begin:g} .. {end:g}."
            )

    def to(self, device: torch.device, dtype: torch.dtype) -> "Forcing":
        """The same input on another device, its values in another precision."""
        if (self.values.device, self.values.dtype) == (device, dtype):
            return self
        moved = object.__new__(Forcing)
        moved.t, moved.values = self.t.to(device), self.values.to(device, dtype)
        return moved

    def __call__(self, t: Float[Tensor, "*times"]) -> Float[Tensor, "*times C"]:
        """The input at times `t`, in the dtype of the table."""
        t = t.to(torch.float64).contiguous()
        left = torch.searchsorted(self.t, t, right=True).sub_(1)
        left = left.clamp_(0, len(self.t) - 2)
        begin, end = self.t[left], self.t[left + 1]
        share = ((t - begin) / (end - begin)).to(self.values.dtype).unsqueeze(-1)
        return torch.lerp(self.values[left], self.values[left + 1], share)


class Field(nn.Module):
    """Base of the fields of this package: ``f(u, x(t))`` with an optional input x.

    A subclass defines :meth:`at`. The forcing is data, not a parameter: the state dict
    leaves it out, and forecasts give a trained field another one.

    Args:
        forcing_dim: number of inputs; 0 for an autonomous field.

    Attributes:
        forcing: the input in use, or None. Set it before the field is called.
        same_at_sites: whether one map acts at every entry (site) of the last axis;
            sites must then be scaled alike.
    """

    same_at_sites: bool = False

    def __init__(self, forcing_dim: int = 0) -> None:
        super().__init__()
        if forcing_dim < 0:
            raise ValueError(f"`forcing_dim` must be >= 0; got {forcing_dim}.")
        self.forcing_dim = forcing_dim
        self._forcing: Forcing | None = None

    @property
    def forcing(self) -> Forcing | None:
        return self._forcing

    @forcing.setter
    def forcing(self, forcing: Forcing | None) -> None:
        given = 0 if forcing is None else forcing.dim
        if forcing is not None and given != self.forcing_dim:
            raise ValueError(
                f"`forcing` must have the {self.forcing_dim} inputs the field was made "
                f"for; got {given}."
            )
        self._forcing = forcing

    def at(self, u: Tensor, x: Tensor | None = None) -> Tensor:
        """Value at states `u` under inputs `x`, ``[*batch, forcing_dim]``."""
        raise NotImplementedError

    @property
    def described(self) -> "Field":
        """The field that settings describe: the inner one of a restricted field."""
        return self

    def forward(self, t: Tensor | float, u: Tensor) -> Tensor:
        if self.forcing_dim == 0:
            return self.at(u)
        return self.at(u, self._input_at(t, u))

    def _state_dims(self) -> int:
        """Number of trailing axes of `u` that are the state."""
        return 1

    def _input_at(self, t: Tensor | float, u: Tensor) -> Float[Tensor, "*batch C"]:
        if self._forcing is None:
            raise ValueError(
                f"the field needs {self.forcing_dim} inputs and has no forcing; set "
                "`field.forcing = Forcing(t, values)` first."
            )
        self._forcing = self._forcing.to(u.device, u.dtype)
        batch = u.shape[: u.dim() - self._state_dims()]
        t = torch.as_tensor(t, dtype=torch.float64, device=u.device)
        if t.dim() > 0:
            t = t.reshape(t.shape[: len(batch)])
        return self._forcing(t).expand(*batch, self.forcing_dim)


class AutonomousField(nn.Module):
    """A network of the state alone, ``net(u)``, as a field."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, t: Tensor | float, u: Tensor) -> Tensor:
        return self.net(u)


class FunctionField(nn.Module):
    """A plain function ``field(t, u)`` as a module without parameters."""

    def __init__(self, function: FieldFunction) -> None:
        super().__init__()
        self.function = function

    def forward(self, t: Tensor | float, u: Tensor) -> Tensor:
        return self.function(t, u)


def as_field(field: FieldFunction | nn.Module) -> nn.Module:
    """`field` as an ``nn.Module``; modules are returned as they are."""
    if isinstance(field, nn.Module):
        return field
    if not callable(field):
        raise TypeError(
            f"`field` must be a callable field(t, u); got {type(field).__name__}."
        )
    return FunctionField(field)


class FarField(nn.Module):
    """Evaluates a field on its own device and returns values on that of the states."""

    def __init__(self, field: nn.Module) -> None:
        super().__init__()
        self.field = field

    def forward(self, t: Tensor | float, u: Tensor) -> Tensor:
        there = device_of(self.field)
        t = t.to(there) if isinstance(t, Tensor) else t
        return self.field(t, u.to(there)).to(u.device)


def as_package_field(field: object) -> Field | None:
    """`field` if it is a :class:`Field`, which can take inputs, else None."""
    return field if isinstance(field, Field) else None


def forcing_dim_of(field: FieldFunction | nn.Module) -> int:
    """Number of inputs of a field; 0 for functions and modules of other kinds."""
    return getattr(field, "forcing_dim", 0)


def attach_forcing(field: nn.Module, forcing: Forcing | None) -> None:
    """Sets the input of a field; None leaves the field as it is.

    Raises:
        TypeError: the field takes no inputs.
    """
    own = as_package_field(field)
    if forcing is None:
        return
    if own is None:
        raise TypeError(
            "`forcing` needs a field that takes inputs (a subclass of "
            f"wpnode_ext.fields.Field); got {type(field).__name__}."
        )
    own.forcing = forcing


@contextmanager
def attached(field: nn.Module, forcing: Forcing | None) -> Iterator[None]:
    """Sets the input of a field inside the block, and the previous one after it."""
    own = as_package_field(field)
    before = None if own is None else own.forcing
    attach_forcing(field, forcing)
    try:
        yield
    finally:
        if own is not None:
            own.forcing = before


def without_forcing(field: nn.Module) -> nn.Module:
    """A deep copy of a field, its input removed."""
    copied = deepcopy(field)
    own = as_package_field(copied)
    if own is not None:
        own.forcing = None
    return copied


def time_for(field: FieldFunction, t: Tensor, u: Tensor) -> Tensor:
    """`t` in the precision in which a field takes times beside states `u`.

    Only fields that look up a forcing take float64; elsewhere such times would turn
    float32 states into float64.
    """
    return t.to(u.dtype) if as_package_field(field) is None else t


def call_field(field: FieldFunction, t: Tensor, u: Tensor) -> Tensor:
    """``field(t, u)`` in the dtype of `u`.

    Under autocast values have 16 bits, too few for the sums of a solver.
    """
    return field(time_for(field, t, u), u).to(u.dtype)


def device_of(
    field: FieldFunction | nn.Module, default: torch.device = CPU
) -> torch.device:
    """The device of a field's weights; `default` where it has none."""
    if not isinstance(field, nn.Module):
        return default
    first = next(chain(field.parameters(), field.buffers()), None)
    return default if first is None else first.device
