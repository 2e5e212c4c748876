"""Methods beside one another: how long forecasts hold, and what they cost."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .canvas import empty_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def comparison(rows: Sequence[Mapping[str, Any]], unit: str = "") -> "Figure":
    """Valid prediction time over noise, and over seconds of training.

    Args:
        rows: of :func:`wpnode_ext.baselines.comparison.summary`.
        unit: of the times.
    """
    figure = empty_figure(10, 4)
    left, right = figure.subplots(1, 2)
    levels = sorted({row["noise"] for row in rows})
    place = {level: number for number, level in enumerate(levels)}
    markers = "osD^v<>pPX*h"
    names = sorted({row["method"] for row in rows})
    for number, name in enumerate(names):
        mine = [row for row in rows if row["method"] == name and row["draws"]]
        style = {
            "marker": markers[number % len(markers)],
            "color": f"C{number % 10}",
            "label": name,
        }
        errors = [
            0.0 if row["spread"] != row["spread"] else row["spread"] for row in mine
        ]
        left.errorbar(
            [place[row["noise"]] for row in mine],
            [row["vpt"] for row in mine],
            yerr=errors,
            lw=1,
            capsize=2,
            **style,
        )
        seconds = [row["seconds"] for row in mine]
        right.plot(seconds, [row["vpt"] for row in mine], ls="", **style)
    left.set_xticks(range(len(levels)), [f"{100 * level:g} %" for level in levels])
    label = f"valid prediction time{f' ({unit})' if unit else ''}"
    left.set(xlabel="noise", ylabel=label, ylim=(0, None))
    right.set(xlabel="seconds of training", ylabel=label, xscale="log", ylim=(0, None))
    left.legend(fontsize="x-small", ncols=2)
    return figure
