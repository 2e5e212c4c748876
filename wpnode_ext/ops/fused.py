"""The fused loss ``scale * sum (lhs + corr(f, w))^2`` and its derivatives.

Its weights are stored (`w`) or, for irregular times, generated inside the kernel from
the times of each segment: then `t` takes the place of `w`, and `recipe` = (p, ell) is
given. Derivatives that the fused kernels do not have are computed by the triple of
`autograd` with stored weights.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

from . import registration
from .autograd import corr, corr_t, run, sum_tangents

Recipe = tuple[int, int]

_ops = registration.overloads


def squared_residual(
    f: Tensor,
    lhs: Tensor,
    w: Tensor,
    starts: Tensor | None,
    q: int,
    scale: float,
    shape: tuple[int, int, int],
    recipe: Recipe | None = None,
) -> Tensor:
    """`f` may have any shape that `shape` = (B, N, D) is a view of.

    Reshaping inside spares the small systems, where a kernel takes microseconds, a node
    of the graph in each direction.
    """
    needs_gradient = torch.is_grad_enabled() and f.requires_grad
    if torch.compiler.is_compiling():
        stored = stored_weights(w, recipe, lhs, starts, q)
        args = (_series(f, shape), lhs.contiguous(), stored, starts, q, scale)
        if needs_gradient:
            return _ops.weak_loss_grad(*args)[0]
        return _ops.weak_loss(*args)
    # Function transforms, and the rare derivative with respect to data or weights, go
    # through the triple; the fused pass knows the derivative with respect to f only.
    if (
        torch._C._are_functorch_transforms_active()
        or lhs.requires_grad
        or w.requires_grad
    ):
        residual, _ = _residual(f.reshape(shape), lhs, w, starts, q, recipe)
        return scale * residual.square().sum()
    return _SquaredResidual.apply(  # type: ignore[return-value]
        f, lhs, w, starts, q, scale, shape, recipe, needs_gradient
    )


class _SquaredResidual(Function):
    """The gradient is made in forward, where the residual is, and handed over once."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        f: Tensor,
        lhs: Tensor,
        w: Tensor,
        starts: Tensor | None,
        q: int,
        scale: float,
        shape: tuple[int, int, int],
        recipe: Recipe | None,
        needs_gradient: bool,
    ) -> Tensor:
        ctx.save_for_backward(f, lhs, w, starts)
        if forward_ad._current_level >= 0:  # only then can `jvp` be called
            ctx.save_for_forward(f, lhs, w, starts)
        ctx.q, ctx.scale, ctx.shape, ctx.recipe = q, scale, shape, recipe
        ctx.f_shape = f.shape
        if needs_gradient:
            loss, ctx.gradient = _loss_and_gradient(f, lhs, w, starts, ctx)
            return loss
        args = _series(f, shape), lhs.contiguous(), w.contiguous(), starts, q
        op = _ops.weak_loss if recipe is None else _ops.weak_loss_at
        return run(op, *args, *(recipe or ()), scale)

    @staticmethod
    def backward(ctx: Any, g: Tensor):  # type: ignore[override]
        if torch.is_grad_enabled():  # create_graph: differentiate the formula itself
            f, lhs, w, starts = ctx.saved_tensors
            series = f.reshape(ctx.shape)
            residual, w = _residual(series, lhs, w, starts, ctx.q, ctx.recipe)
            gradient = corr_t(residual, w, starts, ctx.q, ctx.shape[1])
            gradient = (2.0 * ctx.scale * g * gradient).to(f.dtype)
            return gradient.reshape(f.shape), *_NO_GRADIENTS
        # The engine owns what backward returns, so the buffer is given away and made
        # anew if the graph is walked again.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            f, lhs, w, starts = ctx.saved_tensors
            _, gradient = _loss_and_gradient(f, lhs, w, starts, ctx)
        _multiply(gradient, g)
        return gradient.view(ctx.f_shape), *_NO_GRADIENTS

    @staticmethod
    def jvp(  # type: ignore[override]
        ctx: Any,
        df: Tensor | None,
        dlhs: Tensor | None,
        dw: Tensor | None,
        *_: None,
    ) -> Tensor:
        f, lhs, w, starts = ctx.saved_tensors
        series = f.reshape(ctx.shape)
        residual, w = _residual(series, lhs, w, starts, ctx.q, ctx.recipe)
        terms = [dlhs]
        if df is not None:
            terms.append(corr(df.reshape(ctx.shape).to(w.dtype), w, starts, ctx.q))
        if dw is not None and ctx.recipe is None:
            terms.append(corr(series.to(w.dtype), dw, starts, ctx.q))
        return 2.0 * ctx.scale * (residual * sum_tangents(*terms)).sum()


_NO_GRADIENTS = (None,) * 8


def _multiply(gradient: Tensor, g: Tensor) -> None:
    """In place, and without a pass over the gradient where `g` is one, as it mostly is.

    On a GPU only a kernel can look at `g`: the host would have to wait for it.
    """
    if g.is_cuda and gradient.is_cuda:
        run(_ops.scale_, gradient, g.contiguous())
    elif not (g.is_cpu and g.item() == 1.0):
        gradient.mul_(g)


def _loss_and_gradient(
    f: Tensor, lhs: Tensor, w: Tensor, starts: Tensor | None, ctx: Any
) -> tuple[Tensor, Tensor]:
    args = _series(f, ctx.shape), lhs.contiguous(), w.contiguous(), starts, ctx.q
    op = _ops.weak_loss_grad if ctx.recipe is None else _ops.weak_loss_grad_at
    return run(op, *args, *(ctx.recipe or ()), ctx.scale)


def _series(f: Tensor, shape: tuple[int, int, int]) -> Tensor:
    return f.reshape(shape).contiguous()


def stored_weights(
    w: Tensor, recipe: Recipe | None, lhs: Tensor, starts: Tensor | None, q: int
) -> Tensor:
    """Weights as an array, whatever form they came in."""
    if recipe is None:
        return w.contiguous()
    return _ops.segment_rows(w, starts, q, *recipe, 1)[1].to(lhs.dtype)


def _residual(
    series: Tensor,
    lhs: Tensor,
    w: Tensor,
    starts: Tensor | None,
    q: int,
    recipe: Recipe | None,
) -> tuple[Tensor, Tensor]:
    """The residual, and the weights it was made with."""
    w = stored_weights(w, recipe, lhs, starts, q)
    return lhs + corr(series.to(w.dtype), w, starts, q), w
