"""States to start ensembles from: draws from what data and each member allow.

Of a field f and observations v the states are known up to a normal distribution: its
mean are the smoothed states, its precision the normal equations of the smoother. A
member of an ensemble has states of its own: smoothed with its field, then one draw.
Together they are draws of field and states given the data, with all their correlations:
errors of a chaotic system's state lie along few directions.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..common.arrays import as_float64
from ..common.typing import Array, Field
from ..data import Series
from .block_tridiagonal import factor
from .exponential_step import make_step
from .gauss_newton import LEAST_DAMPING, Problem, minimise
from .smoother import CHUNK, as_problem

# Of the smoothing, in units of the noise: far below the spread of the draws.
TOLERANCE = 1e-3


@torch.no_grad()
def likely_states(
    fields: Sequence[Field],
    series: Series,
    at: Int[Tensor, " B"],
    *,
    sigma: Array | float,
    process_noise: Array | float,
    start: Array,
    window: int = 400,
    max_iterations: int = 10,
    seed: int = 0,
) -> Float[Tensor, "M B ..."]:
    """A state for every field and sample, as likely as any given the data around it.

    Args:
        fields: the M members, callables ``field(t, u)``.
        series: observations; those before and after a sample tell its state.
        at: samples, ``[B]``.
        sigma, process_noise: as in :func:`~wpnode_ext.smoothing.smooth_states`.
        start: states to begin the smoothing with, ``[N, *state]``.
        window: samples around each one that are smoothed.
        max_iterations: steps of the smoothing.
        seed: of the draws.
    """
    n, state = series.n_samples, series.state_shape
    if len(at) and not (0 <= int(at.min()) and int(at.max()) < n):
        raise ValueError(
            f"`at` must lie in 0 .. {n - 1}; got {int(at.min())} .. {int(at.max())}."
        )
    length = min(window, n)
    first = (at - length // 2).clamp(0, n - length)
    rows = torch.arange(length)[:, None] + first
    given = as_float64(start, "start").reshape(n, -1)
    size = max(1, CHUNK // (length * given.shape[1] ** 2))
    chunks = rows.split(size, dim=1)
    # Fields that suit the same data are alike: what one found, the next begins with.
    paths = [given[part] for part in chunks]
    generator = torch.Generator().manual_seed(seed)
    members = []
    for field in fields:
        step = make_step(field, state, series.dt)
        problem = as_problem(series, step, sigma, process_noise)
        drawn = []
        for number, part in enumerate(chunks):
            here, begin = problem.cut(part), paths[number] / problem.scale
            x, draw = _draw(here, begin, max_iterations, generator)
            paths[number] = x * problem.scale
            drawn.append(draw * problem.scale)
        states = torch.cat(drawn, 1)[at - first, torch.arange(len(at))]
        members.append(states.reshape(-1, *state))
    return torch.stack(members)


def _draw(
    part: Problem,
    start: Float[Tensor, "L B D"],
    max_iterations: int,
    generator: torch.Generator,
) -> tuple[Float[Tensor, "L B D"], Float[Tensor, "L B D"]]:
    """Most likely path of each window and another one, in units of the noise."""
    x, _, _, line = minimise(part, start, max_iterations, TOLERANCE, keep_line=True)
    assert line is not None
    diagonal, lower, _ = part.assemble(x, *line)
    diagonal.diagonal(dim1=-2, dim2=-1).add_(LEAST_DAMPING)
    z = torch.randn(x.shape, generator=generator, dtype=x.dtype)
    return x, x + factor(diagonal, lower).solve_transposed(z)
