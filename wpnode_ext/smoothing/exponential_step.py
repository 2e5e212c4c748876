"""One step of a stiff model from sample to sample, and its derivatives."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ..fields.linear import LinearField
from ..solvers.exponential import Etdrk4, is_stiff, phi_functions
from .steps import SLICE, ModelStep


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
        self._scheme = Etdrk4(self._linear, dt / substeps)
        whole = phi_functions(dt * self._linear, 2)
        self._flow = whole[0]
        self._first, self._last = dt * (whole[1] - whole[2]), dt * whole[2]

    @staticmethod
    def needed(field: LinearField, dt: float, substeps: int = 1) -> bool:
        """Whether Runge-Kutta steps of this field over `dt` would be unstable."""
        if field.forcing_dim:
            return False
        with torch.no_grad():
            zero = torch.zeros(1, field.dim, dtype=field.coefficients.dtype)
            return is_stiff(field.jacobian(zero)[0].double(), dt / substeps)

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
    ) -> Float[Tensor, "M D O K"]:
        """Derivative of ``Psi(u)`` by the head, in a basis of its features."""
        outputs, size = self._field.coefficients.shape[1], basis.shape[1]
        moves = []
        for part in self._slices(u):
            zero = torch.zeros(*part.shape, outputs * size, dtype=u.dtype)
            moves.append(self._tangent(part, zero, basis)[1])
        move = torch.cat(moves)
        move[h == 0] = 0.0
        return move.unflatten(-1, (outputs, size))

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

    def _advance(self, u: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
        for _ in range(self._substeps):
            u = self._scheme.advance(self._field, 0.0, u)
        return u

    def _tangent(
        self,
        u: Float[Tensor, "M D"],
        s: Float[Tensor, "M D Q"],
        basis: Float[Tensor, "J K"] | None = None,
    ) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D Q"]]:
        """The step and its derivative along the columns of `s` and of the basis."""
        m = self._scheme
        for _ in range(self._substeps):
            f1, s1 = self._rest_tangent(u, s, basis)
            half, s_half = u @ m.half.T, m.half @ s
            a, s_a = half + f1 @ m.p.T, s_half + m.p @ s1
            f2, s2 = self._rest_tangent(a, s_a, basis)
            b, s_b = half + f2 @ m.p.T, s_half + m.p @ s2
            f3, s3 = self._rest_tangent(b, s_b, basis)
            c = a @ m.half.T + (2 * f3 - f1) @ m.p.T
            s_c = m.half @ s_a + m.p @ (2 * s3 - s1)
            f4, s4 = self._rest_tangent(c, s_c, basis)
            u = u @ m.whole.T + f1 @ m.b1.T + (f2 + f3) @ m.b2.T + f4 @ m.b3.T
            s = m.whole @ s + m.b1 @ s1 + m.b2 @ (s2 + s3) + m.b3 @ s4
        return u, s

    def _rest_tangent(
        self, u: Tensor, s: Tensor, basis: Tensor | None
    ) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D Q"]]:
        value, jacobian = self._field.value_and_jacobian(u)
        slope = (jacobian - self._linear) @ s
        if basis is not None:
            outputs = self._field.coefficients.shape[1]
            phi = self._field.combined(u, basis)
            phi = phi.reshape(len(u), self._field.sites, -1)
            # Coefficient (j, o) moves entry (site, o) by feature j of that site.
            own = slope.unflatten(2, (outputs, -1)).unflatten(1, (-1, outputs))
            own.diagonal(dim1=2, dim2=3).add_(phi[..., None])
        return value - u @ self._linear.T, slope


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
