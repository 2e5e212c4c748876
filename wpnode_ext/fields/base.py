"""What fields share, an optional forcing, and wrappers for users' functions."""

from collections.abc import Callable
from itertools import chain

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .forcing import Forcing

CPU = torch.device("cpu")
FieldFunction = Callable[[Tensor | float, Tensor], Tensor]


class Field(nn.Module):
    """Base of the fields of this package: ``f(u, x(t))`` with an optional input x.

    A subclass defines :meth:`at`. The forcing is data, not a parameter: it is not part
    of the state dict, and a trained field is given another one to forecast with.

    Args:
        forcing_dim: number of inputs; 0 for an autonomous field.

    Attributes:
        forcing: the input in use, or None. Set it before the field is called.
        same_at_sites: whether it is one map at all entries of the last axis, sites of
            which none must be scaled otherwise than its neighbours.
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
    """A field on another device than its states: these go there, values come back."""

    def __init__(self, field: nn.Module) -> None:
        super().__init__()
        self.field = field

    def forward(self, t: Tensor | float, u: Tensor) -> Tensor:
        there = device_of(self.field)
        t = t.to(there) if isinstance(t, Tensor) else t
        return self.field(t, u.to(there)).to(u.device)


def device_of(
    field: FieldFunction | nn.Module, default: torch.device = CPU
) -> torch.device:
    """Where a field computes; `default` for functions, which do not tell."""
    if not isinstance(field, nn.Module):
        return default
    first = next(chain(field.parameters(), field.buffers()), None)
    return default if first is None else first.device
