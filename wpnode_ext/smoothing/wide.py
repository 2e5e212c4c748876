"""The step of :mod:`.projected` for fields with more unknowns than a matrix can hold.

Conjugate gradients solve for the coefficients; every product with the information is
one of :class:`.projected_operator.ProjectedOperator`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..fields.linear import LinearField
from .directions import Directions
from .gauss_newton import Problem, StepFailed
from .projected_operator import ProjectedOperator

# Conjugate gradients: relative residuals at the end, for the coefficients and for those
# that are drawn, and most products.
RESIDUAL, DRAWN_RESIDUAL, PRODUCTS = 1e-2, 5e-2, 300
# Rounds of the fixed point for the prior's precision, and random vectors that measure
# the information of an output.
ROUNDS, PROBES = 3, 4
# Information an output has at least, relative to its size and the most of any.
LEAST_SHARE = 1e-4
# Other coefficients that are drawn.
DRAWS = 8


@dataclass(frozen=True)
class WideStep:
    """Coefficients that would be best with the states adapted to them.

    Attributes:
        coefficients: ``[J, O]``.
        effective: number of unknowns that the data determine, estimated.
        others: coefficients as likely as these, given the data, ``[R, J, O]``; R is 0
            unless they were asked for.
        state_variance: of smoothed states through the errors of the coefficients, in
            units of the noise, ``[N, D]``; 0 without `others`.
        products: with the information, for the coefficients.
    """

    coefficients: Float[Tensor, "J O"]
    effective: float
    others: Float[Tensor, "R J O"]
    state_variance: Float[Tensor, "N D"]
    products: int

    def draw(
        self, count: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "count J O"]:
        """Coefficients as likely as these, all within the span of `others`."""
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
    window: int = 400,
    ridge: float | None = None,
    draws: int = 0,
    generator: torch.Generator | None = None,
) -> WideStep:
    """One Gauss-Newton step of the coefficients from states `x`.

    Unknowns and prior are those of :func:`.projected.projected_step`. What the data
    determine of an unknown, which decides the prior's precision, is estimated: the
    information is taken for the Gram matrix of the features times a number for each
    output. The same serves as preconditioner.

    Args:
        field, problem, x, window, ridge: as in :func:`.projected.projected_step`.
        draws: other coefficients to draw.
        generator: of the draws.

    Raises:
        StepFailed: steps of the field, or the best coefficients, are not finite;
            or conjugate gradients do not come to rest.
    """
    u = x * problem.scale
    linked = problem.h > 0
    speed = u.diff(dim=0)[linked] / problem.h[linked][:, None]
    directions = Directions.of(field, u, speed)
    operator = ProjectedOperator(field, directions, problem, x, window=window)
    approximate = _Approximate.of(operator)
    now = _table(directions.unknowns(field.coefficients), directions)
    # The rounds of a refinement are those of the fixed point as well.
    prior = approximate.precision(now) if ridge is None else ridge
    solver = _Solver(operator, approximate, prior)
    z = now + solver.solve(operator.slope() - prior * now)
    products = solver.products
    others, variance = [], torch.zeros_like(x)
    for _ in range(draws):
        normal = torch.randn(z.shape, generator=generator, dtype=z.dtype)
        slope = operator.noise(generator) + prior**0.5 * normal
        change = solver.solve(slope, DRAWN_RESIDUAL)
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


@dataclass(frozen=True)
class _Approximate:
    """``info`` as ``vectors diag(values) vectors^T``, one number a direction."""

    vectors: Float[Tensor, "K K"]
    values: Float[Tensor, "K O"]

    @classmethod
    def of(cls, operator: ProjectedOperator) -> "_Approximate":
        gram = operator.gram()
        size, vectors = torch.linalg.eigh(gram)
        draw = torch.Generator().manual_seed(0)
        # Vectors under which outputs weigh alike: what one says of another is noise.
        even = 1 / operator.output_sizes()
        seen, whole = torch.zeros_like(even), torch.zeros_like(even)
        for _ in range(PROBES):
            z = even * torch.randn(
                len(gram), len(even), generator=draw, dtype=torch.float64
            )
            seen += (z * operator.times(z)).sum(0)
            whole += (z * (gram @ z)).sum(0)
        share = seen / whole * even.square()
        share = share.clamp(min=LEAST_SHARE * share.max().item())
        return cls(vectors, size.clamp(min=0)[:, None] * share / even.square())

    def effective(self, prior: float) -> float:
        return (self.values / (self.values + prior)).sum().item()

    def precision(self, z: Float[Tensor, "K O"]) -> float:
        """That of the prior whose evidence is largest: ``effective / |z|^2``."""
        # Below one the time derivative, of size one, would not be explained.
        size, prior = max(z.square().sum().item(), 1.0), 0.0
        for _ in range(ROUNDS):
            prior = self.effective(max(prior, torch.finfo(z.dtype).tiny)) / size
        return prior

    def roots(self, prior: float) -> Float[Tensor, "K O"]:
        """Of the precisions."""
        return (self.values + prior).sqrt()


class _Solver:
    """Solves ``(info + prior) z = rhs``.

    In units in which the approximate precision is one: conjugate gradients end when
    the residual is small, and here that means small beside the errors of the unknowns.
    """

    def __init__(
        self, operator: ProjectedOperator, approximate: _Approximate, prior: float
    ) -> None:
        self._operator, self._prior, self.products = operator, prior, 0
        self._vectors, self._roots = approximate.vectors, approximate.roots(prior)

    def solve(
        self, rhs: Float[Tensor, "K O"], residual: float = RESIDUAL
    ) -> Float[Tensor, "K O"]:
        from scipy.sparse.linalg import aslinearoperator, cg

        shape, size = rhs.shape, rhs.numel()

        def product(given: np.ndarray) -> np.ndarray:
            self.products += 1
            z = self._unknowns(torch.from_numpy(given).reshape(shape))
            y = self._operator.times(z) + self._prior * z
            return (self._vectors.T @ y / self._roots).flatten().numpy()

        if not (rhs.isfinite().all() and isfinite(self._prior)):
            raise StepFailed("the likelihood of the coefficients has no finite slope")
        found, failure = cg(
            aslinearoperator(_Matrix(size, product)),
            (self._vectors.T @ rhs / self._roots).flatten().numpy(),
            rtol=residual,
            maxiter=PRODUCTS,
        )
        if failure:
            raise StepFailed(f"{PRODUCTS} products did not settle the coefficients")
        return self._unknowns(torch.from_numpy(found).reshape(shape))

    def _unknowns(self, y: Float[Tensor, "K O"]) -> Float[Tensor, "K O"]:
        return self._vectors @ (y / self._roots)


class _Matrix:
    """What scipy takes for a square matrix."""

    def __init__(self, size: int, product: Callable[[np.ndarray], np.ndarray]) -> None:
        self.shape, self.dtype, self.matvec = (size, size), np.dtype(float), product


def _table(z: Float[Tensor, " P"], directions: Directions) -> Float[Tensor, "K O"]:
    z = z / directions.spread
    return z.unflatten(-1, (len(directions.sizes), -1)).T.contiguous()


def _heads(z: Float[Tensor, "K O"], directions: Directions) -> Float[Tensor, "J O"]:
    return directions.coefficients(z.T.flatten() * directions.spread)
