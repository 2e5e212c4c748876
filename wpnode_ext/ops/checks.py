"""Checks of arguments, with messages in the caller's terms, and counts of segments.

Operators check series, weights and starts; plans and fits check where segments may
start, given `ell` and `q`.
"""

import math

import torch
from torch import Tensor

from .backend import build_info

HAS_CUDA: bool = build_info()["cuda"]
SERIES_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def check_series(x: Tensor, name: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"`{name}` must be a tensor; got {type(x).__name__}.")
    if x.dtype not in SERIES_DTYPES:
        raise TypeError(
            f"`{name}` must be float64, float32, bfloat16 or float16; got {x.dtype}."
        )
    if x.dim() != 3:
        raise ValueError(
            f"`{name}` must have shape [batch, rows, state]; got {list(x.shape)}."
        )
    check_device(x, name)
    return x


def check_device(x: Tensor, name: str) -> None:
    if x.device.type == "cuda" and not HAS_CUDA:
        raise RuntimeError(
            f"wpnode_ext was built without CUDA; `{name}` is on {x.device}. "
            "Reinstall with WPNODE_CUDA=ON or move the data to the CPU."
        )


def check_weights(w: Tensor, x: Tensor) -> None:
    expected = torch.float64 if x.dtype == torch.float64 else torch.float32
    if w.dtype != expected:
        raise TypeError(
            f"`w` must be {expected} for {x.dtype} series; got {w.dtype}. "
            "Build weights in float64 and cast them last."
        )
    if w.dim() not in (1, 2) or w.shape[-1] == 0:
        raise ValueError(
            "`w` must have shape [ell + 1] or [n_segments, ell + 1]; "
            f"got {list(w.shape)}."
        )
    check_finite(w, "`w` must be finite; got NaN or infinity.")
    if w.device != x.device:
        raise ValueError(
            f"`w` must be on the device of the series; got {w.device} and {x.device}."
        )


def check_segments(starts: Tensor | None, q: int, x: Tensor) -> None:
    check_int64("q", q)
    if q < 1:
        raise ValueError(f"`q` must be an integer >= 1; got {q}.")
    if starts is None:
        return
    check_start_type(starts)
    if starts.device != x.device:
        raise ValueError(
            "`starts` must be on the device of the series; "
            f"got {starts.device} and {x.device}."
        )


def check_finite(x: Tensor, message: str) -> None:
    """Raises `message` unless all of `x` is finite.

    It checks only if that costs neither a graph break nor a wait for a device.
    """
    traced = (
        torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    )
    # A sum is finite if and only if its terms are (short of overflow), and cheaper.
    if not traced and x.is_cpu and not math.isfinite(x.detach().sum().item()):
        raise ValueError(message)


def count_segments(n_samples: int, ell: int, q: int) -> int:
    """Number of segments of one series without gaps: ``(N - 1 - ell) // q + 1``."""
    return max(0, (n_samples - 1 - ell) // q + 1)


def is_uniform(starts: Tensor, n_samples: int, ell: int, q: int) -> bool:
    """True if `starts` is the ``0, q, 2q, ...`` of one series without gaps."""
    if q < 1:
        raise ValueError(f"`q` must be an integer >= 1; got {q}.")
    count = -(-max(0, n_samples - ell) // q)
    if len(starts) != count or (count - 1) * q >= 2**63:
        return False
    return torch.equal(starts, q * torch.arange(count, device=starts.device))


def within(q: int, stop: int) -> int:
    """A step with which ``range(0, stop, step)`` has the numbers of the step `q`.

    ``torch.arange`` overflows for steps near 2^63; this step is at most `stop`.
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
