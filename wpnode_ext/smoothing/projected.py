"""Coefficients of a linear field by maximum likelihood, with the states eliminated.

Alternating fits and smoothing converge slowly, because the states already obey the
field they were smoothed with; the smaller the process noise, the slower. Here the
states adapt to the coefficients: a Gauss-Newton step minimises ::

    sum |(v - u) / sigma|^2 + sum |(u_{n+1} - Psi_theta(u_n)) / process_noise|^2

over states and coefficients together, and the states are eliminated block by block. The
unknowns are combinations of features in an orthonormal basis.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..fields.linear import LinearField
from .block_tridiagonal import BlockCholesky, factor
from .evidence import posterior
from .gauss_newton import LEAST_DAMPING, Problem, StepFailed, Windows
from .steps import ExponentialStep

# Combinations of features smaller than this share of the largest are left out: under
# any noise worth removing, the data cannot determine their coefficients.
SMALLEST = 1e-8
# Most samples that the sizes of features are computed from.
SAMPLES = 2000
# Sizes relative to the largest that count as zero.
ROUNDING = 1e-12
TINY = torch.finfo(torch.float64).tiny
# Most numbers in the right-hand sides of one chunk of windows.
CHUNK = 1 << 23
# Samples in a window; changes of the coefficients have no effect across it.
WINDOW = 400


@dataclass(frozen=True)
class Directions:
    """The unknowns z of a field: ``coefficients = basis @ z * sizes``.

    Features are divided by their sizes (``field.feature_sizes``). The basis consists of
    the right singular vectors of the result over their singular values. So all
    combinations have one size, and rounding does not destroy the information of small
    ones; their sizes enter the prior. Random features depend on each other almost
    completely: of 300 for three variables 56 combinations have a size above 1e-8.

    Attributes:
        basis: ``[J, K]``.
        inverse: ``[K, J]``, a left inverse of it.
        shares: singular values relative to the largest, ``[K]``.
        sizes: of the time derivative, for each output, ``[O]``.
    """

    basis: Float[Tensor, "J K"]
    inverse: Float[Tensor, "K J"]
    shares: Float[Tensor, " K"]
    sizes: Float[Tensor, " O"]

    @classmethod
    def of(
        cls, field: LinearField, problem: Problem, x: Float[Tensor, "N D"]
    ) -> "Directions":
        """The unknowns of a field at states `x` in units of the noise."""
        u = x * problem.scale
        linked = problem.h > 0
        speed = u.diff(dim=0)[linked] / problem.h[linked][:, None]
        size, share, vh = _combinations(field, u)
        outputs = field.coefficients.shape[1]
        speeds = speed.reshape(-1, outputs).square().mean(0).sqrt()
        # Entries that never change have rounding as their size.
        least = max(TINY, ROUNDING * speeds.max().item())
        return cls(
            basis=vh.T / size[:, None] / share,
            inverse=vh * size * share[:, None],
            shares=share,
            sizes=speeds.clamp(min=least),
        )

    @property
    def n_unknowns(self) -> int:
        return self.basis.shape[1] * len(self.sizes)

    @property
    def spread(self) -> Float[Tensor, " P"]:
        """Sizes of the unknowns under the prior, output by output."""
        return self.shares.repeat(len(self.sizes))

    def features(
        self, field: LinearField, u: Float[Tensor, "M D"]
    ) -> Float[Tensor, "M S K"]:
        """The combined features, with one row for each site."""
        return field.combined(u, self.basis).reshape(len(u), field.sites, -1)

    def mean_features(
        self,
        field: LinearField,
        points: list[Float[Tensor, "M D"]],
        weights: list[float],
    ) -> Float[Tensor, "M S K"]:
        """Weighted sums of the combined features at several points."""
        u, share = torch.stack(points), torch.tensor(weights, dtype=points[0].dtype)
        found = field.combined(u, self.basis, share)
        return found.reshape(u.shape[1], field.sites, -1)

    def unknowns(self, coefficients: Float[Tensor, "J O"]) -> Float[Tensor, " P"]:
        """z of given coefficients, output by output."""
        return (self.inverse @ (coefficients.double() / self.sizes)).T.reshape(-1)

    def coefficients(self, z: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch J O"]:
        rows = z.unflatten(-1, (len(self.sizes), -1)).mT
        return self.basis @ rows * self.sizes


def count_unknowns(field: LinearField, u: Float[Tensor, "N D"]) -> int:
    """Number of unknowns of :class:`Directions` for a field at states `u`."""
    return len(_combinations(field, u)[1]) * field.coefficients.shape[1]


def _combinations(
    field: LinearField, u: Float[Tensor, "N D"]
) -> tuple[Float[Tensor, " J"], Float[Tensor, " K"], Float[Tensor, "K J"]]:
    """Sizes of the features, and sizes and weights of the kept combinations."""
    some = u[:: max(1, len(u) // SAMPLES)]
    phi = field.features(some).reshape(-1, field.n_features)
    size = field.feature_sizes(some)
    size = size.clamp(min=ROUNDING * size.max().item())
    triangle = torch.linalg.qr(phi / size, mode="r").R
    _, s, vh = torch.linalg.svd(triangle, full_matrices=False)
    share = s / s[0].clamp(min=TINY)
    kept = share > SMALLEST
    return size, share[kept], vh[kept]


@dataclass(frozen=True)
class ProjectedStep:
    """Coefficients that are best with the states adapted to them.

    Attributes:
        coefficients: ``[J, O]``.
        effective: number of unknowns that the data determine.
        directions: the unknowns and their relation to the coefficients.
        root: ``root root^T`` is the covariance of the unknowns' errors, ``[P, P]``.
        log_weight: contribution to the evidence, see :class:`.evidence.Posterior`.
    """

    coefficients: Float[Tensor, "J O"]
    effective: float
    directions: Directions
    root: Float[Tensor, "P P"]
    log_weight: float

    def draw(
        self, count: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "count J O"]:
        """Draws from the distribution of the coefficients, given the data."""
        z = torch.randn(count, len(self.root), generator=generator, dtype=torch.float64)
        return self.coefficients + self.directions.coefficients(z @ self.root.T)


@torch.no_grad()
def projected_step(
    field: LinearField,
    problem: Problem,
    x: Float[Tensor, "N D"],
    *,
    window: int = WINDOW,
    ridge: float | None = None,
) -> ProjectedStep:
    """One Gauss-Newton step of the coefficients from states `x`.

    The record is cut into windows without overlap; the few links between them are left
    out. The prior of the unknowns is that of :func:`.evidence.posterior`.

    With the states' block ``S = L L^T`` of the normal equations, the mixed block M and
    the derivatives m of the steps, the information is ``m^T link m - Y^T Y`` with
    ``L Y = M``. The residuals of the steps are one more column of each and give the
    slope.

    Args:
        field: the field the states were smoothed with.
        problem: the data and the process noise, uncut.
        x: states in units of the noise, ``[N, D]``.
        window: samples in a window.
        ridge: precision of the prior; by default that of largest evidence.

    Raises:
        StepFailed: steps of the field, or the best coefficients, are not finite.
    """
    directions = Directions.of(field, problem, x)
    size = directions.n_unknowns
    cut = Windows.over(len(x), window, 0)
    total = torch.zeros(size + 1, size + 1, dtype=torch.float64)
    for windows in _chunks(cut, x, size):
        rows = cut.rows(windows)
        part, states = problem.cut(rows), x[rows]
        system, move, mixed = _bordered(
            field, directions, part, states, cut.own_links(windows)
        )
        weighted = move.mul_(part.link.sqrt()[..., None]).flatten(0, 2)
        left = system.solve_lower_(mixed).flatten(0, 2)
        total.addmm_(weighted.T, weighted).addmm_(left.T, left, alpha=-1)
    if not total.isfinite().all():
        raise StepFailed("steps of the field from the states are not finite")
    info, slope = total[:size, :size], total[:size, size]
    now = directions.unknowns(field.coefficients)
    found = posterior(info, slope + info @ now, directions.spread, ridge=ridge)
    heads = directions.coefficients(found.mean)
    if not heads.isfinite().all():
        raise StepFailed("the coefficients have no finite best values")
    return ProjectedStep(
        heads, found.effective, directions, found.root, found.log_weight
    )


@torch.no_grad()
def field_variance(
    field: LinearField,
    problem: Problem,
    x: Float[Tensor, "N D"],
    likely: ProjectedStep,
    *,
    window: int = WINDOW,
) -> Float[Tensor, "N D"]:
    """Variance of smoothed states that the errors of the coefficients cause.

    It adds to the variance of :func:`~wpnode_ext.smooth_states`, which assumes that the
    field is exact. Units are those of `x`.

    Args:
        field, problem, x, window: as in :func:`projected_step`.
        likely: the distribution of the coefficients.
    """
    cut = Windows.over(len(x), window, window // 2)
    variance, size = torch.zeros_like(x), len(likely.root)
    for windows in _chunks(cut, x, size):
        rows = cut.rows(windows)
        own = torch.ones(cut.length - 1, len(windows), 1, dtype=x.dtype)
        part = problem.cut(rows)
        system, _, mixed = _bordered(field, likely.directions, part, x[rows], own)
        # A change z of the unknowns changes the states by -S^-1 M z.
        answers = system.solve(mixed[..., :-1] @ likely.root)
        cut.take(variance, answers.square_().sum(-1), windows)
    return variance


def _chunks(cut: Windows, x: Tensor, size: int) -> tuple[Tensor, ...]:
    return cut.chunks(CHUNK // (cut.length * x.shape[1] * size))


def _bordered(
    field: LinearField,
    directions: Directions,
    part: Problem,
    x: Float[Tensor, "L B D"],
    own: Float[Tensor, "m B 1"],
) -> tuple[BlockCholesky, Float[Tensor, "m B D Q"], Float[Tensor, "L B D Q"]]:
    """Factor of the states' block, derivatives of the steps, and the mixed block.

    The last column of the derivatives holds the residuals of the steps, that of the
    mixed block the slope by the states, so that both are Q = P + 1 wide.
    """
    jump, slope = part.linearise(x)
    diagonal, lower, rhs = part.assemble(x, jump, slope)
    diagonal.diagonal(dim1=-2, dim2=-1).add_(LEAST_DAMPING)
    move = torch.cat(
        [_moves(field, directions, part, x, x[1:] - jump, own), jump[..., None]], -1
    )
    # A state is the end of one interval and the start of the next; `lower` is
    # -link dPsi/du.
    mixed = torch.zeros(*x.shape, move.shape[-1], dtype=x.dtype)
    torch.mul(part.link[..., None], move, out=mixed[1:])
    mixed[:-1] += lower.mT @ move
    mixed[..., -1] = -rhs
    return factor(diagonal, lower), move, mixed


def _moves(
    field: LinearField,
    directions: Directions,
    part: Problem,
    x: Float[Tensor, "L B D"],
    ahead: Float[Tensor, "m B D"],
    own: Float[Tensor, "m B 1"],
) -> Float[Tensor, "m B D P"]:
    """Derivative of ``Psi(x) = ahead`` by the unknowns, output by output.

    ``dPsi/dz = h (1 + h J / 2) features``, features by Simpson's rule: third order in
    h, enough for a Gauss-Newton step, whose size shrinks with its error.
    """
    d, sites = x.shape[-1], field.sites
    u, _, h = part.before(x)
    shape = (*x[1:].shape, directions.n_unknowns)
    if isinstance(part.step, ExponentialStep):
        move = part.step.sensitivity(u, h, directions.basis)
        move = (move / part.scale[:, None, None]) * directions.sizes[:, None]
        return move.reshape(shape) * own[..., None]
    end = (ahead * part.scale).reshape(u.shape)
    middle = (u + end) / 2
    mean = directions.mean_features(field, [u, middle, end], [1 / 6, 2 / 3, 1 / 6])
    mean *= (h * own.flatten())[:, None, None]
    grown = torch.eye(d, dtype=x.dtype) + h[:, None, None] / 2 * field.jacobian(middle)
    grown = (grown / part.scale[:, None]).reshape(len(u), d, sites, -1)
    grown = (grown * directions.sizes).mT.reshape(len(u), -1, sites)
    return (grown @ mean).reshape(shape)
