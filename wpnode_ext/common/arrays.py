"""Arrays, seeds and fields of users: their types, and tensors made of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# ``field(t, u) -> du/dt``, batched over the leading axes of ``u``. The time may be a
# number, a scalar tensor, or one value a batch element.
Field = Callable[[Any, Tensor], Tensor]

# Arrays of users; integers become float64.
Array = Tensor | NDArray[np.generic]


def as_float64(x: Array, name: str) -> Tensor:
    """Real numbers of any kind as a float64 tensor on the CPU, detached."""
    if isinstance(x, Tensor):
        if x.is_complex():
            raise TypeError(f"`{name}` must hold real numbers; got {x.dtype}.")
        return x.detach().to("cpu", torch.float64)
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise TypeError(f"`{name}` must be one rectangular array; {error}.") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"`{name}` must hold real numbers; got {array.dtype}.")
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float64))


def like_given(result: Tensor, given: Array) -> Tensor:
    """`result` in the dtype and on the device of the tensor the caller gave."""
    if isinstance(given, Tensor) and given.is_floating_point():
        return result.to(given.device, given.dtype)
    return result


def as_generator(seed: int | torch.Generator) -> torch.Generator:
    """A generator of its own for an integer seed; the global one is never used."""
    if isinstance(seed, torch.Generator):
        return seed
    return torch.Generator().manual_seed(seed)
