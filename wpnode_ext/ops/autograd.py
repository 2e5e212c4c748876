"""Derivatives of the compiled operators, in every mode torch has.

Two front doors, because in torch 2.13 neither serves all callers: operators
registered with ``register_autograd`` compile without a graph break, but raise under
``torch.func.grad`` and return silent zeros under ``torch.func.jvp``; an
``autograd.Function`` with a ``jvp`` does the opposite. So traced code meets the bare
operators (see `registration`), everybody else the Functions below.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from . import registration

_ops = registration.overloads


def run(op: Callable[..., Any], *args: Any) -> Any:
    """Calls a kernel from inside a Function, without the autograd formulas in Python.

    Autograd records nothing there; the formulas would double the cost of the call.
    """
    with torch._C._AutoDispatchBelowAutograd():
        return op(*args)


def corr(x: Tensor, w: Tensor, starts: Tensor | None, q: int) -> Tensor:
    if torch.compiler.is_compiling():
        return _ops.corr(x.contiguous(), w.contiguous(), starts, q)
    return _Corr.apply(x, w, starts, q)  # type: ignore[return-value]


def corr_t(
    y: Tensor, w: Tensor, starts: Tensor | None, q: int, n_samples: int
) -> Tensor:
    if torch.compiler.is_compiling():
        return _ops.corr_t(y.contiguous(), w.contiguous(), starts, q, n_samples)
    return _CorrT.apply(y, w, starts, q, n_samples)  # type: ignore[return-value]


def corr_w(
    x: Tensor, y: Tensor, starts: Tensor | None, q: int, ell: int, per_segment: bool
) -> Tensor:
    if torch.compiler.is_compiling():
        return _ops.corr_w(x.contiguous(), y.contiguous(), starts, q, ell, per_segment)
    return _CorrW.apply(x, y, starts, q, ell, per_segment)  # type: ignore[return-value]


class _Corr(Function):
    @staticmethod
    def forward(x: Tensor, w: Tensor, starts: Tensor | None, q: int) -> Tensor:
        return run(_ops.corr, x.contiguous(), w.contiguous(), starts, q)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        x, w, starts, ctx.q = inputs
        ctx.save_for_backward(x, w, starts)
        ctx.save_for_forward(x, w, starts)

    @staticmethod
    def backward(ctx: Any, gy: Tensor):  # type: ignore[override]
        x, w, starts = ctx.saved_tensors
        gx = gw = None
        if ctx.needs_input_grad[0]:
            gx = corr_t(gy, w, starts, ctx.q, x.shape[1])
        if ctx.needs_input_grad[1]:
            gw = corr_w(x, gy, starts, ctx.q, w.shape[-1] - 1, w.dim() == 2)
        return gx, gw, None, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dw: Tensor | None, *_: None) -> Tensor:  # type: ignore[override]
        x, w, starts = ctx.saved_tensors
        return sum_tangents(
            None if dx is None else corr(dx, w, starts, ctx.q),
            None if dw is None else corr(x, dw, starts, ctx.q),
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any):
        return _vmap_series(info, in_dims, corr, *args)


class _CorrT(Function):
    @staticmethod
    def forward(
        y: Tensor, w: Tensor, starts: Tensor | None, q: int, n_samples: int
    ) -> Tensor:
        return run(_ops.corr_t, y.contiguous(), w.contiguous(), starts, q, n_samples)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        y, w, starts, ctx.q, ctx.n_samples = inputs
        ctx.save_for_backward(y, w, starts)
        ctx.save_for_forward(y, w, starts)

    @staticmethod
    def backward(ctx: Any, gx: Tensor):  # type: ignore[override]
        y, w, starts = ctx.saved_tensors
        gy = gw = None
        if ctx.needs_input_grad[0]:
            gy = corr(gx, w, starts, ctx.q)
        if ctx.needs_input_grad[1]:
            gw = corr_w(gx, y, starts, ctx.q, w.shape[-1] - 1, w.dim() == 2)
        return gy, gw, None, None, None

    @staticmethod
    def jvp(ctx: Any, dy: Tensor | None, dw: Tensor | None, *_: None) -> Tensor:  # type: ignore[override]
        y, w, starts = ctx.saved_tensors
        return sum_tangents(
            None if dy is None else corr_t(dy, w, starts, ctx.q, ctx.n_samples),
            None if dw is None else corr_t(y, dw, starts, ctx.q, ctx.n_samples),
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any):
        return _vmap_series(info, in_dims, corr_t, *args)


class _CorrW(Function):
    @staticmethod
    def forward(
        x: Tensor, y: Tensor, starts: Tensor | None, q: int, ell: int, per_segment: bool
    ) -> Tensor:
        series = x.contiguous(), y.contiguous()
        return run(_ops.corr_w, *series, starts, q, ell, per_segment)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        x, y, starts, *ctx.rest = inputs
        ctx.save_for_backward(x, y, starts)
        ctx.save_for_forward(x, y, starts)

    @staticmethod
    def backward(ctx: Any, gw: Tensor):  # type: ignore[override]
        x, y, starts = ctx.saved_tensors
        q = ctx.rest[0]
        gx = gy = None
        if ctx.needs_input_grad[0]:
            gx = corr_t(y, gw, starts, q, x.shape[1])
        if ctx.needs_input_grad[1]:
            gy = corr(x, gw, starts, q)
        return gx, gy, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dy: Tensor | None, *_: None) -> Tensor:  # type: ignore[override]
        x, y, starts = ctx.saved_tensors
        return sum_tangents(
            None if dx is None else corr_w(dx, y, starts, *ctx.rest),
            None if dy is None else corr_w(x, dy, starts, *ctx.rest),
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any):
        return _vmap_loop(info, in_dims, corr_w, *args)


def sum_tangents(*terms: Tensor | None) -> Tensor:
    first, *others = [term for term in terms if term is not None]
    return sum(others, start=first)


def _vmap_series(
    info: Any, in_dims: tuple, op: Callable[..., Tensor], x: Tensor, *rest: Any
):
    """Folds a mapped series into the batch axis; loops over anything else mapped."""
    if in_dims[0] is None or any(dim is not None for dim in in_dims[1:]):
        return _vmap_loop(info, in_dims, op, x, *rest)
    x = x.movedim(in_dims[0], 0)
    return op(x.flatten(0, 1), *rest).unflatten(0, x.shape[:2]), 0


def _vmap_loop(info: Any, in_dims: tuple, op: Callable[..., Tensor], *args: Any):
    def pick(index: int) -> list[Any]:
        return [
            arg if dim is None else arg.select(dim, index)
            for arg, dim in zip(args, in_dims, strict=True)
        ]

    return torch.stack([op(*pick(i)) for i in range(info.batch_size)]), 0
