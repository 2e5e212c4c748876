"""Gauss-Newton smoother: most likely states given data and a model.

Minimises over the states ``u_0 .. u_{N-1}``::

    sum_n |(v_n - u_n) / sigma|^2 + sum_n |(u_{n+1} - Psi(u_n)) / process_noise|^2

Psi is the model integrated over one sample interval. The first sum leaves out missing
values, the second the borders of series and gaps. docs/notes/refinement.md derives it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..common.arrays import Array, Field, as_float64
from ..data import Series, as_series
from ..weak.segments import gap_free_runs
from .gauss_newton import Problem, Windows, minimise
from .steps import Step, make_step

# Most numbers in a block matrix of one chunk of windows; about four exist at a time.
CHUNK = 1 << 24
# Least noise of a component, as a share of its size, which keeps units finite.
LEAST_NOISE = 1e-12


@dataclass(frozen=True)
class Smoothing:
    """Settings of a smoother.

    Attributes:
        error_bars: whether the states' standard deviations are computed, which costs
            about one more step.
        method, substeps: fixed-step solver of the model, and its steps in an interval.
            Where it would be unstable and the field is a linear one, an exponential
            step takes its place.
        window, overlap: samples in a window, and samples that neighbours share. The
            influence of an end fades over about ``sigma / process_noise`` samples.
        max_iterations: steps after which a window counts as not converged.
        tolerance: a window has converged when the root mean square of its last step is
            below this share of sigma. Gauss-Newton steps shrink so fast that errors
            after the last one are far smaller.
    """

    error_bars: bool = True
    method: str = "rk4_classic"
    substeps: int = 1
    window: int = 1000
    overlap: int = 200
    max_iterations: int = 10
    tolerance: float = 1e-4


@dataclass(frozen=True)
class SmoothedStates:
    """States found by :func:`smooth_states`.

    Attributes:
        states: float64 ``[N, *state]``.
        std: standard deviations of their errors under the model, ``[N, *state]``, or
            None. They do not include errors of the field itself.
        innovation: root mean square of ``v - states`` over the observed values, in
            units of sigma, ``[*state]``. Slightly below 1 where model and sigma are
            right, well below where the states follow the noise, and above where the
            model is wrong.
        iterations: largest number of Gauss-Newton steps of any window.
        converged: mask of the samples in windows that converged, ``[N]``.
    """

    states: Float[Tensor, "N ..."]
    std: Float[Tensor, "N ..."] | None
    innovation: Float[Tensor, "..."]
    iterations: int
    converged: Bool[Tensor, " N"]


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
    **settings: Any,
) -> SmoothedStates:
    """Most likely states given noisy observations and an almost correct model.

    Weak-constraint smoothing: the model may err by `process_noise` from one sample to
    the next. Long records are cut into overlapping windows that are solved together.
    Each has its own Levenberg damping, so that no Gauss-Newton step raises its cost.
    Time is linear in N, memory is bounded.

    Args:
        field: callable ``field(t, u)``; ``field.jacobian(u)`` is used where it exists.
        v: observations, ``[N, *state]`` with NaN where missing, or a
            :class:`~wpnode_ext.data.Series` (then without `dt`, `t` and `mask`).
        sigma: standard deviation of the noise, a number or ``[*state]``.
        process_noise: standard deviation of the model's error over one median sample
            interval, a number or ``[*state]``. It grows with the square root of the
            length of the interval.
        dt, t, mask: as in :func:`~wpnode_ext.data.make_series`.
        start: first states, ``[N, *state]``; by default the data, with missing values
            interpolated linearly.
        **settings: the fields of :class:`Smoothing`: `error_bars`, `method`,
            `substeps`, `window`, `overlap`, `max_iterations`, `tolerance`.
    """
    series, how = as_series(v, dt=dt, t=t, mask=mask), Smoothing(**settings)
    step = make_step(
        field, series.state_shape, series.dt, method=how.method, substeps=how.substeps
    )
    problem = as_problem(series, step, sigma, process_noise)
    given = series.v if start is None else as_float64(start, "start")
    if given.shape != series.v.shape or not given.isfinite().all():
        raise ValueError(
            f"`start` must be finite and have the shape {list(series.v.shape)} of `v`; "
            f"got {list(given.shape)}."
        )
    first = given.double().reshape(problem.data.shape) / problem.scale
    found = _smooth(problem, first, how)
    std, shape = found.std, series.v.shape
    return SmoothedStates(
        states=(found.states * problem.scale).reshape(shape),
        std=None if std is None else (std * problem.scale).reshape(shape),
        innovation=found.innovation.reshape(series.state_shape),
        iterations=found.iterations,
        converged=found.converged,
    )


@torch.no_grad()
def _smooth(
    problem: Problem, first: Float[Tensor, "N D"], how: Smoothing
) -> SmoothedStates:
    """States of a whole record, window by window, in units of the noise."""
    n, d = problem.data.shape
    cut = Windows.over(n, how.window, how.overlap)
    states = torch.empty_like(problem.data)
    std = torch.empty_like(states) if how.error_bars else None
    converged, iterations = torch.ones(n, 1, dtype=torch.bool), 0
    for windows in cut.chunks(CHUNK // (cut.length * d**2)):
        rows = cut.rows(windows)
        part = problem.cut(rows)
        found = minimise(
            part,
            first[rows],
            how.max_iterations,
            how.tolerance,
            keep_line=how.error_bars,
        )
        cut.take(states, found.x, windows)
        done = found.converged[None, :, None].expand(cut.length, -1, -1)
        cut.take(converged, done, windows)
        iterations = max(iterations, found.iterations)
        if std is not None:
            blocks = part.precision(found.x, found.line).inverse_diagonal()
            cut.take(std, blocks.diagonal(dim1=-2, dim2=-1).sqrt(), windows)
    seen = problem.seen
    misfit = ((problem.data - states) * seen).square().sum(0) / seen.sum(0).clamp(min=1)
    return SmoothedStates(states, std, misfit.sqrt(), iterations, converged[:, 0])


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
    seed: int = 0,
) -> Float[Tensor, "M B ..."]:
    """Draws of a state for every field and sample, given the data around the sample.

    Given a field and observations, the states have a normal distribution. Its mean are
    the smoothed states, its precision is the matrix of the smoother's normal equations.
    The data are smoothed with each field, and one state is drawn for it. So field and
    state are drawn jointly with all correlations, which matter because errors of a
    chaotic system's state lie along few directions.

    Args:
        fields: the M members of an ensemble, callables ``field(t, u)``.
        series: observations; those before and after a sample determine its state.
        at: indices of the samples, ``[B]``.
        sigma, process_noise: as in :func:`~wpnode_ext.smooth_states`.
        start: first states of the smoothing, ``[N, *state]``.
        window: number of samples around each one that are smoothed.
        seed: seed of the draws.
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
    # Fields for the same data are similar, so each starts at the last one's states.
    paths = [given[part] for part in chunks]
    generator = torch.Generator().manual_seed(seed)
    members = []
    for field in fields:
        step = make_step(field, state, series.dt)
        problem = as_problem(series, step, sigma, process_noise)
        drawn = []
        for number, part in enumerate(chunks):
            here, begin = problem.cut(part), paths[number] / problem.scale
            x, draw = _draw(here, begin, generator)
            paths[number] = x * problem.scale
            drawn.append(draw * problem.scale)
        states = torch.cat(drawn, 1)[at - first, torch.arange(len(at))]
        members.append(states.reshape(-1, *state))
    return torch.stack(members)


def _draw(
    part: Problem, start: Float[Tensor, "L B D"], generator: torch.Generator
) -> tuple[Float[Tensor, "L B D"], Float[Tensor, "L B D"]]:
    """Most likely path of each window and a draw around it, in units of the noise."""
    # This tolerance is far below the spread of the draws.
    found = minimise(part, start, max_iterations=10, tolerance=1e-3, keep_line=True)
    z = torch.randn(found.x.shape, generator=generator, dtype=found.x.dtype)
    return found.x, found.x + part.precision(found.x, found.line).solve_transposed(z)


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
