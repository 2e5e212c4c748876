"""Every operator of :mod:`wpnode_ext.ops` in stock torch, with the same signatures.

Slow and memory-hungry (each gathers all segments), but short enough to be checked by
eye: the oracle of the tests, and ``backend="reference"`` of the public functions.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .checks import within


def corr(
    x: Float[Tensor, "B N D"],
    w: Float[Tensor, "..."],
    *,
    q: int = 1,
    starts: Int[Tensor, " K"] | None = None,
) -> Float[Tensor, "B K D"]:
    """See :func:`wpnode_ext.ops.corr`."""
    nodes = _nodes(x.shape[1], w.shape[-1], q, starts, x.device)
    return torch.einsum("bkid,ki->bkd", x[:, nodes].to(w.dtype), _rows(w, nodes)).to(
        x.dtype
    )


def corr_t(
    y: Float[Tensor, "B K D"],
    w: Float[Tensor, "..."],
    *,
    n_samples: int,
    q: int = 1,
    starts: Int[Tensor, " K"] | None = None,
) -> Float[Tensor, "B N D"]:
    """See :func:`wpnode_ext.ops.corr_t`."""
    nodes = _nodes(n_samples, w.shape[-1], q, starts, y.device)
    terms = torch.einsum("bkd,ki->bkid", y.to(w.dtype), _rows(w, nodes)).flatten(1, 2)
    zeros = terms.new_zeros(y.shape[0], n_samples, y.shape[2])
    return zeros.index_add(1, nodes.flatten(), terms).to(y.dtype)


def corr_w(
    x: Float[Tensor, "B N D"],
    y: Float[Tensor, "B K D"],
    *,
    ell: int,
    per_segment: bool = False,
    q: int = 1,
    starts: Int[Tensor, " K"] | None = None,
) -> Float[Tensor, "..."]:
    """See :func:`wpnode_ext.ops.corr_w`."""
    nodes = _nodes(x.shape[1], ell + 1, q, starts, x.device)
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    out = "ki" if per_segment else "i"
    return torch.einsum(f"bkd,bkid->{out}", y.to(wide), x[:, nodes].to(wide))


def squared_residual(
    f: Float[Tensor, "B N D"],
    lhs: Float[Tensor, "B K D"],
    w: Float[Tensor, "..."],
    *,
    q: int = 1,
    starts: Int[Tensor, " K"] | None = None,
    scale: float = 1.0,
) -> Float[Tensor, ""]:
    """See :func:`wpnode_ext.ops.squared_residual`."""
    residual = lhs + corr(f.to(w.dtype), w, q=q, starts=starts)
    return scale * residual.square().sum()


def _nodes(
    n_samples: int, width: int, q: int, starts: Tensor | None, device: torch.device
) -> Int[Tensor, "K w"]:
    if starts is None:
        stop = n_samples - width + 1
        starts = torch.arange(0, stop, within(q, stop), device=device)
    return starts[:, None] + torch.arange(width, device=device)


def _rows(w: Tensor, nodes: Tensor) -> Float[Tensor, "K w"]:
    return w.expand(nodes.shape)
