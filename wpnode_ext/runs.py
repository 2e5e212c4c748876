"""Stretches of a record without a gap, and the windows that fit into them."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Runs = list[tuple[int, int]]


def gap_free_runs(
    n_samples: int,
    *,
    lengths: Sequence[int] | None = None,
    missing: Bool[Tensor, " N"] | None = None,
    t: Float[Tensor, " N"] | None = None,
    max_gap: float | None = None,
) -> Runs:
    """Longest stretches ``first .. stop - 1`` of samples that follow one another.

    Args:
        n_samples: length N of the record.
        lengths: lengths of the series the record is made of, laid end to end.
        missing: True where a sample is missing.
        t: times; a step longer than `max_gap` ends a run.
        max_gap: default three median steps.

    Returns:
        Pairs (first, stop) in increasing order; missing samples are in none of them.
    """
    breaks = torch.zeros(n_samples + 1, dtype=torch.bool)
    breaks[0] = breaks[n_samples] = True
    if lengths is not None:
        if min(lengths, default=0) < 1 or sum(lengths) != n_samples:
            raise ValueError(
                f"`lengths` must be positive and add up to the {n_samples} samples of "
                f"`v`; got {list(lengths)}, which add up to {sum(lengths)}."
            )
        breaks[torch.tensor(list(lengths)).cumsum(0)] = True
    if t is not None:
        steps = torch.as_tensor(t, dtype=torch.float64, device="cpu").diff()
        inside = steps[~breaks[1:n_samples] & (steps > 0)]
        if max_gap is None and len(inside) > 0:
            max_gap = 3.0 * inside.median().item()
        if max_gap is not None:
            breaks[1:n_samples] |= steps > max_gap
    gone = torch.zeros(n_samples, dtype=torch.bool)
    if missing is not None:
        gone = missing.cpu()
        breaks[:-1] |= gone
        breaks[1:] |= gone
    edges = breaks.nonzero().flatten().tolist()
    pairs = zip(edges[:-1], edges[1:], strict=True)
    return [(first, stop) for first, stop in pairs if not gone[first]]


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
    rows = [
        torch.arange(first + phase, max(first + phase, stop - window + 1), stride)
        for first, stop in runs
    ]
    return torch.cat(rows) if rows else torch.empty(0, dtype=torch.int64)
