"""Rollouts for evaluation: float64, batched, robust to members that diverge."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from math import ceil

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..common.arrays import Array, Field, as_float64
from .exponential import Etdrk4, linear_part
from .runge_kutta import integrate

ADAPTIVE = ("dopri5", "bosh3")
FIXED_STEP = ("euler", "midpoint", "rk4", "rk4_classic", "etdrk4")
# Outputs between two checks for members that have diverged.
CHUNK = 64
# Shortest step of adaptive methods, as a share of the shortest interval of the times.
SHORTEST = 1e-10
# Replaces a field value that is not finite: adaptive steps reject it, and fixed steps
# carry the member out of every bound.
_HUGE = 1e30


@dataclass(frozen=True)
class RolloutResult:
    """States at the requested times.

    Attributes:
        u: ``[T, B, *state]``; NaN from the moment a member diverged.
        t: ``[T]``.
        diverged: which members left the bound, met a field that is not finite, or
            needed too many steps, ``[B]``.
        diverged_at: first requested time at which they had, ``[B]``; infinity for
            the others.
    """

    u: Float[Tensor, "T B ..."]
    t: Float[Tensor, " T"]
    diverged: Bool[Tensor, " B"]
    diverged_at: Float[Tensor, " B"]


@torch.no_grad()
def rollout(
    field: Field | nn.Module,
    u0: Float[Tensor, "B ..."],
    t: Array,
    *,
    method: str = "dopri5",
    rtol: float = 1e-9,
    atol: float = 1e-9,
    step: float | None = None,
    bound: float | None = None,
    max_steps: int = 2000,
    dtype: torch.dtype | None = torch.float64,
) -> RolloutResult:
    """Solves ``du/dt = field(t, u)`` from a batch of states, for evaluation.

    Adaptive methods take one step for the whole batch, short enough for each member:
    the error norm is the largest over the members, not their mean. A member that leaves
    the bound is frozen there, so that it cannot drag the common step to zero; the
    others go on as if it had not been there.

    Args:
        field: callable ``field(t, u)``. A module in another dtype is copied into
            `dtype`; it is not changed itself.
        u0: initial states, ``[B, *state]``.
        t: times, ``[T]``, increasing; the first is that of `u0`.
        method: adaptive "dopri5", "bosh3"; fixed-step "euler", "midpoint", "rk4",
            "rk4_classic", "etdrk4". As in torchdiffeq, whose solvers most of these are,
            "rk4" is the 3/8 rule; "rk4_classic", ours, has the classical weights 1, 2,
            2, 1. "etdrk4", ours too, is for stiff fields that ``torch.func.jvp`` can
            differentiate: it follows their linear part at the mean of `u0` exactly.

    Other Args:
        rtol, atol: tolerances of adaptive methods.
        step: longest step of fixed-step methods; default the distance of `t`. Every
            interval of `t` is cut into equal steps.
        bound: largest absolute value of a state that counts as bounded; default 100
            times the largest entry of `u0`, at least 100.
        max_steps: steps an adaptive method may take from one of the times to the next;
            members that need more count as diverged.
        dtype: of the computation; None keeps that of `u0`.
    """
    times = _checked_times(u0, t, method, step)
    u0 = u0.to(dtype or u0.dtype)
    if bound is None:
        bound = 100.0 * max(1.0, u0.abs().max().item() if u0.numel() else 1.0)
    field = in_dtype(field, u0.dtype)
    if method == "etdrk4":
        solve = _Exponential(field, times[0], u0, step)
    else:
        solve = _solver(method, rtol, atol, step, max_steps)
    run = _Run(field=field, solve=solve, bound=bound)
    u = u0.new_full((len(times), *u0.shape), float("nan"))
    u[0] = u0
    for first in range(0, len(times) - 1, CHUNK):
        last = min(first + CHUNK, len(times) - 1)
        members = u[first].flatten(1).isfinite().all(1).nonzero().flatten()
        if len(members) == 0:
            break
        states = run.chunk(u[first][members], times[first : last + 1])
        u[first + 1 : last + 1, members] = states
    bad = ~u.flatten(2).isfinite().all(2)
    diverged = bad.any(0)
    never = torch.full_like(times[:1], float("inf"))
    at = torch.where(diverged, times[bad.int().argmax(0)], never)
    return RolloutResult(u=u, t=times, diverged=diverged, diverged_at=at)


def _checked_times(
    u0: Float[Tensor, "B ..."], t: Array, method: str, step: float | None
) -> Float[Tensor, " T"]:
    """The times of a rollout as a tensor, after a check of its arguments."""
    if method not in ADAPTIVE + FIXED_STEP:
        raise ValueError(
            f"`method` must be one of {', '.join(ADAPTIVE + FIXED_STEP)}; "
            f"got {method!r}."
        )
    if u0.dim() < 2:
        raise ValueError(
            f"`u0` must have shape [B, *state]; got {list(u0.shape)}. "
            "Add a batch axis: u0[None]."
        )
    if not u0.isfinite().all():
        raise ValueError("`u0` must be finite; got NaN or infinity.")
    times = as_float64(t, "t").to(u0.device)
    if times.dim() != 1 or len(times) == 0 or (times.diff() <= 0).any():
        raise ValueError("`t` must be 1-D and strictly increasing.")
    if step is not None and not step > 0:
        raise ValueError(f"`step` must be positive; got {step}.")
    return times


_Solve = Callable[[Field, Tensor, Tensor], Tensor]


class _Run:
    """A field, its solver and the bound: shared by all chunks of a rollout."""

    def __init__(self, field: Field, solve: _Solve, bound: float) -> None:
        self.field, self.solve, self.bound = field, solve, bound

    def chunk(
        self, u0: Float[Tensor, "A ..."], t: Float[Tensor, " c"]
    ) -> Float[Tensor, "c-1 A ..."]:
        """States at ``t[1:]``, NaN where a member has diverged.

        If the solver needs too many steps, it solves for fewer members, then for fewer
        times, until one member is given up in one interval.
        """
        try:
            # Times from 0: beside late times short steps would lose their digits.
            u = self.solve(self._guarded(t[0]), u0, t - t[0])[1:]
        except AssertionError as error:
            if "max_num_steps" not in str(error):
                raise
            if len(u0) > 1:
                half = len(u0) // 2
                parts = [self.chunk(part, t) for part in (u0[:half], u0[half:])]
                return torch.cat(parts, dim=1)
            if len(t) == 2:
                return torch.full_like(u0, float("nan"))[None]
            half = len(t) // 2
            u = self.chunk(u0, t[: half + 1])
            if u[-1].isfinite().all():
                rest = self.chunk(u[-1], t[half:])
            else:
                rest = torch.full_like(u[:1], float("nan")).expand(
                    len(t) - 1 - half, *u.shape[1:]
                )
            return torch.cat([u, rest])
        inside = (u.abs() <= self.bound).flatten(2).all(2)
        still = inside.cummin(0).values
        return u.masked_fill(~_over_state(still, u), float("nan"))

    def _guarded(self, offset: Tensor) -> Field:
        """The field with finite values; members beyond the bound stay in place."""

        def guarded(t: Tensor, u: Float[Tensor, "A ..."]) -> Float[Tensor, "A ..."]:
            outside = ~(u.abs() <= self.bound).flatten(1).all(1)
            f = self.field(t + offset, u.masked_fill(_over_state(outside, u), 0.0))
            f = f.where(f.isfinite(), _HUGE)
            return f.masked_fill(_over_state(outside, f), 0.0)

        return guarded


def _over_state(flags: Tensor, u: Tensor) -> Tensor:
    return flags.reshape(*flags.shape, *(1,) * (u.dim() - flags.dim()))


def in_dtype(field: Field | nn.Module, dtype: torch.dtype) -> Field:
    """`field`, or a copy in `dtype` of a module in another dtype."""
    if not isinstance(field, nn.Module):
        return field
    tensors = [*field.parameters(), *field.buffers()]
    if all(x.dtype == dtype for x in tensors if x.is_floating_point()):
        return field
    return deepcopy(field).to(dtype)


def _solver(
    method: str, rtol: float, atol: float, step: float | None, max_steps: int
) -> _Solve:
    from torchdiffeq import odeint

    if method == "rk4_classic":
        return lambda f, u, t: _classic(f, u, t, step)
    if method in FIXED_STEP:
        options = {"grid_constructor": lambda _f, _u, t: _grid(t, step)}
        return lambda f, u, t: odeint(f, u, t, method=method, options=options)  # type: ignore[return-value]

    def largest_over_members(x: Float[Tensor, "A ..."]) -> Float[Tensor, ""]:
        return x.flatten(1).square().mean(1).max().sqrt()

    def adaptive(f: Field, u: Tensor, t: Tensor) -> Tensor:
        options = {
            "norm": largest_over_members,
            "max_num_steps": max_steps,
            # Steps end at the requested times: torchdiffeq's interpolation between
            # its steps is far less accurate than they are (bosh3: a hundred times).
            "step_t": t[1:],
            # Near points where the field is not finite steps become ever shorter; one
            # of this length is accepted whatever its error.
            "min_step": SHORTEST * t.diff().min().item(),
        }
        tolerances = {"rtol": rtol, "atol": atol}
        return odeint(f, u, t, method=method, options=options, **tolerances)  # type: ignore[return-value]

    return adaptive


def _substeps(length: float, step: float | None) -> int:
    return 1 if step is None else ceil(length / step - 1e-9)


def _grid(t: Float[Tensor, " c"], step: float | None) -> Float[Tensor, " g"]:
    pieces = [t[:1]]
    for begin, end in zip(t[:-1], t[1:], strict=True):
        count = _substeps((end - begin).item(), step)
        inner = begin + (end - begin) * torch.arange(1, count).to(t) / count
        # The exact end: torchdiffeq interpolates linearly between the nodes.
        pieces += [inner, end[None]]
    return torch.cat(pieces)


def _classic(
    f: Field, u: Float[Tensor, "A ..."], t: Float[Tensor, " c"], step: float | None
) -> Float[Tensor, "c A ..."]:
    states = [u]
    for begin, end in zip(t[:-1], t[1:], strict=True):
        count = _substeps((end - begin).item(), step)
        steps = [(end - begin) / count] * count
        states.append(integrate(f, states[-1], begin, steps, method="rk4_classic")[-1])
    return torch.stack(states)


class _Exponential:
    """Fixed steps by :class:`Etdrk4`, whose matrices are made once for each length."""

    def __init__(
        self, field: Field, t: Tensor, u0: Float[Tensor, "B ..."], step: float | None
    ) -> None:
        self.step = step
        self.linear = linear_part(field, t, u0.mean(0))
        self.schemes: dict[float, Etdrk4] = {}

    def __call__(
        self, f: Field, u: Float[Tensor, "A ..."], t: Float[Tensor, " c"]
    ) -> Float[Tensor, "c A ..."]:
        def flat(t: Tensor, w: Float[Tensor, "A D"]) -> Float[Tensor, "A D"]:
            return f(t, w.reshape(u.shape)).flatten(1)

        states = [u.flatten(1)]
        for begin, end in zip(t[:-1], t[1:], strict=True):
            count = _substeps((end - begin).item(), self.step)
            h = (end - begin) / count
            scheme, w = self._scheme(h.item()), states[-1]
            for number in range(count):
                w = scheme.advance(flat, begin + number * h, w)
            states.append(w)
        return torch.stack(states).reshape(-1, *u.shape)

    def _scheme(self, h: float) -> Etdrk4:
        # Differences of equidistant times differ in their last digits.
        h = float(f"{h:.10g}")
        if h not in self.schemes:
            self.schemes[h] = Etdrk4(self.linear, h)
        return self.schemes[h]
