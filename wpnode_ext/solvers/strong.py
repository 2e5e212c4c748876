"""Losses that solve the equation: the strong loss, and the weak loss with a penalty."""

from collections.abc import Sequence
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ..data import lay_end_to_end
from ..fields.base import FieldFunction, call_field
from ..weak.plan import WeakPlan
from ..weak.segments import window_starts
from .runge_kutta import TABLEAUX, integrate

Reduction = Literal["mean", "sum"]


def strong_loss(
    field: FieldFunction | nn.Module,
    v: Float[Tensor, "..."],
    *,
    dt: float | None = None,
    t: Float[Tensor, " N"] | None = None,
    window: int = 2,
    window_stride: int = 1,
    method: str = "dopri5",
    rtol: float = 1e-6,
    atol: float = 1e-6,
    dim: int = 0,
    lengths: Sequence[int] | None = None,
    mask: Bool[Tensor, "..."] | None = None,
    max_gap: float | None = None,
    f: Float[Tensor, "..."] | None = None,
    reduction: Reduction = "mean",
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
        dt: distance of uniform samples. Give either `dt` or `t`.
        t: times of the samples, ``[N]``; steps may differ from sample to sample.
        window: samples T of a window, ``T - 1`` of them predicted.
        window_stride: distance q_s between the starts of neighbouring windows.
        method: a torchdiffeq solver, or "rk4_classic". Steps end at the samples;
            adaptive methods subdivide them until `rtol` and `atol` are met.

    Other Args:
        dim: time axis; axes before it are a batch, axes after it are the state.
        lengths: lengths of several series laid end to end along `dim`.
        mask: True where a sample is missing, ``[N]``, ``[*batch, N]`` or the shape of
            `v`.
        max_gap: with `t`, longer steps end a window; default three median steps.
        f: ``field(t, v)`` where it is known already; the first Runge-Kutta stage.
        reduction: "mean" over windows and steps, or "sum" over them.
    """
    record = lay_end_to_end(
        v, dt=dt, t=t, dim=dim, lengths=lengths, mask=mask, max_gap=max_gap
    )
    starts = window_starts(record.runs, window, window_stride).to(v.device)
    if len(starts) == 0:
        raise ValueError(
            f"no window of {window} samples is free of gaps, missing samples and "
            "series borders; use a smaller `window`."
        )
    stage = None if f is None else f.reshape(record.v.shape)[starts]
    squares = windows_error(
        field,
        record.v,
        record.clock,
        starts,
        window=window,
        method=method,
        rtol=rtol,
        atol=atol,
        first_stage=stage,
    )
    if reduction not in ("mean", "sum"):
        raise ValueError(f"`reduction` must be 'mean' or 'sum'; got {reduction!r}.")
    return squares / (len(starts) * (window - 1)) if reduction == "mean" else squares


def weak_penalty_loss(
    field: FieldFunction | nn.Module,
    v: Float[Tensor, "..."],
    *,
    dt: float | None = None,
    t: Float[Tensor, " N"] | None = None,
    p: int = 8,
    ell: int = 50,
    q: int = 2,
    window: int = 2,
    lam: float = 0.5,
    window_stride: int = 1,
    method: str = "dopri5",
    rtol: float = 1e-6,
    atol: float = 1e-6,
    dim: int = 0,
    lengths: Sequence[int] | None = None,
    mask: Bool[Tensor, "..."] | None = None,
    max_gap: float | None = None,
    plan: WeakPlan | None = None,
) -> Float[Tensor, ""]:
    """``L_weak + lam * L_strong``, eq. (13), with both terms as means.

    `L_weak` is the mean over segments, `L_strong` the mean over windows and steps, of
    squared norms summed over the state; `lam` has a meaning for this choice only. For
    ``p = 8, ell = 50, dt = 0.01`` a constant error of the field weighs 225 times more
    in the weak term than in the strong one with ``window = 2``.

    The field is evaluated once at every sample: the weak term needs it there, and the
    strong term begins its first Runge-Kutta step with the same value.

    Args:
        field, v, dt, t: as in :func:`strong_loss`.
        p, ell, q: test function and segments, as in :func:`~wpnode_ext.weak_loss`.
        window: samples of a strong window; the paper uses 2 to 6.
        lam: weight of the strong term.

    Other Args:
        window_stride, method, rtol, atol, dim, lengths, mask, max_gap: as in
            :func:`strong_loss`.
        plan: the :class:`~wpnode_ext.WeakPlan` of `v`, if there is one already.
    """
    if plan is None:
        plan = WeakPlan(
            v,
            dt=dt,
            t=t,
            p=p,
            ell=ell,
            q=q,
            dim=dim,
            lengths=lengths,
            mask=mask,
            max_gap=max_gap,
        )
    record = lay_end_to_end(
        v, dt=dt, t=t, dim=dim, lengths=lengths, mask=mask, max_gap=max_gap
    )
    f = call_field(field, record.clock, record.v).reshape(v.shape)
    weak = plan.loss(f)
    if lam == 0.0:
        return weak
    strong = strong_loss(
        field,
        v,
        dt=dt,
        t=t,
        window=window,
        window_stride=window_stride,
        method=method,
        rtol=rtol,
        atol=atol,
        dim=dim,
        lengths=lengths,
        mask=mask,
        max_gap=max_gap,
        f=f,
    )
    return weak + lam * strong


def windows_error(
    field: FieldFunction | nn.Module,
    v: Float[Tensor, " N *state"],
    t: Float[Tensor, " N ..."],
    starts: Int[Tensor, " W"],
    *,
    window: int,
    method: str = "dopri5",
    rtol: float = 1e-6,
    atol: float = 1e-6,
    first_stage: Float[Tensor, " W *state"] | None = None,
) -> Float[Tensor, ""]:
    """Sum of squared errors over the windows that start at `starts`.

    Args:
        t: float64 times, broadcastable against `v`.
        first_stage: the field at the starts, if known.
        field, v, window, method, rtol, atol: as in :func:`strong_loss`.
    """
    targets = [v[starts + lead] for lead in range(1, window)]
    times = [t[starts + lead] for lead in range(window)]
    steps = [times[lead + 1] - times[lead] for lead in range(window - 1)]
    states = solve_windows(
        field,
        v[starts],
        times[0],
        steps,
        method=method,
        rtol=rtol,
        atol=atol,
        first_stage=first_stage,
    )
    error = [(u - w).square().sum() for u, w in zip(states, targets, strict=True)]
    return torch.stack(error).sum()


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
