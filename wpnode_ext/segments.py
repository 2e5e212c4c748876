"""Which samples form a segment: counts and starts, gaps and series borders respected.

A segment is ``ell + 1`` consecutive samples of one series without a gap. Neighbouring
segments of a series are `q` samples apart.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def count_segments(n_samples: int, ell: int, q: int) -> int:
    """Number of segments of one series without gaps: ``(N - 1 - ell) // q + 1``."""
    return max(0, (n_samples - 1 - ell) // q + 1)


def segment_starts(
    n_samples: int,
    ell: int,
    q: int,
    *,
    lengths: Sequence[int] | None = None,
    missing: Bool[Tensor, " N"] | None = None,
    t: Float[Tensor, " N"] | None = None,
    max_gap: float | None = None,
) -> Int[Tensor, " K"]:
    """First sample of every admissible segment, in increasing order.

    Args:
        n_samples: length N of the record.
        ell: segments have ``ell + 1`` samples.
        q: distance between neighbouring segments of a series, in samples.
        lengths: lengths of the series the record is made of, laid end to end; no
            segment crosses from one into the next, and each series begins a segment.
        missing: True where a sample is missing; segments that touch one are dropped.
        t: times; segments with a step longer than `max_gap` are dropped.
        max_gap: default three median steps.

    Returns:
        int64 ``[K]`` on the CPU, possibly empty.
    """
    check_layout(ell, q)
    lengths = _check_lengths(lengths, n_samples)
    step = within(q, n_samples)
    borders = torch.tensor([0, *lengths]).cumsum(0).tolist()
    starts = torch.cat(
        [
            torch.arange(first, first + max(0, length - ell), step)
            for first, length in zip(borders, lengths, strict=False)
        ]
    )
    if missing is not None:
        starts = starts[_count_in(missing, starts, ell + 1) == 0]
    if t is not None and len(starts) > 0:
        steps = torch.as_tensor(t, dtype=torch.float64, device="cpu").diff()
        inside = steps[steps > 0]
        limit = max_gap if max_gap is not None else 3.0 * inside.median().item()
        starts = starts[_count_in(steps > limit, starts, ell) == 0]
    return starts


def check_start_type(starts: Tensor) -> None:
    """Raises unless `starts` is an int64 vector."""
    if starts.dtype != torch.int64 or starts.dim() != 1:
        raise TypeError(
            "`starts` must be an int64 vector; "
            f"got {starts.dtype} of shape {list(starts.shape)}."
        )


def check_starts(starts: Tensor, n_samples: int, ell: int) -> None:
    """Raises unless `starts` is a non-decreasing int64 vector within the record."""
    check_start_type(starts)
    if len(starts) == 0:
        raise ValueError("`starts` must name at least one segment; got none.")
    if (starts[1:] < starts[:-1]).any():  # a difference could wrap round
        raise ValueError("`starts` must be non-decreasing; sort it first.")
    first, last = starts[0].item(), starts[-1].item()
    if first < 0 or last + ell >= n_samples:
        raise ValueError(
            f"`starts` must lie in 0 .. {n_samples - 1 - ell}, where segments of "
            f"ell + 1 = {ell + 1} samples can start; got {first} .. {last}."
        )


def is_uniform(starts: Tensor, n_samples: int, ell: int, q: int) -> bool:
    """Whether `starts` is the ``0, q, 2q, ...`` of one series without gaps."""
    stop = max(0, n_samples - ell)
    every = torch.arange(0, stop, within(q, stop), device=starts.device)
    return torch.equal(starts, every)


def within(q: int, stop: int) -> int:
    """The step `q`, or one that ends ``range(0, stop, q)`` after its first number too.

    Both give the same numbers, but ``torch.arange`` wraps round for steps near 2^63.
    """
    return min(q, max(1, stop))


def check_int64(name: str, value: int) -> None:
    """Raises unless the compiled operators can take the integer."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"`{name}` must fit into 64 bits; got {value}.")


def check_layout(ell: int, q: int) -> None:
    """Raises unless `ell` is even and at least 2, and `q` at least 1."""
    check_int64("ell", ell)
    check_int64("q", q)
    if ell < 2 or ell % 2:
        raise ValueError(f"`ell` must be an even integer >= 2; got {ell}.")
    if q < 1:
        raise ValueError(f"`q` must be an integer >= 1; got {q}.")


def _count_in(flags: Tensor, starts: Tensor, width: int) -> Int[Tensor, " K"]:
    """How many of the `width` flags from each start on are set."""
    sums = torch.cat([torch.zeros(1, dtype=torch.int64), flags.cpu().cumsum(0)])
    return sums[starts + width] - sums[starts]


def _check_lengths(lengths: Sequence[int] | None, n_samples: int) -> list[int]:
    if lengths is None:
        return [n_samples]
    lengths = [int(length) for length in lengths]
    if min(lengths, default=0) < 1 or sum(lengths) != n_samples:
        raise ValueError(
            f"`lengths` must be positive and add up to the {n_samples} samples of "
            f"`v`; got {lengths}, which add up to {sum(lengths)}."
        )
    return lengths
