"""Exponential time differencing: steps for fields with stiff linear parts.

Modes that decay many times within a step make explicit Runge-Kutta methods explode.
These steps follow the linear part L of a field exactly, and the rest,
``N(u) = f(u) - L u``, by four stages (Cox and Matthews, order 4)::

    a = E2 u + P N(u),   b = E2 u + P N(a),   c = E2 a + P (2 N(b) - N(u)),
    u_next = E u + B1 N(u) + B2 (N(a) + N(b)) + B3 N(c)

with matrices made of ``exp(h L)`` and ``phi_k(h L)``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..common.arrays import Field
from ..fields.base import call_field, time_for

# States of any type with sums and multiples.
States = Any


@dataclass(frozen=True)
class StiffnessLimits:
    """Fields that exponential steps are for.

    Attributes:
        stable: decay over a step up to which Runge-Kutta steps of fourth order are
            stable; they are up to 2.78.
        largest: entries of a state up to which the linear part of a field is computed;
            its matrix exponential grows with their cube.
    """

    stable: float = 2.5
    largest: int = 200


STIFFNESS = StiffnessLimits()


def etdrk4_step(
    maps: Any,
    rest: Callable[[float, States], States],
    u: States,
    apply: Callable[[Any, States], States],
) -> States:
    """States one step later.

    Args:
        maps: its attributes are linear maps, matrices or factors of modes: `half` and
            `whole` are ``exp(h L / 2)`` and ``exp(h L)``; `p`, `b1`, `b2` and `b3` are
            P, B1, B2 and B3.
        rest: ``rest(share, u)`` is N at states `u`, after a share of the step.
        u: states.
        apply: ``apply(map, u)`` applies a linear map to states.
    """
    first = rest(0.0, u)
    half = apply(maps.half, u)
    a = half + apply(maps.p, first)
    second = rest(0.5, a)
    third = rest(0.5, half + apply(maps.p, second))
    c = apply(maps.half, a) + apply(maps.p, 2 * third - first)
    last = rest(1.0, c)
    u = apply(maps.whole, u) + apply(maps.b1, first)
    return u + apply(maps.b2, second + third) + apply(maps.b3, last)


class Etdrk4:
    """The step of length `h` for fields with a linear part L.

    Args:
        linear: float64 linear part L, ``[D, D]``. Stability depends on it; the solution
            does not.
        h: length of the step.

    Attributes:
        linear, h: as given.
        half, whole, p, b1, b2, b3: matrices, see :func:`etdrk4_step`.
    """

    def __init__(self, linear: Float[Tensor, "D D"], h: float) -> None:
        half = phi_functions(h / 2 * linear, 1)
        full = phi_functions(h * linear, 3)
        self.linear, self.h = linear, h
        self.half, self.whole = half[0], full[0]
        self.p = h / 2 * half[1]
        self.b1 = h * (full[1] - 3 * full[2] + 4 * full[3])
        self.b2 = h * (2 * full[2] - 4 * full[3])
        self.b3 = h * (4 * full[3] - full[2])

    def advance(
        self, field: Field, t: Tensor | float, u: Float[Tensor, "M D"]
    ) -> Float[Tensor, "M D"]:
        """States one step after the time `t`."""

        def rest(share: float, u: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
            return field(t + share * self.h, u) - u @ self.linear.T

        return etdrk4_step(self, rest, u, lambda matrix, u: u @ matrix.T)


def is_stiff(
    linear: Float[Tensor, "D D"], h: float, limits: StiffnessLimits = STIFFNESS
) -> bool:
    """True if modes decay too fast for Runge-Kutta steps of length `h`."""
    # The norm, which is fast to compute, bounds all rates.
    if not linear.isfinite().all() or h * linear.norm().item() <= limits.stable:
        return False
    return -h * torch.linalg.eigvals(linear).real.min().item() > limits.stable


def linear_part(field: Field, t: Tensor, u: Float[Tensor, "*state"]) -> Tensor:
    """Jacobian ``[D, D]`` of a field at one state.

    Taken backwards, one copy of the state for each row: ``torch.func.jvp`` imports
    torch's compiler when it is first called, which takes more than a second.
    """
    size = u.numel()
    rows = torch.eye(size, dtype=u.dtype, device=u.device).reshape(size, *u.shape)
    # Without gradients fields may take shortcuts that jvp cannot differentiate.
    with torch.enable_grad():
        states = u.detach().repeat(size, *(1,) * u.dim()).requires_grad_()
        values = field(t, states)
        if not values.requires_grad:
            return torch.zeros(size, size, dtype=u.dtype, device=u.device)
        (slopes,) = torch.autograd.grad(values, states, rows, materialize_grads=True)
    return slopes.reshape(size, size)


def phi_functions(z: Float[Tensor, "D D"], count: int) -> list[Float[Tensor, "D D"]]:
    """``exp(z)`` and ``phi_1 .. phi_count``, ``phi_k = (phi_{k-1} - 1/(k-1)!) / z``.

    They are the first block row of the exponential of z bordered by identities.
    """
    d = len(z)
    big = z.new_zeros((count + 1) * d, (count + 1) * d)
    big[:d, :d] = z
    for k in range(count):
        big[k * d : (k + 1) * d, (k + 1) * d : (k + 2) * d] += torch.eye(d).to(z)
    top = torch.linalg.matrix_exp(big)[:d]
    return list(top.split(d, 1))


def stiff_part(
    field: nn.Module,
    t: Float[Tensor, ""],
    u: Float[Tensor, " *state"],
    dt: float,
    limits: StiffnessLimits = STIFFNESS,
) -> Float[Tensor, "D D"] | None:
    """The linear part of a field at a state, if modes decay too fast for RK4.

    None if they do not, for states of more than ``limits.largest`` entries, and for
    fields that autograd cannot differentiate.
    """
    if u.numel() > limits.largest:
        return None
    time = time_for(field, t, u)
    # A compiled module is differentiated by its method alone.
    function = field.forward if isinstance(field, nn.Module) else field
    try:
        linear = linear_part(function, time, u).double()
    except (NotImplementedError, RuntimeError):
        return None
    return linear if is_stiff(linear, dt, limits) else None


def exponential_steps(
    field: nn.Module,
    linear: Float[Tensor, "D D"],
    u: Float[Tensor, " W *state"],
    t: Float[Tensor, "..."],
    dt: float,
    count: int,
) -> list[Float[Tensor, " W *state"]]:
    """States after 1, ..., `count` steps of length `dt`."""
    scheme = Etdrk4(linear, dt)

    def flat(t: Tensor | float, w: Float[Tensor, "W D"]) -> Float[Tensor, "W D"]:
        time = torch.as_tensor(t)
        return call_field(field, time, w.to(u.dtype).reshape(u.shape)).flatten(1)

    # Sums with the matrices cancel many digits: float64 for fields of any precision.
    states, w = [], u.flatten(1).double()
    for number in range(count):
        w = scheme.advance(flat, t + number * dt, w)
        states.append(w.to(u.dtype).reshape(u.shape))
    return states
