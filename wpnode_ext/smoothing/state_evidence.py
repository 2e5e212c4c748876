"""How likely observations are under a field, whatever the states were.

Up to a constant, the logarithm of the density of the data with the states integrated
out by Laplace's method is ``(log det link - cost - log det H) / 2`` for the least cost
and the normal equations H there. Fields and process noises are compared by it.
"""

from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor

from .block_tridiagonal import factor
from .gauss_newton import LEAST_DAMPING, Problem, minimise

# Numbers that the blocks of the normal equations of some windows may hold.
CHUNK = 1 << 22


@torch.no_grad()
def state_evidence(
    problem: Problem,
    x: Float[Tensor, "N D"],
    *,
    window: int = 400,
    max_iterations: int = 10,
    tolerance: float = 1e-2,
) -> float:
    """Logarithm of the evidence of a record, in windows that know nothing of another.

    Args:
        problem: data, field and process noise, uncut.
        x: states in units of the noise.
        window: most samples of a window.
        max_iterations, tolerance: of the smoothing of each.
    """
    # Every sample in one window: none may count twice. Two lengths, the longer first.
    windows = torch.arange(len(x)).tensor_split(-(-len(x) // window))
    total = 0.0
    for length, alike in groupby(windows, len):
        many = max(1, CHUNK // (length * x.shape[1] ** 2))
        for rows in torch.stack(list(alike), 1).split(many, 1):
            total += evidence_of_windows(
                problem.cut(rows), x[rows], max_iterations, tolerance
            )
    return total


def evidence_of_windows(
    part: Problem, x: Float[Tensor, "L B D"], max_iterations: int, tolerance: float
) -> float:
    """Sum over the windows; minus infinity where one has none."""
    x, _, _, line = minimise(part, x, max_iterations, tolerance, keep_line=True)
    assert line is not None
    diagonal, lower, _ = part.assemble(x, *line)
    diagonal.diagonal(dim1=-2, dim2=-1).add_(LEAST_DAMPING)
    found = factor(diagonal, lower)
    size = 2 * found.diagonal.diagonal(dim1=-2, dim2=-1).log().sum()
    links = part.link[part.link > 0].log().sum()
    total = (links - part.cost(x, line[0]).sum() - size).item() / 2
    return total if found.positive.all() and total == total else -float("inf")
