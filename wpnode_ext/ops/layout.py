"""Where segments may start: what operators and plans ask of `ell`, `q` and `starts`."""

import torch
from torch import Tensor


def count_segments(n_samples: int, ell: int, q: int) -> int:
    """Number of segments of one series without gaps: ``(N - 1 - ell) // q + 1``."""
    return max(0, (n_samples - 1 - ell) // q + 1)


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
