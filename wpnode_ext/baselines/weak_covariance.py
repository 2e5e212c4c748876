"""Least squares weighted by the covariance that noise gives to weak residuals."""

import torch
from jaxtyping import Float
from scipy.linalg import cho_solve_banded, cholesky_banded
from torch import Tensor

from .. import ops
from ..fields import LinearField
from ..weak.plan import SegmentSums, WeakForm
from ..weak.record import Record

# Segments closer than a fifth of their length have all but singular covariances.
_SPACING = 5
_RIDGE = 1e-10
_ROUNDS, _TOLERANCE = 100, 1e-6


@torch.no_grad()
def reweighted(
    field: LinearField,
    record: Record,
    sigma: Float[Tensor, " D"],
    *,
    p: int,
    ell: int,
    q: int | None = None,
) -> Float[Tensor, "J D"]:
    """Fits the coefficients that are not zero anew, in place.

    With the covariance ``S(w) = L(w) L(w)^T`` of the weak residuals of all segments, to
    first order in the noise, ``w <- argmin r(w)^T S^-1 r(w)`` is repeated until it
    stands still. S is banded: segments that share no sample are independent.

    Args:
        field: with the terms that are to be kept different from zero.
        record: observations at equal distances, float64.
        sigma: standard deviation of the noise per component.
        p, ell: the weak form.
        q: distance of the segments; a fifth of `ell` by default.

    Returns:
        Standard errors of the coefficients, NaN for those left out.
    """
    if record.dt is None:
        raise ValueError("`reweight` needs samples at equal distances.")
    q = q or max(1, ell // _SPACING)
    dim = record.v.shape[1]
    kept = (field.coefficients != 0).nonzero()
    runs = [
        record.v[first:stop] for first, stop in record.runs if stop - first > ell + 1
    ]
    sums = SegmentSums.at(None, WeakForm(p, ell, q), dt=record.dt)
    problems = [_rows(field, v, sums, kept) for v in runs]
    w = field.coefficients[kept[:, 0], kept[:, 1]]
    if len(w) == 0 or not runs:
        return torch.full_like(field.coefficients, float("nan"))
    covariance = torch.eye(len(w), dtype=torch.float64)
    for _ in range(_ROUNDS):
        normal = torch.zeros(len(w), len(w), dtype=torch.float64)
        right = torch.zeros(len(w), dtype=torch.float64)
        for v, (x, y) in zip(runs, problems, strict=True):
            bands = residual_covariance(field.jacobian(v), sigma, sums).numpy()
            bands[0] += _RIDGE * bands[0].mean()
            factor = cholesky_banded(bands, lower=True, overwrite_ab=True)
            weighed = torch.from_numpy(cho_solve_banded((factor, True), x.numpy()))
            normal += x.T @ weighed
            right += weighed.T @ y
        scale = normal.diagonal().sqrt()
        covariance = torch.linalg.pinv(normal / scale / scale[:, None], hermitian=True)
        covariance = covariance / scale / scale[:, None]
        new = covariance @ right
        change = (new - w).norm() / new.norm()
        w = new
        field.coefficients[kept[:, 0], kept[:, 1]] = w
        if change < _TOLERANCE:
            break
    std = torch.full((field.n_features, dim), float("nan"), dtype=torch.float64)
    std[kept[:, 0], kept[:, 1]] = covariance.diagonal().sqrt()
    return std


def residual_covariance(
    jacobian: Float[Tensor, "N D D"],
    sigma: Float[Tensor, " D"],
    sums: SegmentSums,
) -> Float[Tensor, "bands KD"]:
    """Lower bands of the covariance of the weak residuals of one stretch.

    Row ``k D + d`` is component d of segment k; the block of segments k and k + m is ::

        sum_n M_{k,n} diag(sigma^2) M_{k+m,n}^T,   M_{k,n} = w_lhs[i] I + w_rhs[i] J_n

    with ``i = n - k q``, in the storage of :func:`scipy.linalg.cholesky_banded`.
    """
    left, right, q = sums.w_lhs, sums.w_rhs, sums.q
    n, dim, _ = jacobian.shape
    ell = len(left) - 1
    count = (n - 1 - ell) // q + 1
    once = jacobian * sigma.square()
    twice = once @ jacobian.mT
    flat = torch.stack([once, once.mT.contiguous(), twice]).reshape(3, n, dim * dim)
    lags = min(ell // q, count - 1)
    bands = torch.zeros((lags + 1) * dim, count * dim, dtype=torch.float64)
    for lag in range(lags + 1):
        shift = lag * q
        here_l, here_r = left[shift:], right[shift:]
        there_l, there_r = left[: ell + 1 - shift], right[: ell + 1 - shift]
        starts = q * torch.arange(lag, count)

        def summed(i: int, w: Tensor, starts: Tensor = starts) -> Tensor:
            return ops.corr(flat[i : i + 1], w.contiguous(), starts=starts)[0]

        block = summed(0, here_r * there_l) + summed(1, here_l * there_r)
        block = (block + summed(2, here_r * there_r)).reshape(-1, dim, dim)
        block = block + (here_l @ there_l) * sigma.square().diag()
        for d in range(dim):
            for e in range(0 if lag else d, dim):
                row = lag * dim + e - d
                bands[row, d : (count - lag) * dim : dim] = block[:, d, e]
    return bands


def _rows(
    field: LinearField,
    v: Float[Tensor, "N D"],
    sums: SegmentSums,
    kept: Tensor,
) -> tuple[Float[Tensor, "KD T"], Float[Tensor, " KD"]]:
    """The weak form as rows ``x w = y`` for the coefficients that are kept."""
    g, y = sums.right(field.features(v)[None])[0], -sums.left(v[None])[0]
    x = torch.zeros(len(g), v.shape[1], len(kept), dtype=torch.float64)
    terms = torch.arange(len(kept))
    x[:, kept[:, 1], terms] = g[:, kept[:, 0]]
    return x.flatten(0, 1), y.flatten()
