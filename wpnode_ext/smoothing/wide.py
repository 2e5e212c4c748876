"""The step of :mod:`.projected` for fields with too many unknowns for a matrix.

Conjugate gradients solve for the coefficients. A product of the information with a
vector costs no more than a step of the smoother. It computes the change of the field
along the states, the change of the steps, the response of the states, and the transpose
of these.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..fields.linear import LinearField
from .block_tridiagonal import factor
from .gauss_newton import LEAST_DAMPING, Problem, StepFailed, Windows
from .projected import WINDOW, Directions


@dataclass(frozen=True)
class WideSettings:
    """Accuracy of a step with conjugate gradients.

    Attributes:
        residual: final relative residual of the best coefficients.
        drawn_residual: final relative residual of drawn coefficients, whose spread is
            far larger than this error.
        products: most products with the information before the step fails.
        rounds: iterations of the fixed point for the prior's precision; the rounds of a
            refinement continue it.
        probes: random vectors that estimate the information of an output.
        least_share: least information of an output, relative to its size and to the
            largest of any output.
        draws: number of coefficients that a refinement draws for error bars.
    """

    residual: float = 1e-2
    drawn_residual: float = 5e-2
    products: int = 300
    rounds: int = 3
    probes: int = 4
    least_share: float = 1e-4
    draws: int = 8


WIDE = WideSettings()


@dataclass(frozen=True)
class WideStep:
    """Coefficients that are best with the states adapted to them.

    Attributes:
        coefficients: ``[J, O]``.
        effective: number of unknowns that the data determine, estimated.
        others: draws from the distribution of the coefficients, ``[R, J, O]``; R is 0
            unless draws were requested.
        state_variance: variance of smoothed states that the errors of the coefficients
            cause, in units of the noise, ``[N, D]``; 0 without `others`.
        products: number of products with the information, for the coefficients.
    """

    coefficients: Float[Tensor, "J O"]
    effective: float
    others: Float[Tensor, "R J O"]
    state_variance: Float[Tensor, "N D"]
    products: int

    def draw(
        self, count: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "count J O"]:
        """Draws from the distribution of the coefficients, in the span of `others`."""
        apart = self.others - self.coefficients
        mix = (
            torch.randn(count, len(apart), generator=generator, dtype=torch.float64)
            / len(apart) ** 0.5
        )
        return self.coefficients + torch.einsum("cr,rjo->cjo", mix, apart)


@torch.no_grad()
def wide_step(
    field: LinearField,
    problem: Problem,
    x: Float[Tensor, "N D"],
    *,
    window: int = WINDOW,
    ridge: float | None = None,
    draws: int = 0,
    generator: torch.Generator | None = None,
    settings: WideSettings = WIDE,
) -> WideStep:
    """One Gauss-Newton step of the coefficients from states `x`.

    Unknowns and prior are those of :func:`.projected.projected_step`. The prior's
    precision depends on how well the data determine each unknown, which is estimated:
    the information is approximated by the Gram matrix of the features times a number
    for each output. The same approximation is the preconditioner.

    Args:
        field, problem, x, window, ridge: as in :func:`.projected.projected_step`.
        draws: number of coefficients to draw.
        generator: source of the draws.
        settings: accuracy of the step.

    Raises:
        StepFailed: steps of the field, or the best coefficients, are not finite; or
            conjugate gradients do not converge.
    """
    directions = Directions.of(field, problem, x)
    operator = ProjectedOperator(field, directions, problem, x, window=window)
    approximate = _Approximate.of(operator, settings)
    now = _table(directions.unknowns(field.coefficients), directions)
    # The rounds of a refinement continue the fixed point for the prior.
    prior = approximate.precision(now, settings.rounds) if ridge is None else ridge
    solver = _Solver(operator, approximate, prior, settings.products)
    z = now + solver.solve(operator.slope() - prior * now, settings.residual)
    products = solver.products
    others, variance = [], torch.zeros_like(x)
    for _ in range(draws):
        normal = torch.randn(z.shape, generator=generator, dtype=z.dtype)
        slope = operator.noise(generator) + prior**0.5 * normal
        change = solver.solve(slope, settings.drawn_residual)
        others.append(_heads(z + change, directions))
        variance += operator.states_answer(change).square() / draws
    heads = _heads(z, directions)
    if not (heads.isfinite().all() and variance.isfinite().all()):
        raise StepFailed("the coefficients have no finite best values")
    return WideStep(
        heads,
        approximate.effective(prior),
        torch.stack(others) if others else heads.new_zeros(0, *heads.shape),
        variance,
        products,
    )


class ProjectedOperator:
    """``z -> info z`` for unknowns ``[K, O]`` in units of their spread.

    A source y(t) in the field, here ``features(u) z``, changes a step by ::

        P y_n + Q y_{n+1} + h / 4 (dPsi/du - E) (y_n + y_{n+1})

    where P, Q and E belong to the part of the field that the step integrates exactly
    (identities for Runge-Kutta). This is second order in h, enough for a Gauss-Newton
    step.

    Args:
        field: the field the states were smoothed with.
        directions: its unknowns.
        problem: the data and the process noise, uncut.
        x: states in units of the noise, ``[N, D]``.
        window: samples in each of the windows, which do not overlap.
    """

    def __init__(
        self,
        field: LinearField,
        directions: Directions,
        problem: Problem,
        x: Float[Tensor, "N D"],
        *,
        window: int = WINDOW,
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
        """Gram matrix of the features."""
        phi = self.features.flatten(0, 1)
        return phi.T @ phi

    def output_sizes(self) -> Float[Tensor, " O"]:
        """Change of a step per unknown of each output, in units of the noise."""
        scale = self._part.scale.reshape(-1, len(self._sizes))
        return self._sizes * scale.reciprocal().square().mean(0).sqrt()

    def slope(self) -> Float[Tensor, "K O"]:
        """Slope of the log likelihood with the states adapted."""
        return self._scores(self._jump, self._rhs)

    def times(self, z: Float[Tensor, "K O"]) -> Float[Tensor, "K O"]:
        move = self._moves(z)
        return self._scores(move, self._mixed(move))

    def states_answer(self, z: Float[Tensor, "K O"]) -> Float[Tensor, "N D"]:
        """Change of the states, in units of the noise, when unknowns change by z."""
        answer = -self._states.solve(self._mixed(self._moves(z)))
        whole = torch.empty(self._cut.n_samples, answer.shape[-1], dtype=answer.dtype)
        self._cut.take(whole, answer, torch.arange(answer.shape[1]))
        return whole

    def noise(self, generator: torch.Generator | None) -> Float[Tensor, "K O"]:
        """A slope drawn from noise alone; its covariance is the information."""
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
        """Sums over the links of the part of `jump` that the states cannot remove."""
        a = self._states.solve(rhs)
        left = self._part.link * (jump + a[1:])
        return self._collect(left + (self._lower @ a[:-1][..., None])[..., 0])

    def _mixed(self, move: Float[Tensor, "m B D"]) -> Float[Tensor, "L B D"]:
        """Mixed block times unknowns; each state ends one link and starts another."""
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


@dataclass(frozen=True)
class _Approximate:
    """Approximation ``vectors diag(values) vectors^T`` of ``info`` for each output."""

    vectors: Float[Tensor, "K K"]
    values: Float[Tensor, "K O"]

    @classmethod
    def of(cls, operator: ProjectedOperator, settings: WideSettings) -> "_Approximate":
        gram = operator.gram()
        size, vectors = torch.linalg.eigh(gram)
        draw = torch.Generator().manual_seed(0)
        # Cross terms of outputs are noise here; equal weights keep them small.
        even = 1 / operator.output_sizes()
        seen, whole = torch.zeros_like(even), torch.zeros_like(even)
        for _ in range(settings.probes):
            z = even * torch.randn(
                len(gram), len(even), generator=draw, dtype=torch.float64
            )
            seen += (z * operator.times(z)).sum(0)
            whole += (z * (gram @ z)).sum(0)
        share = seen / whole * even.square()
        share = share.clamp(min=settings.least_share * share.max().item())
        return cls(vectors, size.clamp(min=0)[:, None] * share / even.square())

    def effective(self, prior: float) -> float:
        return (self.values / (self.values + prior)).sum().item()

    def precision(self, z: Float[Tensor, "K O"], rounds: int) -> float:
        """Precision of the prior of largest evidence: ``effective / |z|^2``."""
        # Unknowns of size below one could not explain the time derivative.
        size, prior = max(z.square().sum().item(), 1.0), 0.0
        for _ in range(rounds):
            prior = self.effective(max(prior, torch.finfo(z.dtype).tiny)) / size
        return prior

    def roots(self, prior: float) -> Float[Tensor, "K O"]:
        """Square roots of the approximate precisions."""
        return (self.values + prior).sqrt()


class _Solver:
    """Solves ``(info + prior) z = rhs`` by conjugate gradients.

    The units make the approximate precision one, so that a small residual is small
    compared with the errors of the unknowns.
    """

    def __init__(
        self,
        operator: ProjectedOperator,
        approximate: _Approximate,
        prior: float,
        most: int,
    ) -> None:
        self._most = most
        self._operator, self._prior, self.products = operator, prior, 0
        self._vectors, self._roots = approximate.vectors, approximate.roots(prior)

    def solve(self, rhs: Float[Tensor, "K O"], residual: float) -> Float[Tensor, "K O"]:
        shape, size = rhs.shape, rhs.numel()

        def product(given: np.ndarray) -> np.ndarray:
            self.products += 1
            z = self._unknowns(torch.from_numpy(given).reshape(shape))
            y = self._operator.times(z) + self._prior * z
            return (self._vectors.T @ y / self._roots).flatten().numpy()

        if not (rhs.isfinite().all() and isfinite(self._prior)):
            raise StepFailed("the likelihood of the coefficients has no finite slope")
        # scipy.sparse is slow to import, and most fits do not need it.
        from scipy.sparse.linalg import aslinearoperator, cg

        found, failure = cg(
            aslinearoperator(_Matrix(size, product)),
            (self._vectors.T @ rhs / self._roots).flatten().numpy(),
            rtol=residual,
            maxiter=self._most,
        )
        if failure:
            raise StepFailed(
                f"conjugate gradients need more than {self._most} products"
            )
        return self._unknowns(torch.from_numpy(found).reshape(shape))

    def _unknowns(self, y: Float[Tensor, "K O"]) -> Float[Tensor, "K O"]:
        return self._vectors @ (y / self._roots)


class _Matrix:
    """A square matrix as scipy expects it."""

    def __init__(self, size: int, product: Callable[[np.ndarray], np.ndarray]) -> None:
        self.shape, self.dtype, self.matvec = (size, size), np.dtype(float), product


def _table(z: Float[Tensor, " P"], directions: Directions) -> Float[Tensor, "K O"]:
    z = z / directions.spread
    return z.unflatten(-1, (len(directions.sizes), -1)).T.contiguous()


def _heads(z: Float[Tensor, "K O"], directions: Directions) -> Float[Tensor, "J O"]:
    return directions.coefficients(z.T.flatten() * directions.spread)


def _normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype)
