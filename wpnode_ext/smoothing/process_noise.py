"""How far a field errs from sample to sample, as the data see it."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..common.typing import Field
from ..data import Series
from .exponential_step import make_step
from .gauss_newton import Problem
from .smoother import as_problem
from .state_evidence import evidence_of_windows
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

    Steps of about half a decade are taken as long as the evidence, with the states
    integrated out (:mod:`.state_evidence`), grows: a field that is as good as exact
    errs far less than a smoother has to allow it, and states that could be anywhere in
    between would be told with too much doubt.

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
            known[number] = evidence_of_windows(
                scaled, states, max_iterations, tolerance
            )
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
