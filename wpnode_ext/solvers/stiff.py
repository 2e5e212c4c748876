"""Forecasts in steps of the samples by fields that Runge-Kutta steps cannot follow."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..fields import Field
from .exponential import Etdrk4, is_stiff, linear_part
from .strong import call_field

# Entries of a state up to which the linear part of a field is looked at.
LARGEST = 200


def stiff_part(
    field: nn.Module, t: Float[Tensor, ""], u: Float[Tensor, " *state"], dt: float
) -> Float[Tensor, "D D"] | None:
    """The linear part of a field at a state, where it decays too fast for RK4.

    None where it does not, or cannot be had: for states of many entries, and for
    fields that ``torch.func.jvp`` cannot differentiate.
    """
    if u.numel() > LARGEST:
        return None
    time = t if isinstance(field, Field) else t.to(u.dtype)
    # Not by calling a module: a compiled one cannot be differentiated like this.
    function = field.forward if isinstance(field, nn.Module) else field
    try:
        linear = linear_part(function, time, u).double()
    except (NotImplementedError, RuntimeError):
        return None
    return linear if is_stiff(linear, dt) else None


def exponential_steps(
    field: nn.Module,
    linear: Float[Tensor, "D D"],
    u: Float[Tensor, " W *state"],
    t: Float[Tensor, "..."],
    dt: float,
    count: int,
) -> list[Float[Tensor, " W *state"]]:
    """States after 1, ..., `count` steps of length `dt`; see :mod:`..exponential`."""
    scheme = Etdrk4(linear, dt)

    def flat(t: Tensor | float, w: Float[Tensor, "W D"]) -> Float[Tensor, "W D"]:
        time = torch.as_tensor(t)
        return call_field(field, time, w.to(u.dtype).reshape(u.shape)).flatten(1)

    # The matrices cancel to many digits: in float64 whatever the field computes in.
    states, w = [], u.flatten(1).double()
    for number in range(count):
        w = scheme.advance(flat, t + number * dt, w)
        states.append(w.to(u.dtype).reshape(u.shape))
    return states
