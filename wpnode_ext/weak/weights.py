"""Quadrature weights, which turn the weak form into weighted sums of samples."""

from collections.abc import Sequence
from functools import lru_cache
from operator import index
from typing import Any, Literal, SupportsFloat, SupportsIndex

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..ops.backend import _C
from ..ops.checks import check_int64

Rule = Literal["auto", "linear", "spline"]


def segment_weights(
    p: int,
    ell: int,
    dt: SupportsFloat | None = None,
    *,
    t: ArrayLike | Tensor | None = None,
    d: int = 1,
    q: int = 1,
    starts: Sequence[int] | NDArray[np.integer] | Tensor | None = None,
    rule: Rule = "auto",
) -> tuple[Tensor, Tensor]:
    """Weights of the weak form with the test function ``phi(s) = (1 - s^2)^p``.

    A segment has ``ell + 1`` samples and the half length H in time, mapped to
    ``s in [-1, 1]``. With the basis ``L_i`` of the interpolation rule::

        w_rhs[i] = H * int L_i(s) phi(s) ds
        w_lhs[i] = (-1)^(d + 1) * H^(1 - d) * int L_i(s) phi^(d)(s) ds

    so that ``sum_i w_lhs[i] u_i + w_rhs[i] f_i`` is close to 0 (plus sign) when f is
    the d-th time derivative of u. All integrals are exact for the interpolant; on
    uniform samples each weight has a relative error below 1e-14 for p <= 32
    (d = 2: relative to the largest).

    Interpolation rules at irregular times:

    - "linear": piecewise linear, of second order. On uniform samples it is very
      accurate, because the errors of the two sums cancel.
    - "spline": a not-a-knot cubic spline through the samples of the segment, of fourth
      order. It swings where samples nearly coincide, and then amplifies noise.
    - "auto": the weights of `dt` if `t` is uniform, else "spline", or "linear" where
      the noise gain ``sum_i w_lhs[i]^2`` of the spline is over twice as large. Times
      are uniform if no step inside a segment differs from the mean step by more than
      1e-9 of it plus the rounding of the times, ``4 * eps * max|t|``.

    Args:
        p: exponent of the test function, from d to 64.
        ell: number of cells of a segment, even and >= 2.
        dt: distance of uniform samples. Give either `dt` or `t`.
        t: times of the samples, ``[N]``, strictly increasing within each segment.
        d: order of the differential equation, 1 or 2.
        q: distance between neighbouring segments, in samples.
        starts: first sample of each segment, ``[K]``; default ``range(0, N - ell, q)``.
            With `dt` neither `q` nor `starts` matters: segments share their weights.
        rule: "auto", "linear" or "spline".

    Returns:
        ``(w_lhs, w_rhs)`` in float64 on the CPU: ``[ell + 1]`` with `dt`,
        ``[K, ell + 1]`` with `t` (one row expanded when uniform weights are used).
        Cast them last, after all arithmetic that needs float64.

    Example:
        >>> w_lhs, w_rhs = segment_weights(8, 50, 0.01)
    """
    p, ell = _as_integer("p", p), _as_integer("ell", ell)
    d, q = _as_integer("d", d), _as_integer("q", q)
    _C.check_parameters(p, ell, d)
    if q < 1:
        raise ValueError(f"`q` must be an integer >= 1; got {q}.")
    if rule not in ("auto", "linear", "spline"):
        raise ValueError(f"`rule` must be 'auto', 'linear' or 'spline'; got {rule!r}.")
    if dt is not None and t is not None:
        raise ValueError("Only one of `dt` and `t` must be given; got both.")
    if t is not None:
        times, eps = _as_times(t, ell)
        first = _as_starts(starts, times, ell, q)
        steps = _steps_inside(times, first, ell)
        dt = _common_step(times, steps, eps) if rule == "auto" else None
        if dt is None:
            return _irregular_weights(times, p, ell, d, first, rule)
        shared = _uniform_weights(p, ell, dt, d)
        return shared[0].expand(len(first), -1), shared[1].expand(len(first), -1)
    if dt is None:
        raise ValueError("One of `dt` and `t` must be given; got neither.")
    if rule == "spline":
        raise ValueError(
            "`rule` must be 'auto' or 'linear' with `dt`; got 'spline'. "
            "Give the times as `t` to use the spline rule."
        )
    return _uniform_weights(p, ell, _as_float("dt", dt), d)


def uniform_step(
    t: ArrayLike | Tensor,
    ell: int,
    *,
    starts: Sequence[int] | NDArray[np.integer] | Tensor | None = None,
) -> float | None:
    """The step that all times inside the segments have, or None if steps differ.

    Args:
        t: times of the samples, ``[N]``, strictly increasing within each segment.
        ell: number of cells of a segment.
        starts: first sample of each segment, ``[K]``; by default every sample.
    """
    times, eps = _as_times(t, ell)
    first = _as_starts(starts, times, ell, 1)
    return _common_step(times, _steps_inside(times, first, ell), eps)


def shared_or_own_weights(
    p: int,
    ell: int,
    dt: float | None,
    t: Tensor | None,
    d: int,
    starts: Tensor | None,
    rule: Rule,
) -> tuple[Tensor, Tensor]:
    """Weights in float64: ``[ell + 1]`` if all segments share them, else a row each."""
    if torch.compiler.is_compiling() and t is None and dt is not None:
        return torch.ops.wpnode.segment_weights(p, ell, dt, d)
    rows = segment_weights(p, ell, dt, t=t, d=d, starts=starts, rule=rule)
    shared = all(w.dim() == 2 and w.stride(0) == 0 for w in rows)
    return (rows[0][0], rows[1][0]) if shared else rows


@torch.library.custom_op("wpnode::segment_weights", mutates_args=())
def _traced_weights(p: int, ell: int, dt: float, d: int) -> tuple[Tensor, Tensor]:
    """Uniform weights as an operator: tracing cannot enter the compiled module."""
    return segment_weights(p, ell, dt, d=d)


@_traced_weights.register_fake
def _(p: int, ell: int, dt: float, d: int) -> tuple[Tensor, Tensor]:
    return (
        torch.empty(ell + 1, dtype=torch.float64),
        torch.empty(ell + 1, dtype=torch.float64),
    )


def _irregular_weights(
    times: NDArray[np.float64],
    p: int,
    ell: int,
    d: int,
    starts: NDArray[np.int64],
    rule: Rule,
) -> tuple[Tensor, Tensor]:
    def build(rule: Rule) -> tuple[Tensor, Tensor]:
        w_lhs, w_rhs = _C.irregular_weights(p, ell, d, rule, times, starts)
        return torch.from_numpy(w_lhs), torch.from_numpy(w_rhs)

    if rule != "auto":
        return build(rule)
    spline, linear = build("spline"), build("linear")
    spline_gain, linear_gain = (
        w_lhs.square().sum(1, True) for w_lhs, _ in (spline, linear)
    )
    noisy = spline_gain > 2.0 * linear_gain
    w_lhs, w_rhs = (torch.where(noisy, *w) for w in zip(linear, spline, strict=True))
    return w_lhs, w_rhs


@lru_cache(maxsize=128)
def _cached_weights(p: int, ell: int, dt: float, d: int) -> tuple[Tensor, Tensor]:
    w_lhs, w_rhs = _C.uniform_weights(p, ell, dt, d)
    return torch.from_numpy(w_lhs), torch.from_numpy(w_rhs)


def _uniform_weights(p: int, ell: int, dt: float, d: int) -> tuple[Tensor, Tensor]:
    w_lhs, w_rhs = _cached_weights(p, ell, dt, d)
    return w_lhs.clone(), w_rhs.clone()


def _common_step(
    times: NDArray[np.float64], steps: NDArray[np.float64], eps: float
) -> float | None:
    """The mean step if all steps equal it up to the rounding of times, else None."""
    if len(steps) == 0:
        return None
    step = steps.mean()
    slack = 1e-9 * step + 4 * eps * np.abs(times).max()
    return float(step) if np.abs(steps - step).max() <= slack else None


def _steps_inside(
    times: NDArray[np.float64], starts: NDArray[np.int64], ell: int
) -> NDArray[np.float64]:
    """Steps that lie inside some segment, all checked to be positive."""
    cover = np.zeros(len(times), dtype=np.int64)
    np.add.at(cover, starts, 1)
    np.add.at(cover, starts + ell, -1)
    inside = np.cumsum(cover)[:-1] > 0
    steps = np.diff(times)
    backward = inside & (steps <= 0)
    if backward.any():
        i = backward.argmax() + 1
        raise ValueError(
            f"`t` must be strictly increasing; got {times[i]} at index {i} after "
            f"{times[i - 1]}. Sort the samples and merge repeated times."
        )
    return steps[inside]


def _as_times(t: ArrayLike | Tensor, ell: int) -> tuple[NDArray[np.float64], float]:
    """Checked times in float64, and the machine epsilon of the dtype they came in."""
    eps = float(np.finfo(np.float64).eps)
    if isinstance(t, Tensor):
        if t.is_complex():
            raise TypeError(f"`t` must hold real numbers; got {t.dtype}.")
        if t.is_floating_point():
            eps = max(eps, torch.finfo(t.dtype).eps)
        times = t.detach().cpu().to(torch.float64).numpy()
    else:
        given = np.asarray(t)
        if given.dtype.kind not in "iuf":
            raise TypeError(
                f"`t` must hold real numbers; got {given.dtype}. "
                "Convert dates to seconds since the first sample."
            )
        if given.dtype.kind == "f":
            eps = max(eps, float(np.finfo(given.dtype).eps))
        times = given.astype(np.float64)
    if times.ndim != 1:
        raise ValueError(f"`t` must be 1-D; got shape {list(times.shape)}.")
    if len(times) < ell + 1:
        raise ValueError(
            f"`t` has {len(times)} samples, fewer than the ell + 1 = {ell + 1} a "
            "segment needs; use a smaller `ell`."
        )
    infinite = ~np.isfinite(times)
    if infinite.any():
        i = infinite.argmax()
        raise ValueError(f"`t` must be finite; got {times[i]} at index {i}.")
    return times, eps


def _as_starts(
    starts: Any, times: NDArray[np.float64], ell: int, q: int
) -> NDArray[np.int64]:
    if starts is None:
        return np.arange(0, len(times) - ell, q, dtype=np.int64)
    given = starts.detach().cpu().numpy() if isinstance(starts, Tensor) else starts
    array = np.asarray(given)
    if array.dtype.kind not in "iu" and array.size > 0:
        raise TypeError(f"`starts` must hold integers; got {array.dtype}.")
    if array.ndim != 1:
        raise ValueError(f"`starts` must be 1-D; got shape {list(array.shape)}.")
    array = array.astype(np.int64)
    _C.check_starts(array, len(times), ell)
    return array


def _as_integer(name: str, value: SupportsIndex) -> int:
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"`{name}` must be an integer; got {value!r}.") from None
    check_int64(name, number)
    return number


def _as_float(name: str, value: SupportsFloat) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"`{name}` must be a number; got {value!r}.") from None
