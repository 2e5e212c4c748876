"""Information about many coefficients, the states eliminated, as a product.

The matrix of :mod:`.projected` has the square of the number of unknowns. Its product
with a vector costs no more than a step of the smoother: change of the field along the
states, change of the steps, answer of the states, and back.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ..fields.linear import LinearField
from .block_tridiagonal import factor
from .directions import Directions
from .gauss_newton import LEAST_DAMPING, Problem, StepFailed
from .windows import Windows


class ProjectedOperator:
    """``z -> info z`` for unknowns ``[K, O]`` of the directions, over their spread.

    A source y(t) in the field, here ``features(u) z``, moves a step by ::

        P y_n + Q y_{n+1} + h / 4 (dPsi/du - E) (y_n + y_{n+1})

    with P, Q and E of the part of the field the step follows exactly (identities for
    Runge-Kutta): second order in h, which costs a Gauss-Newton step nothing.

    Args:
        field: the field the states were smoothed with.
        directions: its unknowns.
        problem: the data and the process noise, uncut.
        x: states in units of the noise, ``[N, D]``.
        window: samples of the windows the record is cut into, without overlap.
    """

    def __init__(
        self,
        field: LinearField,
        directions: Directions,
        problem: Problem,
        x: Float[Tensor, "N D"],
        *,
        window: int = 400,
    ) -> None:
        cut = Windows.over(len(x), window, 0)
        every = torch.arange(len(cut.starts))
        rows = cut.rows(every)
        part, x = problem.cut(rows), x[rows]
        self._cut, self._part, self._sizes = cut, part, directions.sizes
        self._own = cut.own_links(every)
        self._jump, slope = part.linearise(x)
        if not (self._jump.isfinite().all() and slope.isfinite().all()):
            raise StepFailed("steps of the field from the states are not finite")
        diagonal, self._lower, self._rhs = part.assemble(x, self._jump, slope)
        diagonal.diagonal(dim1=-2, dim2=-1).add_(LEAST_DAMPING)
        self._states = factor(diagonal, self._lower)
        if not self._states.positive.all():
            raise StepFailed("states are not determined by data and model")
        flow = part.step.flow() * (part.scale / part.scale[:, None])
        self._excess = slope.sub_(flow).mul_(part.h[..., None, None] / 4)
        u = (x * part.scale).flatten(0, 1)
        self.features = directions.features(field, u) * directions.shares

    def gram(self) -> Float[Tensor, "K K"]:
        """Of the features."""
        phi = self.features.flatten(0, 1)
        return phi.T @ phi

    def output_sizes(self) -> Float[Tensor, " O"]:
        """How far a step moves per unknown of each output, in units of the noise."""
        scale = self._part.scale.reshape(-1, len(self._sizes))
        return self._sizes * scale.reciprocal().square().mean(0).sqrt()

    def slope(self) -> Float[Tensor, "K O"]:
        """Of the likelihood, with the states adapted."""
        return self._scores(self._jump, self._rhs)

    def times(self, z: Float[Tensor, "K O"]) -> Float[Tensor, "K O"]:
        move = self._moves(z)
        return self._scores(move, self._mixed(move))

    def states_answer(self, z: Float[Tensor, "K O"]) -> Float[Tensor, "N D"]:
        """Change of the states, in units of the noise, where the unknowns change."""
        answer = -self._states.solve(self._mixed(self._moves(z)))
        whole = torch.empty(self._cut.n_samples, answer.shape[-1], dtype=answer.dtype)
        self._cut.take(whole, answer, torch.arange(answer.shape[1]))
        return whole

    def noise(self, generator: torch.Generator | None) -> Float[Tensor, "K O"]:
        """A slope that noise alone would give: its covariance is the information."""
        part = self._part
        seen = part.seen * _normal(part.seen, generator)
        root = part.link.sqrt()
        jump = torch.where(root > 0, _normal(root, generator) / root, 0.0)
        rhs = seen
        rhs[1:] -= part.link * jump
        rhs[:-1] -= (self._lower.mT @ jump[..., None])[..., 0]
        return self._scores(jump, rhs)

    def _scores(
        self, jump: Float[Tensor, "m B D"], rhs: Float[Tensor, "L B D"]
    ) -> Float[Tensor, "K O"]:
        """Sums over the links of what the states leave of `jump`."""
        a = self._states.solve(rhs)
        left = self._part.link * (jump + a[1:])
        return self._collect(left + (self._lower @ a[:-1][..., None])[..., 0])

    def _mixed(self, move: Float[Tensor, "m B D"]) -> Float[Tensor, "L B D"]:
        """A state meets a link as its end and as its start."""
        b = torch.zeros_like(self._rhs)
        b[1:] -= self._part.link * move
        b[:-1] -= (self._lower.mT @ move[..., None])[..., 0]
        return b

    def _moves(self, z: Float[Tensor, "K O"]) -> Float[Tensor, "m B D"]:
        part, shape = self._part, self._rhs.shape
        y = (self.features @ (z * self._sizes)).reshape(shape)
        first, last = y[:-1].flatten(0, 1), y[1:].flatten(0, 1)
        move = part.step.push(first, last, part.h.flatten()) / part.scale
        both = (y[:-1] + y[1:]) / part.scale
        move = move.reshape(both.shape) + (self._excess @ both[..., None])[..., 0]
        return move * self._own

    def _collect(self, y: Float[Tensor, "m B D"]) -> Float[Tensor, "K O"]:
        """Transpose of :meth:`_moves`."""
        part, y = self._part, y * self._own
        both = (self._excess.mT @ y[..., None])[..., 0] / part.scale
        first, last = part.step.pull((y / part.scale).flatten(0, 1), part.h.flatten())
        total = torch.zeros_like(self._rhs)
        total[:-1] += first.reshape(y.shape) + both
        total[1:] += last.reshape(y.shape) + both
        phi = self.features.flatten(0, 1)
        return phi.T @ total.reshape(len(phi), -1) * self._sizes


def _normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype)
