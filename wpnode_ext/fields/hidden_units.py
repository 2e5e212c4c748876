"""Weights of hidden units that are curved where the data are."""

import torch
from jaxtyping import Float
from torch import Tensor

# Where tanh is curved and not yet flat: inputs of a unit stay between these, in size.
CURVED = (0.4, 3.5)
# A direction in which the box has no extent may have any length.
_UNBOUNDED = 1e6


def hit_and_run(
    low: Float[Tensor, " D"],
    high: Float[Tensor, " D"],
    n_rows: int,
    *,
    bounds: tuple[float, float] = CURVED,
    steepness: float = 1.0,
    generator: torch.Generator | None = None,
) -> tuple[Float[Tensor, "R D"], Float[Tensor, " R"]]:
    """Weights and biases with ``bounds[0] <= |w u + b| <= bounds[1]`` in a box.

    The bias is uniform between the bounds, the direction of `w` is that of a normal
    vector, and its length is uniform up to `steepness` times the largest for which the
    property holds at every point of the box ``low <= u <= high``.

    Returns:
        float64 weights ``[R, D]`` and biases ``[R]``.
    """
    low, high = low.double().cpu(), high.double().cpu()
    if low.shape != high.shape or low.dim() != 1 or not (low <= high).all():
        raise ValueError(
            "`low` and `high` must be vectors of one size with low <= high; "
            f"got shapes {list(low.shape)} and {list(high.shape)}."
        )
    if not 0 < steepness <= 1:
        raise ValueError(
            f"`steepness` must be above 0 and at most 1; got {steepness}. Longer "
            "weights would take units out of their bounds."
        )
    inner, outer = bounds
    options = {"generator": generator, "dtype": torch.float64}
    b = inner + (outer - inner) * torch.rand(n_rows, **options)
    direction = torch.randn(n_rows, len(low), **options)
    direction = direction / direction.norm(dim=1, keepdim=True)
    upward = direction > 0
    largest = (direction * torch.where(upward, high, low)).sum(1)
    smallest = (direction * torch.where(upward, low, high)).sum(1)
    free = torch.full_like(b, _UNBOUNDED)
    above = torch.where(largest > 0, (outer - b) / largest, free)
    below = torch.where(smallest < 0, (inner - b) / smallest, free)
    longest = steepness * torch.minimum(above, below).clamp(max=_UNBOUNDED)
    length = torch.rand(n_rows, **options) * longest
    sign = torch.randint(0, 2, (n_rows,), generator=generator).double() * 2 - 1
    return sign[:, None] * length[:, None] * direction, sign * b
