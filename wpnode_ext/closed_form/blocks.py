"""The weak form of a record, one block of segments after another.

Features are computed once a sample: a block keeps those of the samples it shares with
the next one, so memory does not grow with the record.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .. import ops
from ..ops.layout import check_layout
from ..weak.record import Record
from ..weak.weights import segment_weights

# Numbers in a block of features: 64 MB in float64.
BLOCK = 1 << 23

Features = Callable[[slice], Float[Tensor, "M F"]]


class WeakBlock(NamedTuple):
    """Rows of the weak problem ``features @ coefficients = target``.

    Attributes:
        features: segment sums ``sum_i w_rhs[i] phi[s_k + i]``, ``[K, F]``.
        target: ``- sum_i w_lhs[i] v[s_k + i]``, ``[K, D]``.
    """

    features: Float[Tensor, "K F"]
    target: Float[Tensor, "K D"]


def weak_blocks(
    record: Record,
    features: Features,
    *,
    p: int,
    ell: int,
    q: int,
    numbers: int = BLOCK,
) -> Iterator[WeakBlock]:
    """Blocks of segments of all stretches without a gap.

    Args:
        record: observations in float64.
        features: their values at a slice of the samples, ``[M, F]``, float64.
        p, ell, q: the weak form.
        numbers: how many numbers a block of features may have.
    """
    check_layout(ell, q)
    longest = max((stop - first for first, stop in record.runs), default=0)
    if longest <= ell:
        raise ValueError(
            f"the longest stretch without a gap has {longest} samples, fewer than the "
            f"ell + 1 = {ell + 1} of a segment; use a smaller `ell`."
        )
    observed = record.v.reshape(1, len(record.v), -1)
    width = 0
    for first, stop in record.runs:
        known: Tensor | None = None
        begin = first
        while begin + ell < stop:
            room = (stop - begin - 1 - ell) // q + 1
            # How wide a row is shows with the first block, of one segment.
            wanted = 1 if width == 0 else max(1, (numbers // width - ell - 1) // q + 1)
            count = min(room, wanted)
            end = begin + (count - 1) * q + ell + 1
            done = 0 if known is None else len(known)
            fresh = features(slice(begin + done, end))
            known = fresh if known is None else torch.cat([known, fresh])
            width = known.shape[1]
            starts = torch.arange(0, count * q, q, device=known.device)
            w_lhs, w_rhs = _weights(record, p, ell, begin, starts)
            right = ops.corr(known[None], w_rhs, starts=starts)[0]
            left = ops.corr(observed[:, begin:end].contiguous(), w_lhs, starts=starts)[
                0
            ]
            yield WeakBlock(right, -left)
            begin += count * q
            known = known[count * q :] if count * q < len(known) else None


def _weights(
    record: Record, p: int, ell: int, begin: int, starts: Tensor
) -> tuple[Tensor, Tensor]:
    """One vector for all segments at uniform times, else one row a segment."""
    if record.dt is not None:
        rows = segment_weights(p, ell, record.dt)
    else:
        times = record.t.flatten().cpu()
        rows = segment_weights(p, ell, t=times, starts=begin + starts.cpu())
    return (
        rows[0].to(starts.device).contiguous(),
        rows[1].to(starts.device).contiguous(),
    )
