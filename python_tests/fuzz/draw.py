"""Random numbers, shapes and tensors, most often near values that overflow."""

from math import prod
from random import Random

import torch
from torch import Tensor

LARGEST = 2**63 - 1
SMALLEST = -(2**63)
SERIES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
OTHERS = (torch.int64, torch.int32, torch.bool, torch.complex64)
# The fuzzer makes no larger arrays; calls that need them must be refused.
MOST_ELEMENTS = 2**15
_VALUES = (
    2
    * torch.rand(2**17, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    - 1
)


def integer(random: Random) -> int:
    """Any int64: small, near a power of two, near the ends, or anything."""
    kind = random.randrange(8)
    if kind < 2:
        return random.randrange(-3, 70)
    if kind < 5:
        near = (1 << random.randrange(64)) + random.randrange(-3, 4)
        return clip(random.choice((1, -1)) * near)
    if kind < 7:
        ends = (LARGEST, LARGEST - random.randrange(200))
        return random.choice((*ends, SMALLEST, SMALLEST + random.randrange(200)))
    return random.randrange(SMALLEST, LARGEST + 1)


def clip(value: int) -> int:
    return max(SMALLEST, min(LARGEST, value))


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of weights and sums for series stored as `dtype`."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def tensor(random: Random, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Values from -1 to 1; the shape must be small or hold a zero."""
    count = prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    begin = random.randrange(len(_VALUES) - count)
    return _VALUES[begin : begin + count].reshape(shape).to(dtype, copy=True)


def size(random: Random) -> int:
    return random.choice((1, 1, 2, 3, 5, 8, 17, 40, 65, 130))


def any_shape(random: Random, axes: int) -> tuple[int, ...]:
    """A shape of few elements, or of none with axes of any length."""
    if random.randrange(3):
        shape = [random.randrange(20) for _ in range(axes)]
    else:
        shape = [abs(integer(random)) for _ in range(axes)] or [0]
        shape[random.randrange(len(shape))] = 0
    count = 1
    for n in shape:
        count *= max(n, 1)
    # torch itself counts the elements and strides of empty tensors in int64.
    return tuple(shape) if 0 in shape and count < 2**63 else tuple(n % 9 for n in shape)


def spoiled(random: Random, x: Tensor | None) -> Tensor | None:
    """`x` with another shape, dtype or layout, or without what it was."""
    kind = random.randrange(7)
    if x is None or kind == 0:
        return torch.zeros(any_shape(random, random.randrange(4)))
    if kind == 1:
        return x.to(random.choice((*SERIES, *OTHERS)))
    if kind == 2 and x.dim() > 1:
        return x.transpose(0, x.dim() - 1)
    if kind == 3 and x.dim() > 0 and x.shape[0] > 1:
        return x[:-1]
    if kind == 4:
        return x.new_zeros(any_shape(random, x.dim()))
    if kind == 5 and x.dim() > 0 and x.shape[-1] > 0:
        return x[..., :1].expand(x.shape)
    return x.unsqueeze(0)


def spoiled_starts(random: Random, starts: Tensor | None, count: int) -> Tensor | None:
    """Starts anywhere in int64, sorted or not, many or none."""
    kind = random.randrange(6)
    if kind == 0:
        return None
    if kind == 1:
        return torch.zeros(random.choice((0, 1, 3)), dtype=torch.int64)
    if kind == 2 and starts is not None:
        return spoiled(random, starts)
    n = count if random.randrange(2) else random.randrange(6)
    values = [integer(random) for _ in range(n)]
    if starts is not None and is_vector(starts) and random.randrange(len(starts) + 1):
        values = starts.tolist()
        values[random.randrange(len(values))] = integer(random)
    if random.randrange(3):
        values.sort()
    return torch.tensor(values, dtype=torch.int64)


def is_vector(starts: Tensor | None) -> bool:
    return starts is not None and starts.dim() == 1 and starts.dtype == torch.int64
