"""Steps of a model from sample to sample, and their derivatives.

:class:`ModelStep` is a Runge-Kutta step of any field. :class:`ExponentialStep` is for
linear fields that are too stiff for it. :func:`make_step` chooses between them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..fields.linear import LinearField, as_linear
from ..solvers.exponential import Etdrk4, etdrk4_step, is_stiff, phi_functions
from ..solvers.runge_kutta import TABLEAUX, integrate

# Most numbers in the Jacobians or the features of a slice of states. The stages of a
# step then fit into the cache, which halves the time for wide fields.
SLICE = 1 << 19


class ModelStep:
    """``Psi(u)``: the field integrated over one sample interval by Runge-Kutta.

    The derivative chains the Jacobians of the stages if the field has
    ``field.jacobian(u)``, ``[*batch, D, D]``; else it takes D forward-mode derivatives
    of the step. States are flat, ``[M, D]``.

    Args:
        field: callable ``field(t, u)`` of states ``[M, *state]``, independent of each
            other.
        state: shape of one state.
        method: fixed-step method of :mod:`wpnode_ext.solvers.runge_kutta`.
        substeps: equal steps in an interval.
    """

    def __init__(
        self,
        field: Callable[..., Tensor],
        state: torch.Size,
        *,
        method: str = "rk4_classic",
        substeps: int = 1,
    ) -> None:
        if method not in TABLEAUX or TABLEAUX[method].adaptive:
            names = [name for name, row in TABLEAUX.items() if not row.adaptive]
            raise ValueError(f"`method` must be one of {names}; got {method!r}.")
        if substeps < 1:
            raise ValueError(f"`substeps` must be an integer >= 1; got {substeps}.")
        self._field, self._state = field, state
        self._method, self._substeps = method, substeps
        self._dtype = torch.float64
        if isinstance(field, nn.Module):
            floats = [x for x in field.parameters() if x.is_floating_point()]
            self._dtype = floats[0].dtype if floats else torch.float64
        # Numbers that a field holds for each state during its evaluation.
        self._width = getattr(field, "n_features", 1) * getattr(field, "sites", 1)
        # The Jacobian of a forced field would need the input as well.
        autonomous = getattr(field, "forcing_dim", 0) == 0
        self._jacobian = getattr(field, "jacobian", None) if autonomous else None
        if self._jacobian is None and isinstance(field, nn.Module):
            widest = max((len(x) for x in field.parameters() if x.dim() > 1), default=1)
            # Forward-mode derivatives by all entries are taken at once.
            self._width = max(self._width, widest * state.numel())

    def __call__(
        self, u: Float[Tensor, "M D"], t: Float[Tensor, " M"], h: Float[Tensor, " M"]
    ) -> Float[Tensor, "M D"]:
        """States after intervals of lengths `h` that begin at times `t`."""
        return torch.cat([self._advance(*part) for part in self._slices(u, t, h)])

    def linearise(
        self, u: Float[Tensor, "M D"], t: Float[Tensor, " M"], h: Float[Tensor, " M"]
    ) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D D"]]:
        """``Psi(u)`` and ``dPsi/du``, the derivative by entry j in column j."""
        chain = self._forward_mode if self._jacobian is None else self._chain
        parts = [chain(*part) for part in self._slices(u, t, h)]
        states, slopes = zip(*parts, strict=True)
        return torch.cat(states), torch.cat(slopes)

    def flow(self) -> Float[Tensor, "D D"]:
        """``dPsi/du`` of the part of the field that :meth:`push` follows exactly."""
        return torch.eye(self._state.numel(), dtype=torch.float64)

    def push(
        self, first: Float[Tensor, "M D"], last: Float[Tensor, "M D"], h: Tensor
    ) -> Float[Tensor, "M D"]:
        """Change of a step due to a source that goes from `first` to `last` in it."""
        return (first + last) * (h / 2)[:, None]

    def pull(
        self, y: Float[Tensor, "M D"], h: Tensor
    ) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D"]]:
        """Transpose of :meth:`push`."""
        half = y * (h / 2)[:, None]
        return half, half

    def _slices(
        self, u: Tensor, t: Tensor, h: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        size = max(1, SLICE // max(self._width, u.shape[1] ** 2))
        return zip(u.split(size), t.split(size), h.split(size), strict=True)

    def _advance(self, u: Tensor, t: Tensor, h: Tensor) -> Float[Tensor, "M D"]:
        part = (h / self._substeps)[:, None]
        steps = [part] * self._substeps
        return integrate(self._flat, u, t[:, None], steps, method=self._method)[-1]

    def _flat(self, t: Tensor, u: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
        """The field on flat states, in the precision of its weights."""
        t = t.reshape(-1, *(1,) * len(self._state))
        f = self._field(t, u.to(self._dtype).reshape(-1, *self._state))
        return f.reshape(u.shape).to(u.dtype)

    def _flat_both(
        self, t: Tensor, u: Float[Tensor, "M D"]
    ) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D D"]]:
        """The field on flat states and its Jacobian, jointly if the field can."""
        assert self._jacobian is not None
        d = u.shape[1]
        given = u.to(self._dtype).reshape(-1, *self._state)
        both = getattr(self._field, "value_and_jacobian", None)
        if both is None:
            value, rows = self._flat(t, u), self._jacobian(given)
        else:
            value, rows = both(given)
        return (
            value.reshape(u.shape).to(u.dtype),
            rows.reshape(-1, d, d).to(u.dtype),
        )

    def _chain(
        self, u: Tensor, t: Tensor, h: Tensor
    ) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D D"]]:
        """``K_i = h J(u_i) (1 + sum_j a_ij K_j)``, and ``1 + sum_i b_i K_i`` of a step.

        The derivative of the whole is the product of those of the substeps.
        """
        tableau = TABLEAUX[self._method]
        h, t, whole = (h / self._substeps)[:, None], t[:, None], None
        for _ in range(self._substeps):
            value, slope = self._flat_both(t, u)
            stages, slopes = [value], [slope * h[..., None]]
            for c, row in zip(tableau.c, tableau.a, strict=True):
                value, slope = self._flat_both(t + c * h, _moved(u, h, row, stages))
                stages.append(value)
                slope, inside = slope * h[..., None], _combined(row, slopes)
                slopes.append(torch.baddbmm(slope, slope, inside))
            u, t = _moved(u, h, tableau.b, stages), t + h
            slope = _combined(tableau.b, slopes)
            slope.diagonal(dim1=1, dim2=2).add_(1.0)
            whole = slope if whole is None else slope @ whole
        assert whole is not None
        return u, whole

    def _forward_mode(
        self, u: Tensor, t: Tensor, h: Tensor
    ) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D D"]]:
        def step(states: Tensor) -> Tensor:
            return self._advance(states, t, h)

        def column(direction: Tensor) -> Tensor:
            return torch.func.jvp(step, (u,), (direction.expand_as(u),))[1]  # type: ignore[return-value]

        eye = torch.eye(u.shape[1], dtype=u.dtype, device=u.device)
        return step(u), torch.func.vmap(column, out_dims=2)(eye)


def _moved(
    start: Tensor, h: Tensor, weights: tuple[float, ...], stages: list[Tensor]
) -> Tensor:
    """``start + h sum_j weights[j] stages[j]``."""
    for weight, stage in zip(weights, stages, strict=True):
        if weight != 0.0:
            start = torch.addcmul(start, h, stage, value=weight)
    return start


def _combined(weights: tuple[float, ...], slopes: list[Tensor]) -> Tensor:
    """``sum_j weights[j] slopes[j]``."""
    terms = [(w, x) for w, x in zip(weights, slopes, strict=True) if w != 0.0]
    total = terms[0][1] * terms[0][0]
    for weight, slope in terms[1:]:
        total.add_(slope, alpha=weight)
    return total


@dataclass(frozen=True)
class _Tangent:
    """States ``[M, D]`` and derivatives of them along Q directions, ``[M, D, Q]``."""

    value: Tensor
    slope: Tensor

    def __add__(self, other: "_Tangent") -> "_Tangent":
        return _Tangent(self.value + other.value, self.slope + other.slope)

    def __sub__(self, other: "_Tangent") -> "_Tangent":
        return _Tangent(self.value - other.value, self.slope - other.slope)

    def __rmul__(self, factor: float) -> "_Tangent":
        return _Tangent(factor * self.value, factor * self.slope)

    @staticmethod
    def under(matrix: Tensor, pair: "_Tangent") -> "_Tangent":
        """Value and slope under a linear map of states."""
        return _Tangent(pair.value @ matrix.T, matrix @ pair.slope)


class ExponentialStep:
    """Exponential step ``Psi(u)`` with derivatives by state and by coefficients.

    Args:
        field: a linear field without forcing; L is its Jacobian at the state 0, the
            middle of scaled data.
        dt: length of every interval. An interval of length 0, across a gap, does not
            change states.
        substeps: equal steps in an interval.
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
        """Change of a step due to a source that goes from `first` to `last` in it."""
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

        def rest(_: float, pair: _Tangent) -> _Tangent:
            return _Tangent(*self._rest_tangent(pair.value, pair.slope, basis))

        pair = _Tangent(u, s)
        for _ in range(self._substeps):
            pair = etdrk4_step(self._scheme, rest, pair, _Tangent.under)
        return pair.value, pair.slope

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


Step = ModelStep | ExponentialStep


def make_step(
    field: Callable[..., Tensor],
    state: torch.Size,
    dt: float | None,
    *,
    method: str = "rk4_classic",
    substeps: int = 1,
) -> Step:
    """Step of a field: exponential where Runge-Kutta would be unstable.

    Args:
        field: callable ``field(t, u)``.
        state: shape of one state.
        dt: length of the intervals, or None if they differ.
        method, substeps: see :class:`ModelStep`.
    """
    linear = as_linear(field)
    if dt is not None and linear is not None:
        if ExponentialStep.needed(linear, dt, substeps):
            return ExponentialStep(linear, dt, substeps=substeps)
    return ModelStep(field, state, method=method, substeps=substeps)
