"""Fake kernels and autograd formulas of ``torch.ops.wpnode``, for traced code.

The formulas call the operators themselves, so tracing can differentiate again.
"""

from typing import Any

import torch
from torch import Tensor

from . import backend  # noqa: F401  (loading it registers the operators)

ops = torch.ops.wpnode


class overloads:
    """The operators without the lookup of an overload, which each call would repeat."""

    corr = ops.corr.default
    corr_t = ops.corr_t.default
    corr_w = ops.corr_w.default
    weak_loss = ops.weak_loss.default
    weak_loss_grad = ops.weak_loss_grad.default
    scale_ = ops.scale_.default
    segment_rows = ops.segment_rows.default
    weak_loss_at = ops.weak_loss_at.default
    weak_loss_grad_at = ops.weak_loss_grad_at.default


def _n_segments(n_samples: int, w_width: int, starts: Tensor | None, q: int) -> int:
    torch._check(q >= 1, lambda: f"`q` must be an integer >= 1; got {q}.")
    if starts is not None:
        return starts.shape[0]
    torch._check(
        n_samples >= w_width,
        lambda: (
            f"the series has {n_samples} samples, fewer than the "
            f"ell + 1 = {w_width} a segment needs; use a smaller `ell`."
        ),
    )
    return (n_samples - w_width) // q + 1


def _wide(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


@torch.library.register_fake("wpnode::corr")
def _(x: Tensor, w: Tensor, starts: Tensor | None, q: int) -> Tensor:
    n_segments = _n_segments(x.shape[1], w.shape[-1], starts, q)
    return x.new_empty(x.shape[0], n_segments, x.shape[2])


@torch.library.register_fake("wpnode::corr_t")
def _(y: Tensor, w: Tensor, starts: Tensor | None, q: int, n_samples: int) -> Tensor:
    return y.new_empty(y.shape[0], n_samples, y.shape[2])


@torch.library.register_fake("wpnode::corr_w")
def _(
    x: Tensor, y: Tensor, starts: Tensor | None, q: int, ell: int, per_segment: bool
) -> Tensor:
    shape = (y.shape[1], ell + 1) if per_segment else (ell + 1,)
    return x.new_empty(shape, dtype=_wide(x))


@torch.library.register_fake("wpnode::weak_loss")
def _(
    f: Tensor, lhs: Tensor, w: Tensor, starts: Tensor | None, q: int, scale: float
) -> Tensor:
    return lhs.new_empty(())


@torch.library.register_fake("wpnode::weak_loss_grad")
def _(
    f: Tensor, lhs: Tensor, w: Tensor, starts: Tensor | None, q: int, scale: float
) -> tuple[Tensor, Tensor]:
    return lhs.new_empty(()), torch.empty_like(f)


@torch.library.register_fake("wpnode::segment_rows")
def _(
    t: Tensor, starts: Tensor | None, q: int, p: int, ell: int, d: int
) -> tuple[Tensor, Tensor]:
    shape = (_n_segments(t.shape[0], ell + 1, starts, q), ell + 1)
    return t.new_empty(shape), t.new_empty(shape)


@torch.library.register_fake("wpnode::weak_loss_at")
def _(
    f: Tensor,
    lhs: Tensor,
    t: Tensor,
    starts: Tensor | None,
    q: int,
    p: int,
    ell: int,
    scale: float,
) -> Tensor:
    return lhs.new_empty(())


@torch.library.register_fake("wpnode::weak_loss_grad_at")
def _(
    f: Tensor,
    lhs: Tensor,
    t: Tensor,
    starts: Tensor | None,
    q: int,
    p: int,
    ell: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    return lhs.new_empty(()), torch.empty_like(f)


def _save(n_tensors: int):
    """A setup_context that keeps the tensors, and the rest as ``ctx.rest``."""

    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.save_for_backward(*inputs[:n_tensors])
        ctx.rest = inputs[n_tensors:]

    return setup_context


def _corr_backward(ctx: Any, gy: Tensor):
    x, w, starts = ctx.saved_tensors
    (q,) = ctx.rest
    gx = gw = None
    if ctx.needs_input_grad[0]:
        gx = ops.corr_t(gy.contiguous(), w, starts, q, x.shape[1])
    if ctx.needs_input_grad[1]:
        gw = ops.corr_w(x, gy.contiguous(), starts, q, w.shape[-1] - 1, w.dim() == 2)
    return gx, gw, None, None


def _corr_t_backward(ctx: Any, gx: Tensor):
    y, w, starts = ctx.saved_tensors
    q, _ = ctx.rest
    gy = gw = None
    if ctx.needs_input_grad[0]:
        gy = ops.corr(gx.contiguous(), w, starts, q)
    if ctx.needs_input_grad[1]:
        gw = ops.corr_w(gx.contiguous(), y, starts, q, w.shape[-1] - 1, w.dim() == 2)
    return gy, gw, None, None, None


def _corr_w_backward(ctx: Any, gw: Tensor):
    x, y, starts = ctx.saved_tensors
    q, _, _ = ctx.rest
    gx = gy = None
    if ctx.needs_input_grad[0]:
        gx = ops.corr_t(y, gw.contiguous(), starts, q, x.shape[1])
    if ctx.needs_input_grad[1]:
        gy = ops.corr(x, gw.contiguous(), starts, q)
    return gx, gy, None, None, None, None


def _weak_loss_backward(ctx: Any, g: Tensor):
    """Of ``scale |r|^2``, ``r = lhs + corr(f, w)``."""
    f, lhs, w, starts = ctx.saved_tensors
    q, scale = ctx.rest
    wide = f.to(w.dtype)
    slope = (2.0 * scale * g) * (lhs + ops.corr(wide, w, starts, q))
    gf = gw = None
    if ctx.needs_input_grad[0]:
        gf = ops.corr_t(slope, w, starts, q, f.shape[1]).to(f.dtype)
    if ctx.needs_input_grad[2]:
        gw = ops.corr_w(wide, slope, starts, q, w.shape[-1] - 1, w.dim() == 2)
    return gf, slope if ctx.needs_input_grad[1] else None, gw, None, None, None


def _weak_loss_grad_setup(ctx: Any, inputs: tuple, output: tuple) -> None:
    # A caller of the loss alone has no other derivative; None spares the sum of zeros.
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:4], output[1])
    ctx.rest = inputs[4:]


def _weak_loss_grad_backward(ctx: Any, g: Tensor | None, g_gradient: Tensor | None):
    """Of ``scale |r|^2`` and of its gradient ``2 scale corr_t(r)``; None: not used."""
    f, lhs, w, starts, gradient = ctx.saved_tensors
    q, scale = ctx.rest
    wide, shape = f.to(w.dtype), (w.shape[-1] - 1, w.dim() == 2)
    needs_f, needs_lhs, needs_w = ctx.needs_input_grad[:3]
    gf = glhs = gw = residual = None
    if needs_lhs or needs_w:
        residual = lhs + ops.corr(wide, w, starts, q)
    if g is not None:
        gf = g * gradient if needs_f else None
        glhs = None if residual is None else (2.0 * scale * g) * residual
    if g_gradient is not None:
        bent = (2.0 * scale) * g_gradient.to(w.dtype)
        curved = ops.corr(bent, w, starts, q)
        if needs_f:
            back = ops.corr_t(curved, w, starts, q, f.shape[1]).to(f.dtype)
            gf = _sum(gf, back)
        if residual is not None:
            glhs = _sum(glhs, curved)
        if needs_w:
            gw = ops.corr_w(bent, residual, starts, q, *shape)
    if needs_w and glhs is not None:
        gw = _sum(ops.corr_w(wide, glhs, starts, q, *shape), gw)
    return gf, glhs, gw, None, None, None


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


for _name, _backward, _setup in (
    ("corr", _corr_backward, _save(3)),
    ("corr_t", _corr_t_backward, _save(3)),
    ("corr_w", _corr_w_backward, _save(3)),
    ("weak_loss", _weak_loss_backward, _save(4)),
    ("weak_loss_grad", _weak_loss_grad_backward, _weak_loss_grad_setup),
):
    torch.library.register_autograd(f"wpnode::{_name}", _backward, setup_context=_setup)
