"""Exponential time differencing: steps that stiff linear parts cannot make explode.

Modes that decay many times within a step break explicit Runge-Kutta methods. Here the
linear part L of a field is followed exactly, and only the rest, ``N(u) = f(u) - L u``,
by four stages (Cox and Matthews, order 4)::

    a = E2 u + P N(u),   b = E2 u + P N(a),   c = E2 a + P (2 N(b) - N(u)),
    u_next = E u + B1 N(u) + B2 (N(a) + N(b)) + B3 N(c)

with matrices made of ``exp(h L)`` and ``phi_k(h L)``.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ..common.typing import Field

# Decay over a step up to which Runge-Kutta steps of fourth order are stable.
STABLE = 2.5


class Etdrk4:
    """The matrices of a step of length `h`, and the step.

    Args:
        linear: float64 linear part L, ``[D, D]``. Which one decides over stability, not
            over what is solved.
        h: length of the step.

    Attributes:
        linear, h: as given.
        half, whole, p, b1, b2, b3: E2, E, P, B1, B2, B3.
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
        first = self._rest(field, t, u)
        half = u @ self.half.T
        a = half + first @ self.p.T
        second = self._rest(field, t + self.h / 2, a)
        third = self._rest(field, t + self.h / 2, half + second @ self.p.T)
        c = a @ self.half.T + (2 * third - first) @ self.p.T
        last = self._rest(field, t + self.h, c)
        u = u @ self.whole.T + first @ self.b1.T
        return u + (second + third) @ self.b2.T + last @ self.b3.T

    def _rest(self, field: Field, t: Tensor | float, u: Tensor) -> Tensor:
        return field(t, u) - u @ self.linear.T


def is_stiff(linear: Float[Tensor, "D D"], h: float) -> bool:
    """Whether Runge-Kutta steps of length `h` would explode."""
    # Rates are at most as large as the norm, which takes no time.
    if not linear.isfinite().all() or h * linear.norm().item() <= STABLE:
        return False
    return -h * torch.linalg.eigvals(linear).real.min().item() > STABLE


def linear_part(field: Field, t: Tensor, u: Float[Tensor, "*state"]) -> Tensor:
    """Jacobian ``[D, D]`` of a field at one state.

    Taken backwards, one copy of the state for each row: ``torch.func.jvp`` imports
    torch's compiler when it is first called, which takes more than a second.
    """
    size = u.numel()
    rows = torch.eye(size, dtype=u.dtype, device=u.device).reshape(size, *u.shape)
    # Without gradients fields may take shortcuts that cannot be differentiated.
    with torch.enable_grad():
        states = u.detach().repeat(size, *(1,) * u.dim()).requires_grad_()
        values = field(t, states)
        if not values.requires_grad:
            return torch.zeros(size, size, dtype=u.dtype, device=u.device)
        (slopes,) = torch.autograd.grad(values, states, rows, materialize_grads=True)
    return slopes.reshape(size, size)


def phi_functions(z: Float[Tensor, "D D"], count: int) -> list[Float[Tensor, "D D"]]:
    """``exp(z)`` and ``phi_1 .. phi_count``, ``phi_k = (phi_{k-1} - 1/(k-1)!) / z``.

    They stand in the first block row of the exponential of z bordered by identities.
    """
    d = len(z)
    big = z.new_zeros((count + 1) * d, (count + 1) * d)
    big[:d, :d] = z
    for k in range(count):
        big[k * d : (k + 1) * d, (k + 1) * d : (k + 2) * d] += torch.eye(d).to(z)
    top = torch.linalg.matrix_exp(big)[:d]
    return list(top.split(d, 1))
