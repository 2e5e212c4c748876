"""The weak residual and the weak loss as plain functions, for loops of one's own."""

from jaxtyping import Float
from torch import Tensor

from .plan import Reduction, WeakPlan


def weak_residual(
    f: Float[Tensor, "..."],
    v: Float[Tensor, "..."],
    *,
    dt: float | None = None,
    t: Float[Tensor, " N"] | None = None,
    p: int = 8,
    ell: int = 50,
    q: int = 2,
    dim: int = 0,
    **options,
) -> Float[Tensor, "..."]:
    """Weak-form residual of every segment (plus sign).

    For the segment that starts at sample ``s_k`` this is ::

        sum_i w_lhs[i] * v[s_k + i] + w_rhs[i] * f[s_k + i],

    which vanishes when `f` is the true field along a clean trajectory.

    Args:
        f: field values at the observations, shape, dtype and device of `v`.
        v: observations, ``[*batch, N, *state]``.
        dt: distance of uniform samples. Give either `dt` or `t`.
        t: times of the samples, ``[N]``.
        p: exponent of the test function ``(1 - s^2)^p``.
        ell: segments have ``ell + 1`` samples (even).
        q: distance between neighbouring segments, in samples.
        dim: time axis; axes before it are a batch, axes after it are the state.
        **options: `d`, `mask`, `lengths`, `starts`, `max_gap`, `rule`, `backend` of
            :class:`~wpnode_ext.WeakPlan`.

    Returns:
        ``[*batch, K, *state]`` with ``K = (N - 1 - ell) // q + 1`` where there are no
        gaps; float32 for 16-bit series.
    """
    plan = WeakPlan(v, dt=dt, t=t, p=p, ell=ell, q=q, dim=dim, **options)
    return plan.residual(f)


def weak_loss(
    f: Float[Tensor, "..."],
    v: Float[Tensor, "..."],
    *,
    dt: float | None = None,
    t: Float[Tensor, " N"] | None = None,
    p: int = 8,
    ell: int = 50,
    q: int = 2,
    dim: int = 0,
    reduction: Reduction = "mean",
    **options,
) -> Float[Tensor, "..."]:
    """Squared norm of the weak residual: mean over segments, sum over the state.

    ``mean_k |sum_i w_lhs[i] v[s_k + i] + w_rhs[i] f[s_k + i]|^2``, eq. (weak loss) of
    the paper divided by the number of segments.

    `f` is one evaluation of the field at every sample, however many segments share
    the sample. In a training loop on fixed data build a :class:`~wpnode_ext.WeakPlan`
    once and call its ``loss(f)``: the sum over `v` is then not repeated.

    Args:
        f: field values at the observations, shape, dtype and device of `v`.
        v: observations, ``[*batch, N, *state]``; may require gradients itself.
        dt, t, p, ell, q, dim, **options: as in :func:`weak_residual`.
        reduction: "mean", "sum" over segments and batch, or "none": ``[*batch, K]``.

    Returns:
        A scalar, or ``[*batch, K]``; float32 for 16-bit series.

    Example:
        >>> loss = weak_loss(field(None, v), v, dt=0.01, p=8, ell=50, q=2)
        >>> loss.backward()
    """
    plan = WeakPlan(v, dt=dt, t=t, p=p, ell=ell, q=q, dim=dim, **options)
    return plan.loss(f, reduction=reduction)
