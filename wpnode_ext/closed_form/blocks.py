"""The weak form of a record, one block of segments after another.

Features are computed once a sample: a block keeps those of the samples it shares with
the next one, so memory does not grow with the record.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..data import Series
from ..ops.checks import check_layout
from ..weak.plan import SegmentSums, WeakForm

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
    record: Series,
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
    longest = record.longest_run
    if longest <= ell:
        raise ValueError(
            f"the longest stretch without a gap has {longest} samples, fewer than the "
            f"ell + 1 = {ell + 1} of a segment; use a smaller `ell`."
        )
    observed = record.v.reshape(1, len(record.v), -1)
    form, width = WeakForm(p, ell, q), 0
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
            sums = SegmentSums.at(
                torch.arange(0, count * q, q),
                form,
                dt=record.dt,
                t=None if record.t is None else record.t[begin:end],
            )
            target = -sums.left(observed[:, begin:end].contiguous())[0]
            yield WeakBlock(sums.right(known[None])[0], target)
            begin += count * q
            known = known[count * q :] if count * q < len(known) else None
