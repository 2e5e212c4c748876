"""The CUDA operators on CPU tensors: the kernels' own source, run by the simulator."""

import ctypes
import functools
from ctypes import byref, c_bool, c_double, c_int, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cuda_sim import toolchain

DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
KINDS = {"rhs": 0, "lhs": 1, "lhs2": 2}
PURPOSES = {"residual": 0, "adjoint": 1, "loss_gradient": 2, "weight_gradient": 3}
NO_LIMIT = 2**31 - 1
# How ctypes passes the numbers among the arguments of a launcher.
_NUMBERS = {bool: c_bool, float: c_double}


class _Problem(ctypes.Structure):
    _fields_ = [
        ("dtype", c_int),
        ("batch", c_int64),
        ("samples", c_int64),
        ("state", c_int64),
        ("segments", c_int64),
        ("ell", c_int64),
        ("q", c_int64),
        ("starts", c_void_p),
        ("max_blocks", c_int64),
    ]


class _Weights(ctypes.Structure):
    _fields_ = [
        ("values", c_void_p),
        ("per_segment", c_bool),
        ("times", c_void_p),
        ("p", c_int),
        ("kind", c_int),
    ]


@functools.cache
def library() -> ctypes.CDLL:
    source = Path(__file__).with_name("capi.cpp")
    path = toolchain.build(
        "wpnode_cuda_sim", [*toolchain.kernel_sources(), source], shared=True
    )
    lib = ctypes.CDLL(str(path))
    lib.sim_message.restype = ctypes.c_char_p
    for name in ("weak_loss", "weak_loss_grad", "corr_w"):
        getattr(lib, f"sim_{name}_workspace").restype = c_size_t
    return lib


@dataclass(frozen=True)
class Weights:
    """Shared ``[ell + 1]`` or per-segment ``[K, ell + 1]`` values, or times."""

    values: Tensor | None = None
    times: Tensor | None = None
    p: int = 0
    kind: str = "rhs"

    def struct(self) -> _Weights:
        return _Weights(
            _pointer(self.values),
            self.values is not None and self.values.dim() == 2,
            _pointer(self.times),
            self.p,
            KINDS[self.kind],
        )


@dataclass(frozen=True)
class Segments:
    """``ell`` with ``q`` or explicit ``starts``; a grid limit to force long loops."""

    ell: int
    q: int = 1
    starts: Tensor | None = None
    max_blocks: int = NO_LIMIT

    def count(self, samples: int) -> int:
        if self.starts is not None:
            return len(self.starts)
        return (samples - 1 - self.ell) // self.q + 1 if samples > self.ell else 0

    def struct(self, dtype: torch.dtype, batch: int, samples: int, state: int):
        return _Problem(
            DTYPES[dtype],
            batch,
            samples,
            state,
            self.count(samples),
            self.ell,
            self.q,
            _pointer(self.starts),
            self.max_blocks,
        )


def accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def set_order(order: int) -> None:
    """0: ascending threads and blocks, 1: descending, more: a random seed."""
    library().sim_order(order)


def _pointer(tensor: Tensor | None) -> int | None:
    if tensor is None:
        return None
    assert tensor.is_contiguous()
    return tensor.data_ptr()


def _check(status: int) -> None:
    if status == -1:
        raise RuntimeError(library().sim_message().decode())
    if status:
        raise ValueError(f"launcher returned error {status}")


def _output(like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    # NaN, so that an element no thread writes cannot pass.
    return torch.full(shape, torch.nan, dtype=dtype or like.dtype)


def _argument(value: Any) -> Any:
    """The argument as ctypes passes it: tensors by address, structs by reference."""
    if value is None or isinstance(value, Tensor):
        return c_void_p(_pointer(value))
    if isinstance(value, ctypes.Structure):
        return byref(value)
    return _NUMBERS[type(value)](value)


def _launch(name: str, *arguments: Any) -> None:
    _check(getattr(library(), f"sim_{name}")(*map(_argument, arguments)))


def _workspace(name: str, *sizes: Any) -> Tensor:
    size = getattr(library(), f"sim_{name}_workspace")(*map(_argument, sizes))
    return torch.full((size // 8,), torch.nan, dtype=torch.float64)


def corr(x: Tensor, weights: Weights, segments: Segments, out: Tensor | None = None):
    batch, samples, state = x.shape
    y = _output(x, batch, segments.count(samples), state) if out is None else out
    _launch("corr", segments.struct(x.dtype, *x.shape), weights.struct(), x, y)
    return y


def corr_t(
    y: Tensor, weights: Weights, segments: Segments, samples: int, out=None
) -> Tensor:
    batch, _, state = y.shape
    x = _output(y, batch, samples, state) if out is None else out
    _launch("corr_t", segments.struct(y.dtype, *x.shape), weights.struct(), y, x)
    return x


def corr_w(y: Tensor, x: Tensor, segments: Segments, per_segment: bool) -> Tensor:
    sizes = segments.struct(x.dtype, *x.shape), per_segment
    rows = [segments.count(x.shape[1])] if per_segment else []
    gw = _output(x, *rows, segments.ell + 1, dtype=accumulator(x.dtype))
    _launch("corr_w", *sizes, y, x, gw, _workspace("corr_w", *sizes))
    return gw


def weak_loss(
    lhs: Tensor, f: Tensor, weights: Weights, segments: Segments, scale: float
) -> Tensor:
    sizes = segments.struct(f.dtype, *f.shape), weights.struct()
    loss = _output(f, 1, dtype=accumulator(f.dtype))
    work = _workspace("weak_loss", *sizes)
    _launch("weak_loss", *sizes, lhs, f, scale, loss, work)
    return loss[0]


def weak_loss_grad(
    lhs: Tensor,
    f: Tensor,
    weights: Weights,
    segments: Segments,
    scale: float,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    sizes = segments.struct(f.dtype, *f.shape), weights.struct()
    loss = _output(f, 1, dtype=accumulator(f.dtype))
    grad = _output(f, *f.shape) if out is None else out
    work = _workspace("weak_loss_grad", *sizes)
    _launch("weak_loss_grad", *sizes, lhs, f, scale, loss, grad, work)
    return loss[0], grad


def scale(values: Tensor, factor: Tensor) -> None:
    dtype, count = c_int(DTYPES[values.dtype]), c_int64(values.numel())
    data, by = c_void_p(_pointer(values)), c_void_p(_pointer(factor))
    _check(library().sim_scale(dtype, count, by, data))


def plan(
    segments: Segments,
    weights: Weights,
    purpose: str,
    dtype: torch.dtype,
    shape: tuple[int, int, int],
    aligned: bool = True,
) -> dict[str, int]:
    out = (c_int64 * 9)()
    library().sim_plan(
        byref(segments.struct(dtype, *shape)),
        byref(weights.struct()),
        PURPOSES[purpose],
        c_bool(aligned),
        out,
    )
    names = "threads shared vector lanes ring_rows batch mode tiles wide".split()
    return dict(zip(names, out, strict=True))


class Traffic:
    """Counts what the kernels inside a ``with`` block move.

    With ``sampling`` only one block in so many runs, and counts for all.
    """

    SPACES = ("global_loads", "global_stores", "shared_loads", "shared_stores")
    COUNTS = ("requests", "bytes", "sectors", "passes", "conflicts")

    def __init__(self, sampling: int = 1) -> None:
        self.sampling = sampling

    def __enter__(self) -> "Traffic":
        library().sim_traffic(c_bool(True), c_int64(self.sampling))
        return self

    def __exit__(self, *_: object) -> None:
        out = (c_double * (len(self.SPACES) * len(self.COUNTS)))()
        library().sim_traffic_totals(out)
        library().sim_traffic(c_bool(False), c_int64(1))
        values = iter(out)
        self.total = {
            space: {count: next(values) for count in self.COUNTS}
            for space in self.SPACES
        }

    @property
    def global_bytes(self) -> float:
        """32 bytes for every sector a request touched."""
        return 32 * sum(self.total[space]["sectors"] for space in self.SPACES)

    @property
    def conflicts(self) -> float:
        return sum(self.total[space]["conflicts"] for space in self.SPACES)

    @property
    def shared_passes(self) -> float:
        return sum(self.total[space]["passes"] for space in self.SPACES)
