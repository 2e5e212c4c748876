"""The compiled operators as differentiable functions of ``[B, N, D]`` tensors.

Three of them are the partial derivatives of one trilinear form,

    T(x, w, y) = sum_{b,k,i,d} y[b, k, d] * w[(k,) i] * x[b, s_k + i, d],

``corr = dT/dy``, ``corr_t = dT/dx``, ``corr_w = dT/dw``: differentiating any of them
gives the other two, hence derivatives of every order. The fourth, `squared_residual`,
fuses ``sum (lhs + corr(f, w))^2`` and its gradient into one pass over ``f``.

Segments start at ``s_k = k q`` or, where `starts` is given, at ``starts[k]``
(int64, non-decreasing). Weights are one vector ``[ell + 1]`` or one row a segment
``[K, ell + 1]``, in the dtype sums are taken in: float64 for float64 series, float32
for float32, bfloat16 and float16. Under autocast series are promoted to float32.

Results have the same bits for any number of threads.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from . import autograd, fused
from .checks import check_int64, check_segments, check_series, check_weights


def corr(
    x: Float[Tensor, "B N D"],
    w: Float[Tensor, "..."],
    *,
    q: int = 1,
    starts: Int[Tensor, " K"] | None = None,
) -> Float[Tensor, "B K D"]:
    """Weighted sum over every segment: ``y[b, k] = sum_i w[(k,) i] x[b, s_k + i]``.

    Args:
        x: series, ``[B, N, D]``.
        w: weights, ``[ell + 1]`` or ``[K, ell + 1]``.
        q: distance between neighbouring segments, in samples.
        starts: first sample of every segment instead of ``0, q, 2q, ...``.

    Returns:
        ``[B, K, D]`` with ``K = (N - 1 - ell) // q + 1`` or ``len(starts)``.
    """
    x = _promote(check_series(x, "x"))
    check_weights(w, x)
    check_segments(starts, q, x)
    return autograd.corr(x, w, starts, q)


def corr_t(
    y: Float[Tensor, "B K D"],
    w: Float[Tensor, "..."],
    *,
    n_samples: int,
    q: int = 1,
    starts: Int[Tensor, " K"] | None = None,
) -> Float[Tensor, "B N D"]:
    """Adjoint of `corr`: each sample gathers from the segments that contain it.

    ``x[b, n] = sum over (k, i) with s_k + i = n of w[(k,) i] y[b, k]``.

    Args:
        y: one value a segment, ``[B, K, D]``.
        w: weights, ``[ell + 1]`` or ``[K, ell + 1]``.
        n_samples: length N of the series.
        q, starts: as in :func:`corr`.

    Returns:
        ``[B, N, D]``.
    """
    y = _promote(check_series(y, "y"))
    check_int64("n_samples", n_samples)
    check_weights(w, y)
    check_segments(starts, q, y)
    return autograd.corr_t(y, w, starts, q, n_samples)


def corr_w(
    x: Float[Tensor, "B N D"],
    y: Float[Tensor, "B K D"],
    *,
    ell: int,
    per_segment: bool = False,
    q: int = 1,
    starts: Int[Tensor, " K"] | None = None,
) -> Float[Tensor, "..."]:
    """Derivative of ``sum(y * corr(x, w))`` with respect to the weights.

    Args:
        x: series, ``[B, N, D]``.
        y: one value a segment, ``[B, K, D]``.
        ell: segments have ``ell + 1`` samples.
        per_segment: return one row a segment instead of their sum.
        q, starts: as in :func:`corr`.

    Returns:
        ``[ell + 1]``, or ``[K, ell + 1]`` if `per_segment`.
    """
    x, y = _promote(check_series(x, "x")), _promote(check_series(y, "y"))
    check_int64("ell", ell)
    check_segments(starts, q, x)
    return autograd.corr_w(x, y, starts, q, ell, per_segment)


def squared_residual(
    f: Float[Tensor, "B N D"],
    lhs: Float[Tensor, "B K D"],
    w: Float[Tensor, "..."],
    *,
    q: int = 1,
    starts: Int[Tensor, " K"] | None = None,
    scale: float = 1.0,
) -> Float[Tensor, ""]:
    """``scale * sum (lhs + corr(f, w))^2``, residual and gradient in one pass.

    The gradient with respect to `f` is computed together with the loss when it will be
    needed, from residuals that never leave the cache; backward only scales it.

    Args:
        f: field values at the samples, ``[B, N, D]``.
        lhs: left-hand side of each segment, ``[B, K, D]``, dtype of `w`.
        w: weights of `f`, ``[ell + 1]`` or ``[K, ell + 1]``.
        q, starts: as in :func:`corr`.
        scale: factor of the sum, e.g. one over the number of segments.

    Returns:
        A scalar in the dtype of `w`.
    """
    f = _promote(check_series(f, "f"))
    check_weights(w, f)
    check_segments(starts, q, f)
    b, n, d = f.shape
    return fused.squared_residual(f, lhs, w, starts, q, scale, (b, n, d))


def _promote(x: Tensor) -> Tensor:
    """Float32 for 16-bit series under autocast, as torch does for its own losses."""
    if x.dtype in (torch.bfloat16, torch.float16) and torch.is_autocast_enabled(
        x.device.type
    ):
        return x.float()
    return x
