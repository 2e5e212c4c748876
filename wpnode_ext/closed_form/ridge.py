"""Ridge solutions of a least-squares problem, and the choice of the ridge."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from .rows import Spectrum

Ridge = float | Literal["gcv"] | Sequence[float]

# Ridges tried by default: from nothing to the mean square of a column.
GRID: tuple[float, ...] = (0.0, *(10.0 ** (n / 2) for n in range(-40, 1)))

# Least share of degrees of freedom that the score assumes the fit leaves.
_FEWEST = 1e-3


@dataclass(frozen=True)
class RidgeChoice:
    """Generalised cross-validation over a grid of ridges.

    Attributes:
        ridge: the chosen one.
        grid, scores: the ridges that were compared and their scores; the smallest score
            is the best.
        freedom: effective number of coefficients under the chosen ridge.
    """

    ridge: float
    grid: tuple[float, ...]
    scores: tuple[float, ...]
    freedom: float


def ridge_solution(spectrum: Spectrum, ridge: float) -> Float[Tensor, "J O"]:
    """``argmin mean (A c - y)^2 + ridge |rms c|^2``.

    Directions with singular values within rounding of zero are left out. So without a
    ridge this is the solution of least norm.
    """
    s = spectrum.s
    gain = _shrinkage(spectrum, ridge) / torch.where(s > 0, s, 1.0)
    return (spectrum.v @ (gain[:, None] * spectrum.b)) / spectrum.rms[:, None]


def choose_ridge(
    spectrum: Spectrum,
    ridge: Ridge = "gcv",
    *,
    independent: float = 1.0,
    least: float = 0.0,
) -> RidgeChoice:
    """The ridge of smallest ``(|A c - y|^2 / n) / (1 - freedom / n)^2``.

    Here ``freedom = sum s^2 / (s^2 + ridge)``. The score is the mean over the columns
    of `y`, each divided by its mean square.

    Args:
        spectrum: of the least-squares problem.
        ridge: "gcv" for the default grid, a grid, or a single ridge.
        independent: share of the rows that count in n, because overlapping segments
            share noise.
        least: ridges below it are raised to it.
    """
    if isinstance(ridge, float | int):
        grid: tuple[float, ...] = (float(ridge),)
    elif isinstance(ridge, str):
        if ridge != "gcv":
            raise ValueError(
                f"`ridge` must be 'gcv', a number or numbers; got {ridge!r}."
            )
        grid = GRID
    else:
        grid = tuple(float(value) for value in ridge)
    if not grid or min(grid) < 0:
        raise ValueError(f"`ridge` must be >= 0; got {ridge}.")
    grid = tuple(sorted({max(value, least) for value in grid}))
    n = independent * spectrum.n_rows
    scores, freedoms = [], []
    for value in grid:
        freedom = _shrinkage(spectrum, value).sum().item()
        error = residuals(spectrum, value)[1].square().mean().item()
        scores.append(error / max(_FEWEST, 1 - freedom / n) ** 2)
        freedoms.append(freedom)
    best = min(range(len(grid)), key=scores.__getitem__)
    return RidgeChoice(grid[best], grid, tuple(scores), freedoms[best])


def residuals(
    spectrum: Spectrum, ridge: float
) -> tuple[Float[Tensor, " O"], Float[Tensor, " O"]]:
    """Root mean square of ``A c - y``, and its ratio to that of `y`."""
    lost = (1 - _shrinkage(spectrum, ridge))[:, None] * spectrum.b
    error = spectrum.rest + lost.square().sum(0)
    size = target_size(spectrum)
    return error.sqrt(), error.sqrt() / torch.where(size > 0, size, 1.0)


def target_size(spectrum: Spectrum) -> Float[Tensor, " O"]:
    """Root mean square of `y`."""
    return (spectrum.rest + spectrum.b.square().sum(0)).sqrt()


def _shrinkage(spectrum: Spectrum, ridge: float) -> Float[Tensor, " J"]:
    """Factor of each singular direction under the ridge, between 0 and 1."""
    squares = spectrum.s.square()
    resolved = spectrum.s > spectrum.resolution * spectrum.s.max()
    kept = squares / torch.where(resolved, squares + ridge, 1.0)
    return torch.where(resolved, kept, 0.0)
