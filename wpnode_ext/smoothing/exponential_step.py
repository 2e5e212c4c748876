"""One step of a stiff model from sample to sample: exponential time differencing.

Modes that decay many times within a sample interval make Runge-Kutta steps explode.
Here the linear part L of the field is followed exactly, and only the rest,
``N(u) = f(u) - L u``, by four stages (Cox and Matthews, order 4)::

    a = E2 u + P N(u),   b = E2 u + P N(a),   c = E2 a + P (2 N(b) - N(u)),
    Psi(u) = E u + B1 N(u) + B2 (N(a) + N(b)) + B3 N(c)

with matrices made of ``exp(h L)`` and ``phi_k(h L)``.
"""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ..fields.linear import LinearField
from .model_step import SLICE, ModelStep

# Decay over a substep from which Runge-Kutta steps are no longer stable.
STIFF = 2.5


class ExponentialStep:
    """``Psi(u)`` for equal intervals, its derivatives by state and coefficients.

    Args:
        field: a linear field without forcing; L is its Jacobian at the state 0, the
            middle of scaled data.
        dt: length of every interval. An interval of length 0, across a gap, leaves
            states as they are.
        substeps: equal steps an interval is cut into.
    """

    def __init__(self, field: LinearField, dt: float, *, substeps: int = 1) -> None:
        self._field, self._substeps = field, substeps
        with torch.no_grad():
            zero = torch.zeros(1, field.dim, dtype=field.coefficients.dtype)
            self._linear = field.jacobian(zero)[0].double()
        h = dt / substeps
        half = _phi(h / 2 * self._linear, 1)
        full = _phi(h * self._linear, 3)
        self._e2, self._e = half[0], full[0]
        self._p = h / 2 * half[1]
        self._b1 = h * (full[1] - 3 * full[2] + 4 * full[3])
        self._b2 = h * (2 * full[2] - 4 * full[3])
        self._b3 = h * (4 * full[3] - full[2])
        whole = _phi(dt * self._linear, 2)
        self._flow = whole[0]
        self._first, self._last = dt * (whole[1] - whole[2]), dt * whole[2]

    @staticmethod
    def needed(field: LinearField, dt: float, substeps: int = 1) -> bool:
        """Whether Runge-Kutta steps of this field over `dt` would be unstable."""
        if field.forcing_dim:
            return False
        with torch.no_grad():
            zero = torch.zeros(1, field.dim, dtype=field.coefficients.dtype)
            rates = torch.linalg.eigvals(field.jacobian(zero)[0].double()).real
        return -rates.min().item() * dt / substeps > STIFF

    def __call__(
        self, u: Float[Tensor, "M D"], t: Float[Tensor, " M"], h: Float[Tensor, " M"]
    ) -> Float[Tensor, "M D"]:
        """States after intervals of lengths `h`, all `dt` or 0."""
        parts = [self._advance(part) for part in self._slices(u)]
        return self._kept(u, torch.cat(parts), h)

    def linearise(
        self, u: Float[Tensor, "M D"], t: Float[Tensor, " M"], h: Float[Tensor, " M"]
    ) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D D"]]:
        """``Psi(u)`` and ``dPsi/du``."""
        eye = torch.eye(u.shape[1], dtype=u.dtype)
        states, slopes = [], []
        for part in self._slices(u):
            end, slope = self._tangent(part, eye.expand(len(part), -1, -1))
            states.append(end)
            slopes.append(slope)
        end, slope = torch.cat(states), torch.cat(slopes)
        slope[h == 0] = eye
        return self._kept(u, end, h), slope

    def sensitivity(
        self,
        u: Float[Tensor, "M D"],
        h: Float[Tensor, " M"],
        basis: Float[Tensor, "J K"],
    ) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D O K"]]:
        """``Psi(u)`` and its derivative by the head, in a basis of its features."""
        outputs, size = self._field.coefficients.shape[1], basis.shape[1]
        states, moves = [], []
        for part in self._slices(u):
            zero = torch.zeros(*part.shape, outputs * size, dtype=u.dtype)
            end, move = self._tangent(part, zero, basis)
            states.append(end)
            moves.append(move)
        end, move = torch.cat(states), torch.cat(moves)
        move[h == 0] = 0.0
        return self._kept(u, end, h), move.unflatten(-1, (outputs, size))

    def flow(self) -> Float[Tensor, "D D"]:
        """``dPsi/du`` of the part of the field that :meth:`push` follows exactly."""
        return self._flow

    def push(
        self, first: Float[Tensor, "M D"], last: Float[Tensor, "M D"], h: Tensor
    ) -> Float[Tensor, "M D"]:
        """What a source adds to a step that goes from `first` to `last` in it."""
        there = (h != 0).to(first.dtype)[:, None]
        return there * (first @ self._first.T + last @ self._last.T)

    def pull(
        self, y: Float[Tensor, "M D"], h: Tensor
    ) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D"]]:
        """Transpose of :meth:`push`."""
        y = (h != 0).to(y.dtype)[:, None] * y
        return y @ self._first, y @ self._last

    def _kept(self, u: Tensor, end: Tensor, h: Tensor) -> Tensor:
        return torch.where(h[:, None] == 0, u, end)

    def _slices(self, u: Tensor) -> Iterator[Tensor]:
        width = self._field.n_features * self._field.sites
        return iter(u.split(max(1, SLICE // max(width, u.shape[1] ** 2))))

    def _rest(self, u: Tensor) -> Tensor:
        return self._field(0.0, u) - u @ self._linear.T

    def _advance(self, u: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
        for _ in range(self._substeps):
            first = self._rest(u)
            half = u @ self._e2.T
            a = half + first @ self._p.T
            second = self._rest(a)
            third = self._rest(half + second @ self._p.T)
            c = a @ self._e2.T + (2 * third - first) @ self._p.T
            u = u @ self._e.T + first @ self._b1.T
            u = u + (second + third) @ self._b2.T + self._rest(c) @ self._b3.T
        return u

    def _tangent(
        self,
        u: Float[Tensor, "M D"],
        s: Float[Tensor, "M D Q"],
        basis: Float[Tensor, "J K"] | None = None,
    ) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D Q"]]:
        """The step and its derivative along the columns of `s` and of the basis."""
        for _ in range(self._substeps):
            f1, s1 = self._rest_tangent(u, s, basis)
            half, s_half = u @ self._e2.T, self._e2 @ s
            a, s_a = half + f1 @ self._p.T, s_half + self._p @ s1
            f2, s2 = self._rest_tangent(a, s_a, basis)
            b, s_b = half + f2 @ self._p.T, s_half + self._p @ s2
            f3, s3 = self._rest_tangent(b, s_b, basis)
            c = a @ self._e2.T + (2 * f3 - f1) @ self._p.T
            s_c = self._e2 @ s_a + self._p @ (2 * s3 - s1)
            f4, s4 = self._rest_tangent(c, s_c, basis)
            u = u @ self._e.T + f1 @ self._b1.T + (f2 + f3) @ self._b2.T
            u = u + f4 @ self._b3.T
            s = self._e @ s + self._b1 @ s1 + self._b2 @ (s2 + s3) + self._b3 @ s4
        return u, s

    def _rest_tangent(
        self, u: Tensor, s: Tensor, basis: Tensor | None
    ) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D Q"]]:
        slope = (self._field.jacobian(u) - self._linear) @ s
        if basis is not None:
            outputs = self._field.coefficients.shape[1]
            phi = self._field.combined(u, basis)
            phi = phi.reshape(len(u), self._field.sites, -1)
            # Coefficient (j, o) moves entry (site, o) by feature j of that site.
            own = slope.unflatten(2, (outputs, -1)).unflatten(1, (-1, outputs))
            own.diagonal(dim1=2, dim2=3).add_(phi[..., None])
        return self._rest(u), slope


def make_step(
    field: Callable[..., Tensor],
    state: torch.Size,
    dt: float | None,
    *,
    method: str = "rk4_classic",
    substeps: int = 1,
) -> ModelStep | ExponentialStep:
    """The step that suits a field: exponential where Runge-Kutta would explode.

    Args:
        field: callable ``field(t, u)``.
        state: shape of one state.
        dt: length of the intervals, where they are equal.
        method, substeps: of Runge-Kutta steps; see :class:`ModelStep`.
    """
    if dt is not None and isinstance(field, LinearField):
        if ExponentialStep.needed(field, dt, substeps):
            return ExponentialStep(field, dt, substeps=substeps)
    return ModelStep(field, state, method=method, substeps=substeps)


def _phi(z: Float[Tensor, "D D"], count: int) -> list[Float[Tensor, "D D"]]:
    """``exp(z)`` and ``phi_1 .. phi_count``, ``phi_k = (phi_{k-1} - 1/(k-1)!) / z``.

    They stand in the first block row of the exponential of z bordered by identities.
    """
    d = len(z)
    big = torch.zeros((count + 1) * d, (count + 1) * d, dtype=torch.float64)
    big[:d, :d] = z
    for k in range(count):
        big[k * d : (k + 1) * d, (k + 1) * d : (k + 2) * d] += torch.eye(d).double()
    top = torch.linalg.matrix_exp(big)[:d]
    return list(top.split(d, 1))
