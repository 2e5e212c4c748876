"""One step of the model from sample to sample, and its derivative."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..solvers.runge_kutta import TABLEAUX, integrate

# Numbers the Jacobians or the features of a slice of states may hold: keeps the stages
# of a step in the cache, which halves the time of wide fields.
SLICE = 1 << 19


class ModelStep:
    """``Psi(u)``: the field followed over one sample interval by a Runge-Kutta method.

    The derivative chains the Jacobians of the stages where the field gives them
    (``field.jacobian(u)``, ``[*batch, D, D]``); else it is D forward-mode derivatives
    of the step. States are flat, ``[M, D]``.

    Args:
        field: callable ``field(t, u)`` of states ``[M, *state]``, each by itself.
        state: shape of one state.
        method: fixed-step method of :mod:`wpnode_ext.solvers.runge_kutta`.
        substeps: equal steps an interval is cut into.
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
        # Numbers a field holds for each state while it is evaluated.
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
        """What a source adds to a step that goes from `first` to `last` in it."""
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
        """The field on flat states and its Jacobian, together where it knows how."""
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
