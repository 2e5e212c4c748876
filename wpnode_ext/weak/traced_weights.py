"""The weights of a plan: shared where they can be, in traced code as an operator."""

import torch
from torch import Tensor

from .weights import Rule, segment_weights


def check_generated(t: Tensor | None, rule: Rule, w_rhs: Tensor, backend: str) -> None:
    if t is None or rule != "linear" or w_rhs.dim() == 1 or backend != "fused":
        raise ValueError(
            "`store_weights=False` must come with irregular times `t`, rule='linear' "
            f"and backend='fused'; got rule={rule!r}, backend={backend!r} and "
            f"{'no' if t is None else 'given'} times."
        )


def plan_weights(
    p: int,
    ell: int,
    dt: float | None,
    t: Tensor | None,
    d: int,
    starts: Tensor | None,
    rule: Rule,
) -> tuple[Tensor, Tensor]:
    """Weights in float64, ``[ell + 1]`` where all segments share them."""
    if torch.compiler.is_compiling() and t is None and dt is not None:
        return torch.ops.wpnode.segment_weights(p, ell, dt, d)
    rows = segment_weights(p, ell, dt, t=t, d=d, starts=starts, rule=rule)
    shared = all(w.dim() == 2 and w.stride(0) == 0 for w in rows)
    return (rows[0][0], rows[1][0]) if shared else rows


@torch.library.custom_op("wpnode::segment_weights", mutates_args=())
def _traced_weights(p: int, ell: int, dt: float, d: int) -> tuple[Tensor, Tensor]:
    """Uniform weights as an operator: tracing cannot look into the compiled builder."""
    return segment_weights(p, ell, dt, d=d)


@_traced_weights.register_fake
def _(p: int, ell: int, dt: float, d: int) -> tuple[Tensor, Tensor]:
    return (
        torch.empty(ell + 1, dtype=torch.float64),
        torch.empty(ell + 1, dtype=torch.float64),
    )
