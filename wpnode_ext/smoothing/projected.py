"""Coefficients of a linear field by maximum likelihood, with the states eliminated.

A fit to smoothed states believes them, and they believe the field they were smoothed
with: alternating the two is slow, and the slower the smaller the process noise. Here
the states may follow the coefficients. One Gauss-Newton step of ::

    sum |(v - u) / sigma|^2 + sum |(u_{n+1} - Psi_theta(u_n)) / process_noise|^2

in states and coefficients together, from which the states are removed block by block.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..fields.linear import LinearField
from .block_tridiagonal import factor
from .directions import Directions
from .evidence import posterior
from .exponential_step import ExponentialStep
from .gauss_newton import LEAST_DAMPING, Problem, StepFailed
from .windows import Windows

# Numbers the right-hand sides of a chunk of windows may hold.
CHUNK = 1 << 23


@dataclass(frozen=True)
class ProjectedStep:
    """Coefficients that would be best with the states adapted to them.

    Attributes:
        coefficients: ``[J, O]``.
        effective: number of unknowns that the data determine.
        directions: the unknowns and what they mean for the coefficients.
        root: ``root root^T`` is the covariance of the unknowns' errors, ``[P, P]``.
        log_weight: what they add to the evidence, see :class:`.evidence.Posterior`.
    """

    coefficients: Float[Tensor, "J O"]
    effective: float
    directions: Directions
    root: Float[Tensor, "P P"]
    log_weight: float

    def draw(
        self, count: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "count J O"]:
        """Coefficients as likely as these, given the data."""
        z = torch.randn(count, len(self.root), generator=generator, dtype=torch.float64)
        return self.coefficients + self.directions.coefficients(z @ self.root.T)


@torch.no_grad()
def projected_step(
    field: LinearField,
    problem: Problem,
    x: Float[Tensor, "N D"],
    *,
    window: int = 400,
    ridge: float | None = None,
) -> ProjectedStep:
    """One Gauss-Newton step of the coefficients from states `x`.

    The record is cut into windows without overlap; the few links between them are left
    out. The unknowns are those of :class:`.directions.Directions`, their prior that of
    :func:`.evidence.posterior`.

    Args:
        field: the field the states were smoothed with.
        problem: the data and the process noise, uncut.
        x: states in units of the noise, ``[N, D]``.
        window: samples of a window.
        ridge: precision of the prior, instead of that of largest evidence.

    Raises:
        StepFailed: steps of the field, or the best coefficients, are not finite.
    """
    u = x * problem.scale
    linked = problem.h > 0
    speed = u.diff(dim=0)[linked] / problem.h[linked][:, None]
    directions = Directions.of(field, u, speed)
    size = directions.n_unknowns
    cut = Windows.over(len(x), window, 0)
    info, slope = torch.zeros(size, size).double(), torch.zeros(size).double()
    for windows in torch.arange(len(cut.starts)).split(_batch(cut, x, size)):
        rows = cut.rows(windows)
        own = cut.own_links(windows)
        part = problem.cut(rows)
        _add(field, directions, part, x[rows], own, info, slope)
    now = directions.unknowns(field.coefficients)
    if not (info.isfinite().all() and slope.isfinite().all()):
        raise StepFailed("steps of the field from the states are not finite")
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
    window: int = 400,
) -> Float[Tensor, "N D"]:
    """Variance of smoothed states that the errors of the coefficients cause.

    To be added to that of :func:`~wpnode_ext.smoothing.smooth_states`, which takes the
    field for granted. Units are those of `x`.

    Args:
        field, problem, x, window: as in :func:`projected_step`.
        likely: what is known of the coefficients.
    """
    cut = Windows.over(len(x), window, window // 2)
    variance, size = torch.zeros_like(x), len(likely.root)
    for windows in torch.arange(len(cut.starts)).split(_batch(cut, x, size)):
        rows = cut.rows(windows)
        own = torch.ones(cut.length - 1, len(windows), 1, dtype=x.dtype)
        part = problem.cut(rows)
        answers, _, _ = _answers(field, likely.directions, part, x[rows], own)
        cut.take(variance, (answers[..., :-1] @ likely.root).square().sum(-1), windows)
    return variance


def _batch(cut: Windows, x: Tensor, size: int) -> int:
    """Windows at a time."""
    return max(1, CHUNK // (cut.length * x.shape[1] * size))


def _add(
    field: LinearField,
    directions: Directions,
    part: Problem,
    x: Float[Tensor, "L B D"],
    own: Float[Tensor, "m B 1"],
    info: Tensor,
    slope: Tensor,
) -> None:
    """Adds the information of some windows about the unknowns, and its slope."""
    answers, mixed, moves = _answers(field, directions, part, x, own)
    jump, move = moves[..., -1:], moves[..., :-1]
    size = move.shape[-1]
    both = mixed.reshape(-1, size).T @ answers.reshape(-1, size + 1)
    weighted = (part.link[..., None] * move).reshape(-1, size)
    info += weighted.T @ move.reshape(-1, size) - both[:, :size]
    slope += weighted.T @ jump.reshape(-1) - both[:, size]


def _answers(
    field: LinearField,
    directions: Directions,
    part: Problem,
    x: Float[Tensor, "L B D"],
    own: Float[Tensor, "m B 1"],
) -> tuple[
    Float[Tensor, "L B D Q"], Float[Tensor, "L B D P"], Float[Tensor, "m B D Q"]
]:
    """How the states answer to the unknowns, and what that is made of.

    Returns:
        Inverse of the states' block of the normal equations times the mixed block and,
        in the last column, times the right-hand side; the mixed block; derivatives of
        the steps by the unknowns and, in the last column, what the steps miss.
    """
    jump, slope = part.linearise(x)
    diagonal, lower, rhs = part.assemble(x, jump, slope)
    diagonal.diagonal(dim1=-2, dim2=-1).add_(LEAST_DAMPING)
    move = _moves(field, directions, part, x, x[1:] - jump) * own[..., None]
    # Mixed derivatives: a state meets the unknowns as the end and as the start of
    # an interval; `lower` is -link dPsi/du.
    mixed = torch.zeros(*x.shape, move.shape[-1], dtype=x.dtype)
    mixed[1:] -= part.link[..., None] * move
    mixed[:-1] -= lower.mT @ move
    answers = factor(diagonal, lower).solve(torch.cat([mixed, rhs[..., None]], -1))
    return answers, mixed, torch.cat([move, jump[..., None]], -1)


def _moves(
    field: LinearField,
    directions: Directions,
    part: Problem,
    x: Float[Tensor, "L B D"],
    ahead: Float[Tensor, "m B D"],
) -> Float[Tensor, "m B D P"]:
    """Derivative of ``Psi(x) = ahead`` by the unknowns, output by output.

    ``dPsi/dz = h (1 + h J / 2) features``, features by Simpson's rule: third order
    in h, which costs a Gauss-Newton step nothing.
    """
    d, sites = x.shape[-1], field.sites
    u, _, h = part.before(x)
    shape = (*x[1:].shape, directions.n_unknowns)
    if isinstance(part.step, ExponentialStep):
        move = part.step.sensitivity(u, h, directions.basis)
        move = (move / part.scale[:, None, None]) * directions.sizes[:, None]
        return move.reshape(shape)
    end = (ahead * part.scale).reshape(u.shape)
    middle = (u + end) / 2
    mean = directions.mean_features(field, [u, middle, end], [1 / 6, 2 / 3, 1 / 6])
    mean *= h[:, None, None]
    grown = torch.eye(d, dtype=x.dtype) + h[:, None, None] / 2 * field.jacobian(middle)
    grown = (grown / part.scale[:, None]).reshape(len(u), d, sites, -1)
    grown = (grown * directions.sizes).permute(0, 3, 1, 2)
    return (grown @ mean[:, None]).transpose(1, 2).reshape(shape)
