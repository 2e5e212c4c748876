"""The operators in float64 by plain indexing, as the expected results."""

import torch
from torch import Tensor

from cuda_sim.kernels import Segments


def nodes(segments: Segments, samples: int) -> Tensor:
    """Sample index of every node, ``[K, ell + 1]``."""
    starts = segments.starts
    if starts is None:
        starts = torch.arange(segments.count(samples)) * segments.q
    return starts[:, None] + torch.arange(segments.ell + 1)


def rows(w: Tensor, count: int) -> Tensor:
    """Weights as float64 rows, ``[K, ell + 1]``."""
    return w.double() if w.dim() == 2 else w.double().expand(count, -1)


def corr(x: Tensor, w: Tensor, segments: Segments) -> Tensor:
    index = nodes(segments, x.shape[1])
    windows = x.double()[:, index]  # [B, K, ell + 1, D]
    return torch.einsum("bkid,ki->bkd", windows, rows(w, len(index))).contiguous()


def corr_t(y: Tensor, w: Tensor, segments: Segments, samples: int) -> Tensor:
    index = nodes(segments, samples)
    spread = torch.einsum("bkd,ki->bkid", y.double(), rows(w, len(index)))
    x = y.new_zeros(y.shape[0], samples, y.shape[2], dtype=torch.float64)
    return x.index_add(1, index.flatten(), spread.flatten(1, 2))


def corr_w(y: Tensor, x: Tensor, segments: Segments, per_segment: bool) -> Tensor:
    windows = x.double()[:, nodes(segments, x.shape[1])]
    result = torch.einsum("bkd,bkid->ki", y.double(), windows)
    return result if per_segment else result.sum(0)


def weak_loss(lhs: Tensor, f: Tensor, w: Tensor, segments: Segments, scale: float):
    """The loss and its gradient with respect to ``f``."""
    r = lhs.double() + corr(f, w, segments)
    return scale * r.square().sum(), 2 * scale * corr_t(r, w, segments, f.shape[1])
