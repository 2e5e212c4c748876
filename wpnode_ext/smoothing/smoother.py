"""States between data and model: a banded Gauss-Newton smoother.

Minimises over the states ``u_0 .. u_{N-1}``::

    sum_n |(v_n - u_n) / sigma|^2 + sum_n |(u_{n+1} - Psi(u_n)) / process_noise|^2

with Psi the model followed over one sample interval. The first sum leaves out missing
values, the second the borders of series and gaps. docs/notes/refinement.md derives it.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..common.arrays import as_float64
from ..common.typing import Array, Field
from ..data import Series, as_series
from ..weak.segments import gap_free_runs
from .exponential_step import make_step
from .gauss_newton import Problem, Step, minimise
from .windows import Windows

# Numbers a block matrix of one chunk of windows may hold; about four such are alive.
CHUNK = 1 << 24
# Noise a component is given at least, as a share of its size: keeps units finite.
LEAST_NOISE = 1e-12


@dataclass(frozen=True)
class SmoothedStates:
    """What :func:`smooth_states` found.

    Attributes:
        states: float64 ``[N, *state]``.
        std: standard deviations of their errors under the model, ``[N, *state]``; None
            unless asked for. Errors of the field itself are not in them.
        innovation: root mean square of ``v - states`` over the values seen, in units of
            sigma, ``[*state]``. Slightly below 1 where model and sigma are right; well
            below where the states follow the noise, above where the model misses.
        iterations: Gauss-Newton steps of the window that took most.
        converged: which samples lie in windows that came to rest, ``[N]``.
    """

    states: Float[Tensor, "N ..."]
    std: Float[Tensor, "N ..."] | None
    innovation: Float[Tensor, "..."]
    iterations: int
    converged: Bool[Tensor, " N"]


@torch.no_grad()
def smooth_states(
    field: Field,
    v: Array | Series,
    *,
    sigma: Array | float,
    process_noise: Array | float,
    dt: float | None = None,
    t: Array | None = None,
    mask: Array | None = None,
    start: Array | None = None,
    error_bars: bool = True,
    method: str = "rk4_classic",
    substeps: int = 1,
    window: int = 1000,
    overlap: int = 200,
    max_iterations: int = 10,
    tolerance: float = 1e-4,
) -> SmoothedStates:
    """Most likely states given noisy observations and a model that is almost right.

    Weak-constraint smoothing: the model may err by `process_noise` from one sample to
    the next. Long records are cut into overlapping windows that are solved together,
    each by Gauss-Newton steps with Levenberg damping of its own, so that no step ever
    raises the sum it minimises. Time is linear in N, memory bounded.

    Args:
        field: callable ``field(t, u)``; ``field.jacobian(u)`` is used where it exists.
        v: observations, ``[N, *state]`` with NaN where missing, or a
            :class:`~wpnode_ext.data.Series` (then without `dt`, `t` and `mask`).
        sigma: standard deviation of the noise, a number or ``[*state]``.
        process_noise: standard deviation of the model's error over one median sample
            interval, a number or ``[*state]``; over others it grows like the square
            root of their length.
        dt, t, mask: as in :func:`~wpnode_ext.data.make_series`.

    Other Args:
        start: states to begin with, ``[N, *state]``; default the data themselves,
            missing values on the line between their neighbours.
        error_bars: also compute `std`, at the price of about one more step.
        method, substeps: fixed-step solver of the model, and its steps an interval.
            Where it would be unstable and the field is a linear one, an exponential
            step takes its place.
        window, overlap: samples of a window, and of these how many neighbours share.
            The influence of an end fades over about ``sigma / process_noise`` samples.
        max_iterations: steps after which a window counts as not converged.
        tolerance: a window has converged when the root mean square of its last step is
            below this share of sigma.
    """
    series = as_series(v, dt=dt, t=t, mask=mask)
    step = make_step(
        field, series.state_shape, series.dt, method=method, substeps=substeps
    )
    problem = as_problem(series, step, sigma, process_noise)
    given = series.v if start is None else as_float64(start, "start")
    if given.shape != series.v.shape or not given.isfinite().all():
        raise ValueError(
            f"`start` must be finite and have the shape {list(series.v.shape)} of `v`; "
            f"got {list(given.shape)}."
        )
    data, seen, scale = problem.data, problem.seen, problem.scale
    first = given.double().reshape(data.shape) / scale
    n = len(data)
    cut = Windows.over(n, window, overlap)
    size = max(1, CHUNK // (cut.length * data.shape[1] ** 2))
    states = torch.empty_like(data)
    std = torch.empty_like(data) if error_bars else None
    rested, iterations = torch.ones(n, 1, dtype=torch.bool), 0
    for windows in torch.arange(len(cut.starts)).split(size):
        rows = cut.rows(windows)
        part = problem.cut(rows)
        x, done, count, line = minimise(
            part, first[rows], max_iterations, tolerance, keep_line=error_bars
        )
        cut.take(states, x, windows)
        cut.take(rested, done[None, :, None].expand(cut.length, -1, -1), windows)
        iterations = max(iterations, count)
        if std is not None:
            cut.take(std, part.posterior_std(x, line), windows)
    misfit = ((data - states) * seen).square().sum(0) / seen.sum(0).clamp(min=1)
    return SmoothedStates(
        states=(states * scale).reshape(series.v.shape),
        std=None if std is None else (std * scale).reshape(series.v.shape),
        innovation=misfit.sqrt().reshape(series.state_shape),
        iterations=iterations,
        converged=rested[:, 0],
    )


def as_problem(
    series: Series, step: Step, sigma: Array | float, process_noise: Array | float
) -> Problem:
    """The sum to minimise over the states of a record; see :func:`smooth_states`."""
    n, state = series.n_samples, series.state_shape
    data = series.v.double().reshape(n, -1)
    scale = _per_component(sigma, state, "sigma")
    scale = scale.clamp(min=LEAST_NOISE * max(1e-300, data.abs().max().item()))
    weight = (scale / _per_component(process_noise, state, "process_noise")).square()
    steps, linked = _intervals(series)
    seen = torch.ones_like(data)
    if series.mask is not None:
        seen = (~series.mask.reshape(n, -1)).double()
    return Problem(
        step=step,
        data=data / scale,
        seen=seen,
        link=linked[:, None] * weight * _relative(steps, linked)[:, None],
        scale=scale,
        t=series.times,
        h=steps,
    )


def _per_component(
    value: Array | float, state: torch.Size, name: str
) -> Float[Tensor, " D"]:
    given = torch.as_tensor(value, dtype=torch.float64, device="cpu")
    if given.dim() > 0 and given.shape != state:
        raise ValueError(
            f"`{name}` must be a number or have shape {list(state)}; "
            f"got {list(given.shape)}."
        )
    low = 0.0 if name == "sigma" else torch.finfo(torch.float64).tiny
    if not (given >= low).all():
        rule = "not negative" if name == "sigma" else "positive"
        raise ValueError(f"`{name}` must be {rule}; got {given.min().item():g}.")
    return given.expand(state).flatten().clone()


def _intervals(series: Series) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
    """Lengths of the N - 1 intervals, and 1.0 where the model links their ends."""
    times = series.times
    linked = torch.zeros(len(times) - 1, dtype=torch.float64)
    runs = gap_free_runs(series.n_samples, lengths=series.lengths, t=series.t)
    for begin, stop in runs:
        linked[begin : stop - 1] = 1.0
    steps = times.diff()
    if series.dt is not None:
        steps = torch.full_like(steps, series.dt)
    # Intervals without a link carry no weight; a step of zero costs nothing there.
    return steps * linked, linked


def _relative(steps: Tensor, linked: Tensor) -> Float[Tensor, " m"]:
    """Median interval over each: the precision of a link of that length."""
    inside = steps[linked > 0]
    if len(inside) == 0:
        return torch.ones_like(steps)
    return torch.where(linked > 0, inside.median() / steps, torch.ones_like(steps))
