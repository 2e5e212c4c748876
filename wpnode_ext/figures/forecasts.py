"""Figures of forecasts: trajectories, attractors, densities, errors, comparisons."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..common.arrays import Array, as_float64
from ..metrics import joint_pdf, pdf
from .canvas import DATA, MODEL, TRUTH, as_members, component_name, empty_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Most components and members that are drawn.
ROWS, COLUMNS = 6, 3
# Most points that are drawn of a trajectory; more are not distinguishable.
POINTS = 50_000


def forecast(
    t: Array,
    u_hat: Array,
    u: Array,
    *,
    valid_until: Array | None = None,
    titles: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    band: tuple[Array, Array] | None = None,
) -> "Figure":
    """Forecasts and truth over time: a column for a member, a row for a component.

    Args:
        t: lead times, ``[T]``.
        u_hat, u: forecasts and truth, ``[T, D]`` or ``[T, B, *state]``; the first
            three members and six components are drawn.
        valid_until: valid prediction time of every member, marked by a line, ``[B]``.
        titles: of the columns.
        names: of the components.
        band: lower and upper ends of an interval around the forecasts, shaped as these.
    """
    time, path, truth = as_float64(t, "t"), as_members(u_hat), as_members(u)
    ends = None if band is None else [as_members(end) for end in band]
    columns, rows = min(COLUMNS, truth.shape[1]), min(ROWS, truth.shape[2])
    figure = empty_figure(3.3 * columns + 0.5, 1.3 * rows + 0.8)
    grid = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for column in range(columns):
        if titles is not None:
            grid[0, column].set_title(titles[column], fontsize="medium")
        for row, axes in enumerate(grid[:, column]):
            line = truth[:, column, row]
            axes.plot(time, line, color=TRUTH, lw=1, label="truth")
            axes.plot(
                time, path[:, column, row], "--", color=MODEL, lw=1, label="forecast"
            )
            if ends is not None:
                low, high = (end[:, column, row] for end in ends)
                axes.fill_between(time, low, high, color=MODEL, alpha=0.25, lw=0)
            if valid_until is not None:
                end = as_float64(valid_until, "valid_until")[column].item()
                axes.axvline(end, color=DATA, lw=0.8)
            # A forecast that ran away must not flatten the truth.
            low, high = line.min().item(), line.max().item()
            room = 0.1 * (high - low) or 1.0
            axes.set_ylim(low - room, high + room)
            if column == 0:
                axes.set_ylabel(component_name(names, row))
        grid[-1, column].set_xlabel("time")
    grid[0, 0].legend(loc="lower left", fontsize="small")
    return figure


def space_time(
    t: Array, u_hat: Array, u: Array, *, valid_until: float | None = None
) -> "Figure":
    """Truth, forecast and their difference as images over time and component.

    Args:
        t: lead times, ``[T]``.
        u_hat, u: one forecast and the truth, ``[T, *state]``.
        valid_until: marked by a line.
    """
    time = as_float64(t, "t")
    path, truth = (as_float64(x, "u").flatten(1).T for x in (u_hat, u))
    limit = truth.abs().max().item()
    extent = (time[0].item(), time[-1].item(), 0.0, float(len(truth)))
    panels = {"truth": truth, "forecast": path, "difference": path - truth}
    figure = empty_figure(9, 6)
    rows = figure.subplots(3, 1, sharex=True)
    for axes, (name, values) in zip(rows, panels.items(), strict=True):
        axes.imshow(
            values.numpy(),
            aspect="auto",
            origin="lower",
            extent=extent,
            cmap="RdBu_r",
            vmin=-limit,
            vmax=limit,
        )
        axes.set(title=name, ylabel="component")
        if valid_until is not None:
            axes.axvline(valid_until, color=TRUTH, lw=0.8)
    rows[-1].set_xlabel("time")
    figure.colorbar(rows[0].images[0], ax=list(rows))
    return figure


def error_growth(
    t: Array, errors: Mapping[str, Array], *, threshold: float | None = None
) -> "Figure":
    """Errors against lead time on a logarithmic axis.

    Args:
        t: lead times, ``[T]``.
        errors: curves ``[T]`` by name, in units of the spread of the truth.
        threshold: error up to which a forecast counts as valid, dotted.
    """
    time = as_float64(t, "t")
    figure = empty_figure(7, 3)
    axes = figure.subplots()
    for number, (name, values) in enumerate(errors.items()):
        color = (MODEL, DATA)[number] if number < 2 else f"C{number}"
        # The error of the start is zero, which has no logarithm.
        axes.semilogy(time[1:], as_float64(values, name)[1:], color=color, label=name)
    if threshold is not None:
        axes.axhline(threshold, color=TRUTH, lw=0.8, ls=":", label="threshold")
    axes.set(xlabel="lead time", ylabel="error / spread")
    axes.legend(fontsize="small")
    return figure


def attractor(
    u_hat: Array,
    u: Array,
    *,
    axes: tuple[int, int] | None = None,
    names: Sequence[str] | None = None,
) -> "Figure":
    """States visited by forecasts and by the truth, projected on two components.

    Args:
        u_hat, u: trajectories, ``[T, D]`` or ``[T, B, *state]``.
        axes: components; default the first and the third (or last). A state of one
            component is drawn against itself one sample later.
        names: of the components.
    """
    figure = empty_figure(8, 3.8)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    truth = as_members(u)
    one, other = axes or (0, min(2, truth.shape[2] - 1))
    later = int(truth.shape[2] == 1)
    for panel, states, color, title in (
        (panels[0], truth, TRUTH, "truth"),
        (panels[1], as_members(u_hat), MODEL, "model"),
    ):
        x = states[: len(states) - later, :, one].flatten()
        y = states[later:, :, other].flatten()
        every = -(-len(x) // POINTS)
        panel.plot(x[::every], y[::every], ",", color=color)
        panel.set(title=title, xlabel=component_name(names, one))
    panels[0].set_ylabel(
        component_name(names, other) + (", one sample later" if later else "")
    )
    for axis, component in (("x", one), ("y", other)):
        low, high = truth[..., component].min(), truth[..., component].max()
        room = 0.1 * (high - low).item() or 1.0
        limits = (low.item() - room, high.item() + room)
        panels[0].set(**{f"{axis}lim": limits})
    return figure


def densities(
    u_hat: Array,
    u: Array,
    *,
    length: float | None = None,
    names: Sequence[str] | None = None,
) -> "Figure":
    """Densities of the states of a model and of the truth.

    Args:
        u_hat, u: trajectories, ``[..., D]``; the first six components are drawn.
        length: of the periodic line the state lives on; then the joint densities of
            (u_x, u_xx) are drawn, side by side.
        names: of the components.
    """
    if length is not None:
        return _joint_densities(u_hat, u, length)
    (x, p), (y, q) = pdf(u_hat), pdf(u)
    columns = min(ROWS, len(y))
    figure = empty_figure(max(4.0, min(12.0, 3.0 * columns)), 2.8)
    for j, panel in enumerate(figure.subplots(1, columns, squeeze=False)[0]):
        panel.plot(y[j], q[j], color=TRUTH, label="truth")
        panel.plot(x[j], p[j], "--", color=MODEL, label="model")
        panel.set(xlabel=component_name(names, j), ylabel="" if j else "density")
        if j == 0:
            panel.legend(fontsize="small")
    return figure


def _joint_densities(u_hat: Array, u: Array, length: float) -> "Figure":
    figure = empty_figure(8, 3.6)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for panel, states, title in ((panels[0], u, "truth"), (panels[1], u_hat, "model")):
        (x, y), density = joint_pdf(states, length=length)
        panel.contourf(x, y, density.T, levels=12, cmap="viridis")
        panel.set(title=title, xlabel="$u_x$")
    panels[0].set_ylabel("$u_{xx}$")
    return figure


def comparison(rows: Sequence[Mapping[str, Any]], unit: str = "") -> "Figure":
    """Valid prediction times of several methods over noise and seconds of training.

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
