"""Runs of samples without a gap, and the segments and windows in them.

A run is a longest stretch of samples of one series that follow one another. It ends at
the end of its series, before a missing sample and before a step in time that is too
long. A segment is ``ell + 1`` consecutive samples of one run; the segments of a run
start at its first sample and every `q` samples after it. Only this module defines
gaps, so that all losses and fits see the same segments of a record.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..common.arrays import Array, as_float64
from ..ops.checks import check_layout

Runs = list[tuple[int, int]]

# A step in time is a gap if it is longer than this many median steps.
GAP_STEPS = 3.0


def gap_free_runs(
    n_samples: int,
    *,
    lengths: Sequence[int] | None = None,
    missing: Bool[Tensor, " N"] | None = None,
    t: Float[Tensor, " N"] | None = None,
    max_gap: float | None = None,
) -> Runs:
    """Runs: longest stretches ``first .. stop - 1`` of samples without a gap.

    Args:
        n_samples: length N of the record.
        lengths: lengths of the series the record is made of, laid end to end.
        missing: True where a sample is missing.
        t: times; a step longer than `max_gap` ends a run.
        max_gap: default three median steps.

    Returns:
        Pairs (first, stop) in increasing order; missing samples are in none of them.
    """
    borders = torch.tensor(checked_lengths(lengths, n_samples)).cumsum(0)
    breaks = torch.zeros(n_samples + 1, dtype=torch.bool)
    breaks[0] = True
    breaks[borders] = True
    if t is not None:
        steps = _checked_times(t, n_samples).diff()
        inside = steps[~breaks[1:n_samples] & (steps > 0)]
        if max_gap is None and len(inside) > 0:
            max_gap = GAP_STEPS * inside.median().item()
        if max_gap is not None:
            breaks[1:n_samples] |= steps > max_gap
    gone = torch.zeros(n_samples, dtype=torch.bool)
    if missing is not None:
        gone = missing.cpu()
        breaks[:-1] |= gone
        breaks[1:] |= gone
    edges = breaks.nonzero().flatten()
    first, stop = edges[:-1], edges[1:]
    there = ~gone[first]
    return list(zip(first[there].tolist(), stop[there].tolist(), strict=True))


def window_starts(
    runs: Runs, window: int, stride: int = 1, *, phase: int = 0
) -> Int[Tensor, " W"]:
    """First samples of the windows of `window` samples that fit into the runs.

    In each run they are `stride` apart, beginning `phase` samples after its first.
    """
    if window < 2:
        raise ValueError(f"`window` must be an integer >= 2; got {window}.")
    if stride < 1:
        raise ValueError(f"`window_stride` must be an integer >= 1; got {stride}.")
    edges = torch.tensor(runs, dtype=torch.int64).reshape(-1, 2)
    first, last = edges[:, 0] + phase, edges[:, 1] - window
    counts = torch.where(last >= first, (last - first) // stride + 1, 0)
    # Windows of all runs at once: the number of a window in its run times the stride.
    begun = counts.cumsum(0) - counts
    numbers = torch.arange(int(counts.sum())) - begun.repeat_interleave(counts)
    return first.repeat_interleave(counts) + stride * numbers


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
    """First sample of every segment, in increasing order.

    Args:
        n_samples: length N of the record.
        ell: segments have ``ell + 1`` samples.
        q: distance between neighbouring segments of a run, in samples.
        lengths, missing, t, max_gap: as in :func:`gap_free_runs`.

    Returns:
        int64 ``[K]`` on the CPU, possibly empty.
    """
    check_layout(ell, q)
    runs = gap_free_runs(
        n_samples, lengths=lengths, missing=missing, t=t, max_gap=max_gap
    )
    return window_starts(runs, ell + 1, q)


def missing_samples(mask: Tensor, v: Tensor, dim: int) -> Bool[Tensor, "*batch N"]:
    """The samples that a mask of samples or values leaves out.

    Args:
        mask: True where something is missing, ``[N]``, ``[*batch, N]`` or the shape of
            `v`.
        v: observations, ``[*batch, N, *state]``.
        dim: their time axis, not negative.

    Returns:
        ``[N]`` where all elements of the batch miss the same samples by the shape of
        the mask, else ``[*batch, N]``.
    """
    if mask.dtype != torch.bool:
        raise TypeError(f"`mask` must be bool (True = missing); got {mask.dtype}.")
    if mask.shape == v.shape and v.dim() > dim + 1:
        return mask.flatten(dim + 1).any(-1)
    if mask.shape not in (v.shape[: dim + 1], v.shape[dim : dim + 1]):
        raise ValueError(
            f"`mask` must have shape {list(v.shape[dim : dim + 1])}, "
            f"{list(v.shape[: dim + 1])} or {list(v.shape)}; got {list(mask.shape)}."
        )
    return mask


def missing_values(mask: Array, v: Tensor) -> Bool[Tensor, "N ..."]:
    """A mask of samples ``[N]`` or values ``[N, *state]`` in the shape of `v`."""
    gone = as_float64(mask, "mask") != 0
    if gone.shape not in (v.shape[:1], v.shape):
        raise ValueError(
            f"`mask` must have shape {list(v.shape[:1])} or {list(v.shape)}; "
            f"got {list(gone.shape)}."
        )
    return gone.reshape(*gone.shape, *(1,) * (v.dim() - gone.dim())).expand(v.shape)


def check_times(t: Tensor, n_samples: int) -> None:
    """Raises unless `t` has one time for each of `n_samples` samples."""
    if t.shape != (n_samples,):
        got = f"{len(t)} times" if t.dim() == 1 else f"shape {list(t.shape)}"
        raise ValueError(
            f"`t` must have one time for each of the {n_samples} samples of `v`; got "
            f"{got}."
        )


def _checked_times(t: Tensor, n_samples: int) -> Float[Tensor, " N"]:
    times = torch.as_tensor(t, dtype=torch.float64, device="cpu")
    check_times(times, n_samples)
    return times


def checked_lengths(lengths: Sequence[int] | None, n_samples: int) -> list[int]:
    """`lengths`, by default one series, if they are positive and add up to N."""
    if lengths is None:
        return [n_samples]
    lengths = [int(length) for length in lengths]
    if min(lengths, default=0) < 1 or sum(lengths) != n_samples:
        raise ValueError(
            f"`lengths` must be positive and add up to the {n_samples} samples of "
            f"`v`; got {lengths}, which add up to {sum(lengths)}."
        )
    return lengths
