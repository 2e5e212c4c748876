"""Evidence: density of the data with the states or the coefficients integrated out.

Laplace's method integrates the states out. Up to a constant, the logarithm of the
density is then ``(log det link - cost - log det H) / 2`` with the least cost and the
normal equations H at its minimum. It compares fields and process noises. The same
principle chooses the precision of a prior of linear unknowns.
"""

from dataclasses import dataclass
from itertools import groupby
from math import log

import torch
from jaxtyping import Float
from torch import Tensor

from ..common.arrays import Field
from ..data import Series
from .gauss_newton import Problem, Windows, minimise
from .smoother import as_problem
from .steps import make_step


@dataclass(frozen=True)
class EvidenceSettings:
    """Settings of the searches for the largest evidence.

    Attributes:
        decades: precisions of the prior that are compared first, in decades below the
            largest information.
        rounds: most iterations of the fixed point for the precision that follow.
        change: change of the logarithm of the precision below which they end.
        window: most samples in a window in which states are integrated out.
        iterations: most iterations of the smoothing before.
        tolerance: tolerance of that smoothing, in units of the noise; the error of the
            evidence is quadratic in it.
        levels: process noises that are compared, in units of the one of the problem.
        numbers: samples times entries of a state that this comparison uses, in evenly
            spread windows. With 4000 samples the logarithms at relevant levels differ
            by ten and more.
        chunk: most numbers in the blocks of the normal equations at a time.
    """

    decades: tuple[int, int] = (-2, 20)
    rounds: int = 100
    change: float = 1e-3
    window: int = 400
    iterations: int = 10
    tolerance: float = 1e-2
    levels: tuple[float, ...] = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
    numbers: int = 12_000
    chunk: int = 1 << 22


_DEFAULT = EvidenceSettings()


@dataclass(frozen=True)
class Posterior:
    """Distribution of linear unknowns given the data and a normal prior.

    Attributes:
        mean: ``[P]``.
        ridge: precision of the prior.
        effective: number of unknowns that the data determine.
        root: ``root root^T`` is the covariance, ``[P, P]``.
        log_weight: logarithm of the density of the data with the unknowns integrated
            out, minus its logarithm at their mean. Minus infinity without a prior.
    """

    mean: Float[Tensor, " P"]
    ridge: float
    effective: float
    root: Float[Tensor, "P P"]
    log_weight: float


def posterior(
    info: Float[Tensor, "P P"],
    right: Float[Tensor, " P"],
    spread: Float[Tensor, " P"],
    *,
    ridge: float | None = None,
    settings: EvidenceSettings = _DEFAULT,
) -> Posterior:
    """Solution of ``(info + ridge / spread^2) mean = right``.

    Without `ridge` the evidence chooses it (MacKay): at the maximum
    ``ridge = effective / |mean / spread|^2``. One precision serves all unknowns; with
    one for each size of direction, refinement ended at fields that explain noise.

    The solution uses the singular values of ``root diag(spread)`` with
    ``root^T root = info``, because the eigenvalues of its square would lose spreads of
    1e-8 to rounding.

    Args:
        info: symmetric, positive semidefinite.
        right: right-hand side; equals ``info @ unknowns`` for data without noise.
        spread: sizes of the unknowns under the prior, up to a factor.
        ridge: a precision to use instead of the one of largest evidence.
        settings: settings of the search for the precision.
    """
    values, vectors = torch.linalg.eigh((info + info.T) / 2)
    # In directions without information `right` is rounding, which a small ridge would
    # amplify. There the prior alone determines the unknowns.
    floor = len(values) * torch.finfo(values.dtype).eps * values.max().clamp(min=0)
    known = values > floor
    root = torch.where(known, values, 0.0).sqrt()
    seen = torch.where(known, vectors.T @ right / root, 0.0)
    left, sizes, axes = torch.linalg.svd(root[:, None] * vectors.T * spread)
    seen, values = sizes * (left.T @ seen), sizes.square()
    if ridge is None:
        ridge = _largest_evidence(values, seen, settings)
    back = spread[:, None] * axes.T
    weights = seen / (values + ridge)
    effective = (values / (values + ridge)).sum().item()
    narrowed = torch.log1p(values / ridge).sum() + ridge * weights.square().sum()
    return Posterior(
        mean=back @ weights,
        ridge=ridge,
        effective=effective,
        root=back / (values + ridge).sqrt(),
        log_weight=-narrowed.item() / 2,
    )


def _largest_evidence(
    values: Tensor, right: Tensor, settings: EvidenceSettings
) -> float:
    tiny = torch.finfo(values.dtype).tiny
    # The evidence may have several maxima, so a grid comes first: under a strong prior
    # flat features are linear.
    decades = torch.arange(*settings.decades, 0.5, dtype=values.dtype)[:, None]
    ridges = values.max().clamp(min=tiny**0.5) * 10**-decades
    explained = (right.square() / (values + ridges)).sum(1)
    narrowed = torch.log1p(values / ridges).sum(1)
    ridge = ridges[(explained - narrowed).argmax()].item()
    for _ in range(settings.rounds):
        before = ridge
        effective = (values / (values + ridge)).sum().item()
        size = (right / (values + ridge)).square().sum().item()
        ridge = max(effective, tiny) / max(size, tiny)
        if abs(log(ridge / before)) < settings.change:
            break
    return ridge


@torch.no_grad()
def state_evidence(
    problem: Problem,
    x: Float[Tensor, "N D"],
    *,
    window: int = _DEFAULT.window,
    tolerance: float = _DEFAULT.tolerance,
) -> float:
    """Logarithm of the evidence of a record, summed over independent windows.

    Args:
        problem: data, field and process noise, uncut.
        x: states in units of the noise.
        window: most samples in a window.
        tolerance: tolerance of the smoothing, in units of the noise.
    """
    # Each sample is in one window, so that none counts twice. The windows have at most
    # two lengths, the longer first.
    windows = torch.arange(len(x)).tensor_split(-(-len(x) // window))
    total = 0.0
    for length, equally_long in groupby(windows, len):
        many = max(1, _DEFAULT.chunk // (length * x.shape[1] ** 2))
        for rows in torch.stack(list(equally_long), 1).split(many, 1):
            total += evidence_of_windows(
                problem.cut(rows), x[rows], tolerance=tolerance
            )
    return total


def evidence_of_windows(
    part: Problem,
    x: Float[Tensor, "L B D"],
    max_iterations: int = _DEFAULT.iterations,
    tolerance: float = _DEFAULT.tolerance,
) -> float:
    """Sum of the windows' log densities; minus infinity if one is not defined."""
    found = minimise(part, x, max_iterations, tolerance, keep_line=True)
    assert found.line is not None
    system = part.precision(found.x, found.line)
    size = 2 * system.diagonal.diagonal(dim1=-2, dim2=-1).log().sum()
    links = part.link[part.link > 0].log().sum()
    cost = part.cost(found.x, found.line[0]).sum()
    total = (links - cost - size).item() / 2
    return total if system.positive.all() and total == total else -float("inf")


@torch.no_grad()
def likely_process_noise(
    problem: Problem,
    x: Float[Tensor, "N D"],
    *,
    settings: EvidenceSettings = _DEFAULT,
) -> float:
    """The process noise of largest evidence, in units of that of `problem`.

    The search steps by about half a decade while the evidence grows. The process noise
    that refinement needs is often far larger than the errors of a good field; with it
    the error bars of the states would be too wide.

    Args:
        problem: the data and the first process noise.
        x: states in units of the noise.
        settings: window, and the levels that are compared.
    """
    cut = Windows.over(len(x), settings.window, 0)
    levels, wanted = (
        settings.levels,
        max(1, settings.numbers // (cut.length * x.shape[1])),
    )
    picks = torch.linspace(0, len(cut.starts) - 1, min(wanted, len(cut.starts)))
    rows = cut.rows(picks.round().long())
    part, states = problem.cut(rows), x[rows]
    middle = levels.index(1.0)
    known: dict[int, float] = {}

    def evidence(number: int) -> float:
        if number not in known:
            scaled = part.with_process_noise(levels[number])
            known[number] = evidence_of_windows(scaled, states)
        return known[number]

    best = middle
    for way in (1, -1):
        while 0 <= best + way < len(levels) and evidence(best + way) > evidence(best):
            best += way
        if best != middle:
            break
    return levels[best]


def step_error(
    field: Field,
    series: Series,
    states: Float[Tensor, "N ..."],
    *,
    sigma: Float[Tensor, "..."],
    process_noise: Float[Tensor, "..."],
) -> Float[Tensor, "..."]:
    """Error of a field's steps from sample to sample, by largest evidence.

    Args:
        field: callable ``field(t, u)``.
        series: observations.
        states: estimates of the states, ``[N, *state]``.
        sigma: noise per component.
        process_noise: where the search begins, per component; the result is a multiple
            of it.
    """
    step = make_step(field, series.state_shape, series.dt)
    problem = as_problem(series, step, sigma, process_noise)
    x = states.reshape(problem.data.shape) / problem.scale
    return process_noise * likely_process_noise(problem, x)
