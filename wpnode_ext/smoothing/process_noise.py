"""How far a field errs from sample to sample, as the data see it."""

import torch
from jaxtyping import Float
from torch import Tensor

from .._typing import Field
from ..data import Series
from .block_tridiagonal import factor
from .exponential_step import make_step
from .gauss_newton import LEAST_DAMPING, Problem, minimise
from .smoother import as_problem
from .windows import Windows

# Steps of the search, in units of the process noise it begins with.
LEVELS: tuple[float, ...] = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
# Samples times entries of a state that are looked at, in evenly spread windows.
NUMBERS = 100_000


@torch.no_grad()
def likely_process_noise(
    problem: Problem,
    x: Float[Tensor, "N D"],
    *,
    window: int = 400,
    max_iterations: int = 10,
    tolerance: float = 1e-2,
) -> float:
    """The process noise of largest evidence, in units of that of `problem`.

    Up to a constant the evidence of the data, the states integrated out by Laplace's
    method, is ``(log det link - cost - log det H) / 2`` for the least cost and the
    normal equations H there. Steps of about half a decade are taken as long as it
    grows: a field that is as good as exact errs far less than a smoother has to allow
    it, and states that could be anywhere in between would be told with too much doubt.

    Args:
        problem: the data, and the process noise that was assumed.
        x: states in units of the noise.
        window: samples of a window.
        max_iterations, tolerance: of the smoothing in each step.
    """
    cut = Windows.over(len(x), window, 0)
    wanted = max(1, NUMBERS // (cut.length * x.shape[1]))
    picks = torch.linspace(0, len(cut.starts) - 1, min(wanted, len(cut.starts)))
    rows = cut.rows(picks.round().long())
    part, states = problem.cut(rows), x[rows]
    middle = LEVELS.index(1.0)
    known: dict[int, float] = {}

    def evidence(number: int) -> float:
        if number not in known:
            scaled = part.with_process_noise(LEVELS[number])
            known[number] = _evidence(scaled, states, max_iterations, tolerance)
        return known[number]

    best = middle
    for way in (1, -1):
        while 0 <= best + way < len(LEVELS) and evidence(best + way) > evidence(best):
            best += way
        if best != middle:
            break
    return LEVELS[best]


def step_error(
    field: Field,
    series: Series,
    states: Float[Tensor, "N ..."],
    *,
    sigma: Float[Tensor, "..."],
    process_noise: Float[Tensor, "..."],
) -> Float[Tensor, "..."]:
    """How far steps of a field err from sample to sample: of largest evidence.

    Args:
        field: callable ``field(t, u)``.
        series: observations.
        states: what is known of them, ``[N, *state]``.
        sigma: noise per component.
        process_noise: where the search begins, per component; what is found is a
            multiple of it.
    """
    step = make_step(field, series.state_shape, series.dt)
    problem = as_problem(series, step, sigma, process_noise)
    x = states.reshape(problem.data.shape) / problem.scale
    return process_noise * likely_process_noise(problem, x)


def _evidence(
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
