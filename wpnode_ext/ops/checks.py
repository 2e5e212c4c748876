"""Argument checks shared by the operators, with messages in the caller's terms."""

import math

import torch
from torch import Tensor

from .backend import build_info
from .layout import check_int64, check_start_type

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


def check_starts(starts: Tensor | None, q: int, x: Tensor) -> None:
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

    Looks only where that costs neither a graph break nor a wait for a device.
    """
    traced = (
        torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    )
    # A sum is finite if and only if its terms are (short of overflow), and cheaper.
    if not traced and x.is_cpu and not math.isfinite(x.detach().sum().item()):
        raise ValueError(message)
