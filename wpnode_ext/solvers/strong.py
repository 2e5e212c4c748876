"""Losses that solve the equation: the strong loss, and the weak loss with a penalty."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, TypedDict, Unpack, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..data import lay_end_to_end
from ..fields.base import FieldFunction, call_field
from ..weak.plan import WeakPlan
from ..weak.segments import window_starts
from .runge_kutta import TABLEAUX, integrate

Reduction = Literal["mean", "sum"]


class Layout(TypedDict, total=False):
    """How observations lie in a tensor, as keywords of the losses.

    Attributes:
        dt: distance of uniform samples. Give either `dt` or `t`.
        t: times of the samples, ``[N]``; steps may differ from sample to sample.
        dim: time axis, default 0; axes before it are a batch, axes after it the state.
        lengths: lengths of several series laid end to end along `dim`.
        mask: True where a sample is missing, ``[N]``, ``[*batch, N]`` or the shape of
            the observations.
        max_gap: with `t`, longer steps end a window; default three median steps.
    """

    dt: float | None
    t: Float[Tensor, " N"] | None
    dim: int
    lengths: Sequence[int] | None
    mask: Bool[Tensor, "..."] | None
    max_gap: float | None


class Windows(Layout, total=False):
    """Keywords of a strong loss: those of :class:`Layout` and these.

    Attributes:
        window_stride: distance q_s between the starts of neighbouring windows; default
            1.
        method: a torchdiffeq solver, default "dopri5", or "rk4_classic". Steps end at
            the samples; adaptive methods subdivide them until the tolerances are met.
        rtol, atol: tolerances of adaptive methods; default 1e-6.
    """

    window_stride: int
    method: str
    rtol: float
    atol: float


class Solver(TypedDict):
    """Keywords of :func:`solve_windows`."""

    method: str
    rtol: float
    atol: float


def strong_loss(
    field: FieldFunction | nn.Module,
    v: Float[Tensor, "..."],
    *,
    window: int = 2,
    f: Float[Tensor, "..."] | None = None,
    reduction: Reduction = "mean",
    **options: Unpack[Windows],
) -> Float[Tensor, ""]:
    """Squared distance between data and solutions that start on the data, eq. (4).

    For windows that start at the samples ``n = 0, q_s, 2 q_s, ...`` this is ::

        mean over n and j = 1 .. T - 1 of |v[n + j] - u_hat(t[n + j])|^2

    with ``u_hat(t[n]) = v[n]``, the squared norm summed over the state. No window
    crosses the border of a series, a missing sample or a gap in time. Gradients pass
    through the solver's steps.

    Args:
        field: callable ``field(t, u)``, batched over the leading axes of `u`.
        v: observations, ``[*batch, N, *state]``.
        window: samples T of a window, ``T - 1`` of them predicted.
        f: ``field(t, v)`` where it is known already; the first Runge-Kutta stage.
        reduction: "mean" over windows and steps, or "sum" over them.
        **options: `dt` or `t`, `dim`, `lengths`, `mask` and `max_gap`, see
            :class:`Layout`; `window_stride`, `method`, `rtol` and `atol`, see
            :class:`Windows`.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f"`reduction` must be 'mean' or 'sum'; got {reduction!r}.")
    stride = options.pop("window_stride", 1)
    solver: Solver = {
        "method": options.pop("method", "dopri5"),
        "rtol": options.pop("rtol", 1e-6),
        "atol": options.pop("atol", 1e-6),
    }
    series = lay_end_to_end(v, **cast(Layout, options))
    starts = window_starts(series.runs, window, stride).to(v.device)
    if len(starts) == 0:
        raise ValueError(
            f"no window of {window} samples is free of gaps, missing samples and "
            "series borders; use a smaller `window`."
        )
    stage = None if f is None else f.reshape(series.v.shape)[starts]
    targets = [series.v[starts + lead] for lead in range(1, window)]
    times = [series.clock[starts + lead] for lead in range(window)]
    steps = [after - before for before, after in pairwise(times)]
    states = solve_windows(
        field, series.v[starts], times[0], steps, first_stage=stage, **solver
    )
    errors = [(u - w).square().sum() for u, w in zip(states, targets, strict=True)]
    squares = torch.stack(errors).sum()
    return squares / (len(starts) * (window - 1)) if reduction == "mean" else squares


def weak_penalty_loss(
    field: FieldFunction | nn.Module,
    v: Float[Tensor, "..."],
    *,
    p: int = 8,
    ell: int = 50,
    q: int = 2,
    window: int = 2,
    lam: float = 0.5,
    plan: WeakPlan | None = None,
    **options: Unpack[Windows],
) -> Float[Tensor, ""]:
    """``L_weak + lam * L_strong``, eq. (13), with both terms as means.

    `L_weak` is the mean over segments, `L_strong` the mean over windows and steps, of
    squared norms summed over the state; `lam` has a meaning for this choice only. For
    ``p = 8, ell = 50, dt = 0.01`` a constant error of the field weighs 225 times more
    in the weak term than in the strong one with ``window = 2``.

    The field is evaluated once at every sample: the weak term needs it there, and the
    strong term begins its first Runge-Kutta step with the same value.

    Args:
        field: callable ``field(t, u)``, batched over the leading axes of `u`.
        v: observations, ``[*batch, N, *state]``.
        p, ell, q: test function and segments, as in :func:`~wpnode_ext.weak_loss`.
        window: samples of a strong window; the paper uses 2 to 6.
        lam: weight of the strong term.
        plan: the :class:`~wpnode_ext.WeakPlan` of `v`, if there is one already.
        **options: `dt` or `t` and the other options of :func:`strong_loss`.
    """
    given: dict[str, Any] = dict(options)
    layout = {name: given[name] for name in Layout.__annotations__ if name in given}
    if plan is None:
        plan = WeakPlan(v, p=p, ell=ell, q=q, **layout)
    series = lay_end_to_end(v, **layout)
    f = call_field(field, series.clock, series.v).reshape(v.shape)
    weak = plan.loss(f)
    if lam == 0.0:
        return weak
    return weak + lam * strong_loss(field, v, window=window, f=f, **options)


def solve_windows(
    field: FieldFunction | nn.Module,
    u: Float[Tensor, " W *state"],
    t: Float[Tensor, "..."],
    steps: list[Float[Tensor, "..."]],
    *,
    method: str = "dopri5",
    rtol: float = 1e-6,
    atol: float = 1e-6,
    first_stage: Float[Tensor, " W *state"] | None = None,
) -> list[Float[Tensor, " W *state"]]:
    """States at the ends of successive intervals, see :func:`runge_kutta.integrate`.

    Solvers that this package does not have are torchdiffeq's, on the unit interval.
    """

    def timed(t: Tensor, u: Tensor) -> Tensor:
        return call_field(field, t, u)

    if method in TABLEAUX:
        return integrate(
            timed,
            u,
            t,
            steps,
            method=method,
            rtol=rtol,
            atol=atol,
            first_stage=first_stage,
        )
    from torchdiffeq import odeint

    states = []
    unit = torch.tensor([0.0, 1.0], dtype=u.dtype, device=u.device)
    for h in steps:

        def scaled(s: Tensor, u: Tensor, t: Tensor = t, h: Tensor = h) -> Tensor:
            return h.to(u.dtype) * timed(t + s * h, u)

        path = odeint(scaled, u, unit, method=method, rtol=rtol, atol=atol)
        u, t = cast(Tensor, path)[1], t + h
        states.append(u)
    return states
