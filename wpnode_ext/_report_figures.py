"""The figures of a report, from what an evaluation and a log hold."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .data import Series
from .evaluation import Evaluation
from .training.loop import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# States with more entries are drawn as images over space and time.
MANY = 6
TRUTH, MODEL = "black", "tab:orange"


def _figure(width: float, height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "figures need matplotlib; pip install 'wpnode_ext[plot]'."
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def forecasts(result: Evaluation) -> "Figure":
    """The longest, the median and the shortest forecast."""
    order = result.vpt.vpt.argsort(descending=True).tolist()
    members = [order[0], order[len(order) // 2], order[-1]]
    if result.u.flatten(2).shape[2] > MANY:
        return _space_time(result, members[1])
    rows = result.u.flatten(2).shape[2]
    figure = _figure(10, 1.3 * rows + 0.8)
    grid = figure.subplots(rows, 3, sharex=True, squeeze=False)
    for column, member in enumerate(members):
        valid = result.vpt.vpt_time[member].item()
        title = f"valid for {result.vpt.vpt[member].item():.2f} {result.unit}"
        grid[0, column].set_title(title, fontsize="medium")
        for row in range(rows):
            axes = grid[row, column]
            truth = result.u.flatten(2)[:, member, row]
            path = result.u_hat.flatten(2)[:, member, row]
            axes.plot(result.t, truth, color=TRUTH, lw=1, label="truth")
            axes.plot(result.t, path, color=MODEL, lw=1, ls="--", label="forecast")
            axes.axvline(valid, color="grey", lw=0.8)
            room = 0.1 * (truth.max() - truth.min()).item()
            axes.set_ylim(truth.min().item() - room, truth.max().item() + room)
        grid[-1, column].set_xlabel("time")
    grid[0, 0].legend(loc="lower left", fontsize="small")
    return figure


def _space_time(result: Evaluation, member: int) -> "Figure":
    truth = result.u.flatten(2)[:, member].T
    path = result.u_hat.flatten(2)[:, member].T
    figure = _figure(9, 6)
    limit = truth.abs().max().item()
    extent = (0.0, result.t[-1].item(), 0.0, float(len(truth)))
    panels = {"truth": truth, "forecast": path, "difference": path - truth}
    rows = figure.subplots(3, 1, sharex=True)
    for axes, (name, values) in zip(rows, panels.items(), strict=True):
        axes.imshow(
            values,
            aspect="auto",
            origin="lower",
            extent=extent,
            cmap="RdBu_r",
            vmin=-limit,
            vmax=limit,
        )
        axes.set(title=name, ylabel="component")
        axes.axvline(result.vpt.vpt_time[member].item(), color="black", lw=0.8)
    rows[-1].set_xlabel("time")
    figure.colorbar(rows[0].images[0], ax=list(rows))
    return figure


def error_growth(result: Evaluation) -> "Figure":
    """Root mean square error against lead time."""
    figure = _figure(7, 3)
    axes = figure.subplots()
    axes.semilogy(result.t[1:], result.rmse[1:], color=MODEL, label="model")
    still = result.rmse_persistence[1:]
    axes.semilogy(result.t[1:], still, color="grey", label="unchanged state")
    axes.axhline(result.vpt.threshold, color=TRUTH, lw=0.8, ls=":", label="threshold")
    axes.set(xlabel="lead time", ylabel="error / spread")
    axes.legend(fontsize="small")
    return figure


def attractor(result: Evaluation) -> "Figure":
    """Projection on two components, and the density of each of the first three."""
    truth, path = (x.flatten(2).flatten(0, 1) for x in (result.u, result.u_hat))
    path = path[path.isfinite().all(1)]
    dim = truth.shape[1]
    figure = _figure(10, 3.2)
    axes, *rest = figure.subplots(1, 1 + min(3, dim))
    second = min(2, dim - 1)
    for states, color, label in ((truth, TRUTH, "truth"), (path, MODEL, "forecasts")):
        axes.plot(states[:, 0], states[:, second], ",", color=color, label=label)
    axes.set(xlabel="component 0", ylabel=f"component {second}")
    for number, panel in enumerate(rest):
        low, high = truth[:, number].min().item(), truth[:, number].max().item()
        edges = torch.linspace(low, high + 1e-12, 61, dtype=torch.float64)
        centres = (edges[1:] + edges[:-1]) / 2
        for states, color in ((truth, TRUTH), (path, MODEL)):
            values = states[:, number].clamp(low, high)
            density = torch.histogram(values.cpu(), edges, density=True).hist
            panel.plot(centres, density, color=color)
        panel.set(xlabel=f"component {number}", ylabel="density" if not number else "")
    return figure


def filtering(series: Series, smooth: Tensor, clean: Tensor | None) -> "Figure":
    """A stretch of the first components before and after the filter."""
    rows = min(3, series.v.flatten(1).shape[1])
    figure = _figure(9, 1.6 * rows + 0.6)
    grid = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    for row, axes in enumerate(grid):
        axes.plot(series.times, series.v.flatten(1)[:, row], ".", ms=2, color="grey")
        if clean is not None:
            axes.plot(series.times, clean.flatten(1)[:, row], color=TRUTH, lw=1)
        axes.plot(series.times, smooth.flatten(1)[:, row], color=MODEL, lw=1, ls="--")
        axes.set_ylabel(f"component {row}")
    names = ["data", *(["truth"] if clean is not None else []), "filtered"]
    grid[0].legend(names, fontsize="small", ncols=3)
    grid[-1].set_xlabel("time")
    return figure


def training(rows: list[Row]) -> "Figure":
    """Loss and its terms, validation error, learning rate."""
    epochs = [row["epoch"] + 1 for row in rows]
    judged = [row for row in rows if "val_error" in row]
    figure = _figure(10, 3)
    panels = figure.subplots(1, 3)
    for name in ("loss", "weak", "strong"):
        values = [row.get(name, 0.0) for row in rows]
        if any(v > 0 for v in values):
            panels[0].semilogy(epochs, values, lw=1, label=name)
    panels[0].legend(fontsize="small")
    panels[0].set(xlabel="epoch", ylabel="loss")
    panels[1].plot(
        [row["epoch"] + 1 for row in judged],
        [row["val_error"] for row in judged],
        color=MODEL,
    )
    panels[1].set(xlabel="epoch", ylabel="validation error")
    panels[2].semilogy(epochs, [row["lr"] for row in rows], color="grey")
    panels[2].set(xlabel="epoch", ylabel="learning rate")
    return figure
