"""What all figures share: an empty canvas, colours, names."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from .._arrays import as_float64
from .._typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRUTH, MODEL, DATA = "black", "tab:orange", "grey"


def empty_figure(width: float, height: float) -> "Figure":
    """A figure in inches that belongs to no window."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "figures need matplotlib; pip install 'wpnode_ext[plot]'."
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def as_members(u: Array) -> Tensor:
    """Trajectories as ``[T, B, D]``; those without a member axis get one."""
    x = as_float64(u, "u")
    if x.dim() < 2:
        raise ValueError(
            f"trajectories must have shape [T, D] or [T, B, *state]; got "
            f"{list(x.shape)}."
        )
    return x[:, None] if x.dim() == 2 else x.flatten(2)


def component_name(names: Sequence[str] | None, number: int) -> str:
    return f"component {number}" if names is None else names[number]
