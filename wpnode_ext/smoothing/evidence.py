"""Linear unknowns with a normal prior whose precision the data choose."""

from dataclasses import dataclass
from math import log

import torch
from jaxtyping import Float
from torch import Tensor

# Rounds of the fixed point, and the change of the logarithm at which it rests.
ROUNDS, CHANGE = 100, 1e-3
# Precisions that are compared first: so many decades below the largest information.
DECADES = (-2, 20)


@dataclass(frozen=True)
class Posterior:
    """What information and prior say about the unknowns together.

    Attributes:
        mean: ``[P]``.
        ridge: precision of the prior.
        effective: number of unknowns that the data determine.
        root: ``root root^T`` is the covariance, ``[P, P]``.
        log_weight: logarithm of what the unknowns, integrated out, change a density of
            the data by that was taken at their mean: for every unknown the data
            determine, that its value was not known before. Minus infinity without a
            prior.
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
) -> Posterior:
    """Solution of ``(info + ridge / spread^2) mean = right``.

    Without `ridge` it is the one of the largest evidence (MacKay), where
    ``ridge = effective / |mean / spread|^2``. One precision serves all unknowns: with
    one for each size of direction the rounds of refinement came to rest at fields that
    explain noise.

    Of ``root diag(spread)`` with ``root^T root = info`` the singular values are taken,
    not of its square the eigenvalues: spreads of 1e-8 would be lost in that.

    Args:
        info: symmetric, positive semidefinite.
        right: ``info @ unknowns`` for data without noise.
        spread: sizes of the unknowns under the prior, up to a factor.
        ridge: the precision to take, instead.
    """
    values, vectors = torch.linalg.eigh((info + info.T) / 2)
    # Of directions without information `right` holds rounding only, which a small ridge
    # would blow up; the prior alone speaks of them.
    floor = len(values) * torch.finfo(values.dtype).eps * values.max().clamp(min=0)
    known = values > floor
    root = torch.where(known, values, 0.0).sqrt()
    seen = torch.where(known, vectors.T @ right / root, 0.0)
    left, sizes, axes = torch.linalg.svd(root[:, None] * vectors.T * spread)
    seen, values = sizes * (left.T @ seen), sizes.square()
    if ridge is None:
        ridge = _largest_evidence(values, seen)
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


def _largest_evidence(values: Tensor, right: Tensor) -> float:
    tiny = torch.finfo(values.dtype).tiny
    # It may have several maxima: under a strong prior flat features are linear.
    decades = torch.arange(*DECADES, 0.5, dtype=values.dtype)[:, None]
    ridges = values.max().clamp(min=tiny**0.5) * 10**-decades
    explained = (right.square() / (values + ridges)).sum(1)
    narrowed = torch.log1p(values / ridges).sum(1)
    ridge = ridges[(explained - narrowed).argmax()].item()
    for _ in range(ROUNDS):
        before = ridge
        effective = (values / (values + ridge)).sum().item()
        size = (right / (values + ridge)).square().sum().item()
        ridge = max(effective, tiny) / max(size, tiny)
        if abs(log(ridge / before)) < CHANGE:
            break
    return ridge
