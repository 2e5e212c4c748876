"""Empty figures, colours, labels and files of all figures."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from ..common.arrays import Array, as_float64
from ..common.files import printable, replacing

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
    """The label of a component; dollars start no formula, control characters are
    escaped."""
    if names is None:
        return f"component {number}"
    return printable(names[number]).replace("$", r"\$")


def save_figure(figure: "Figure", path: str | Path, *, dpi: int = 120) -> None:
    """Writes a figure as a whole or not at all, in the format of the file's ending."""
    kind = Path(path).suffix.lower().lstrip(".") or "png"
    picture = io.BytesIO()
    figure.savefig(picture, dpi=dpi, format=kind)
    with replacing(path, "wb") as file:
        file.write(picture.getvalue())
