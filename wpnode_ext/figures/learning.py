"""Figures of learning: the filter, the choice of the weak form, training."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..common.arrays import Array, as_float64
from ..weak.selection import WeakFormChoice
from .canvas import DATA, MODEL, TRUTH, component_name, empty_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def training_curves(rows: Sequence[Mapping[str, float]]) -> "Figure":
    """Loss and its terms, validation error, learning rate over the epochs.

    Args:
        rows: of ``metrics.csv``, see :func:`~wpnode_ext.training.log.read_metrics`, or
            the ``history`` of a training result.
    """
    figure = empty_figure(10, 3)
    panels = figure.subplots(1, 3)
    for name in ("loss", "weak", "strong"):
        values = [row.get(name, 0.0) for row in rows]
        if any(value > 0 for value in values):
            panels[0].semilogy(_epochs(rows), values, lw=1, label=name)
    panels[0].legend(fontsize="small")
    panels[0].set(xlabel="epoch", ylabel="loss")
    judged = [row for row in rows if "val_error" in row]
    errors = [row["val_error"] for row in judged]
    panels[1].plot(_epochs(judged), errors, color=MODEL)
    panels[1].set(xlabel="epoch", ylabel="validation error")
    panels[2].semilogy(_epochs(rows), [row["lr"] for row in rows], color=DATA)
    panels[2].set(xlabel="epoch", ylabel="learning rate")
    return figure


def filtering(
    t: Array,
    v: Array,
    u_filtered: Array,
    u: Array | None = None,
    *,
    names: Sequence[str] | None = None,
    label: str = "filtered",
) -> "Figure":
    """Observations before and after the filter of the weak form, or a smoother.

    Args:
        t: times, ``[N]``.
        v, u_filtered: observations and filtered ones, ``[N, *state]``; the first three
            components are drawn.
        u: the truth, where it is known.
        names: of the components.
        label: of the filtered ones.
    """
    time = as_float64(t, "t")
    curves = {"data": (v, DATA, "."), label: (u_filtered, MODEL, "--")}
    if u is not None:
        curves["truth"] = (u, TRUTH, "-")
    rows = min(3, as_float64(v, "v").flatten(1).shape[1])
    figure = empty_figure(9, 1.6 * rows + 0.6)
    grid = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    for row, axes in enumerate(grid):
        for name, (values, color, style) in curves.items():
            line = as_float64(values, name).flatten(1)[:, row]
            axes.plot(time, line, style, color=color, lw=1, ms=2, label=name)
        axes.set_ylabel(component_name(names, row))
    grid[0].legend(fontsize="small", ncols=3)
    grid[-1].set_xlabel("time")
    return figure


def window_choice(
    choice: WeakFormChoice,
    *,
    rmse: Mapping[tuple[int, int, int], float] | None = None,
) -> "Figure":
    """Scores of the filters behind a choice of (p, q, ell), against q.

    The left panels keep the chosen `ell` and vary p, the right ones keep the chosen p
    and vary `ell`. Above is the paper's score J, below the error of the filtered series
    in units of the noise: the estimate from the data, and the measured one where it is
    known. A circle marks the choice, the dashed line the noise itself.

    Args:
        choice: of :func:`~wpnode_ext.select_weak_form`.
        rmse: measured errors in units of the noise, by (p, ell, q).
    """
    figure = empty_figure(9, 6)
    grid = figure.subplots(2, 2, sharex="col", sharey="row")
    fixed_ell = [row for row in choice.table if row.ell == choice.ell]
    fixed_p = [row for row in choice.table if row.p == choice.p]
    for column, rows, varied in ((0, fixed_ell, "p"), (1, fixed_p, "ell")):
        above, below = grid[:, column]
        for number, value in enumerate(sorted({getattr(row, varied) for row in rows})):
            curve = [row for row in rows if getattr(row, varied) == value]
            curve.sort(key=lambda row: row.q)
            q, color = [row.q for row in curve], f"C{number}"
            scores = [row.J for row in curve]
            above.plot(q, scores, ".-", color=color, label=f"{varied} = {value}")
            # Estimates of a square may be negative.
            estimates = [max(0.0, row.risk) ** 0.5 for row in curve]
            below.plot(q, estimates, ".-", color=color)
            if rmse is not None:
                known = [
                    rmse.get((row.p, row.ell, row.q), float("nan")) for row in curve
                ]
                below.plot(q, known, "x:", color=color)
        for row in rows:
            if (row.p, row.ell, row.q) == (choice.p, choice.ell, choice.q_filter):
                above.plot(row.q, row.J, "o", ms=10, mfc="none", color=TRUTH)
                below.plot(
                    row.q,
                    max(0.0, row.risk) ** 0.5,
                    "o",
                    ms=10,
                    mfc="none",
                    color=TRUTH,
                )
        kept = "ell" if varied == "p" else "p"
        above.set_title(f"{kept} = {getattr(choice, kept)}")
        above.legend(fontsize="small")
        below.axhline(1.0, color=TRUTH, lw=0.8, ls="--")
        below.set_xlabel("q")
    grid[0, 0].set_ylabel("score J")
    grid[1, 0].set_ylabel("error / noise" + ("" if rmse is None else " (x: measured)"))
    return figure


def _epochs(rows: Sequence[Mapping[str, float]]) -> list[float]:
    return [row["epoch"] + 1 for row in rows]
