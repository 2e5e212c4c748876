"""Makes a call and checks its result or its refusal."""

from typing import Any

import torch
from torch import Tensor

from fuzz.calls import Call

REFUSALS = (
    ValueError,
    TypeError,
    RuntimeError,
    MemoryError,
    OverflowError,
    IndexError,
)
# Calls of more terms are not compared: the reference gathers every segment.
MOST_TERMS = 2**21
ROUNDING = 512


def judge(call: Call) -> tuple[str, str | None]:
    """Returns "refused", "accepted" or "compared", and a complaint or None."""
    try:
        result = call.function(**call.arguments)
    except REFUSALS as error:
        text = f"{type(error).__name__}: {error}"[:300]
        return "refused", f"a valid call was refused: {text}" if call.valid else None
    except Exception as error:
        return "refused", f"an unforeseen error: {error!r}"
    # Times out of order have no weights, and the results of an overflow are undefined.
    if call.expected is None or {"t", "dt", "scale"} & {*call.spoilt}:
        return "accepted", None
    if not _is_small(call):
        return "accepted", None
    try:
        expected = call.expected(**call.arguments)
    except Exception as error:
        return "compared", f"accepted, but the reference says {error!r}"
    return "compared", _difference(result, expected)


def _is_small(call: Call) -> bool:
    """Tells whether the reference needs few operations for the same call."""
    numbers = {k: v for k, v in call.arguments.items() if isinstance(v, int)}
    tensors = [v for v in call.arguments.values() if isinstance(v, Tensor)]
    terms = max((max(1, *x.shape, x.numel()) for x in tensors), default=1)
    for name in ("ell", "n_samples"):
        terms *= max(1, numbers.get(name, 1))
    w = call.arguments.get("w")
    return terms * (w.shape[-1] if isinstance(w, Tensor) else 1) <= MOST_TERMS


def _difference(result: Any, expected: Any) -> str | None:
    if isinstance(result, tuple):
        pairs = zip(result, expected, strict=True)
        return next(
            filter(None, (_difference(one, other) for one, other in pairs)), None
        )
    if result.shape != expected.shape:
        return f"shape {list(result.shape)} instead of {list(expected.shape)}"
    if result.numel() == 0:
        return None
    if not result.dtype.is_floating_point:
        return None if torch.equal(result, expected) else f"{result}, not {expected}"
    expected = expected.double()
    if not expected.isfinite().all():
        return None
    scale = expected.abs().max().clamp(min=1.0)
    few = 4 if result.element_size() == 2 else ROUNDING
    error = (result.double() - expected).abs().max()
    if error <= few * torch.finfo(result.dtype).eps * scale:
        return None
    return f"an error of {error:.3g} where values reach {scale:.3g}"
