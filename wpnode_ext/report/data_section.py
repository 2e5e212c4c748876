"""The part of a report about the data: noise, filter, refined states."""

from typing import TYPE_CHECKING

from torch import Tensor

from .. import figures
from ..data import Series
from ..data.noise import NOISE_OF, noise_ratio, noise_table
from ..figures import save_figure
from ..model.files import RefinedStates
from ..model.forecaster import Forecaster
from ..model.prepare import filtered
from ..training.run_folder import RunFolder
from ..weak.noise import estimate_noise
from .html import Page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# States with more entries are drawn as images over space and time.
MANY = 6
# Samples of the stretch that shows raw and refined series.
STRETCH = 600
# Components whose noise is listed.
MOST_ROWS = 20
Names = tuple[str, ...] | None


def show_data(
    page: Page,
    series: Series,
    clean: Tensor | None,
    model: Forecaster | None,
    run: RunFolder,
) -> None:
    """Size, gaps and noise of the observations, and what the filter makes of them."""
    page.heading("The data")
    size = " x ".join(str(n) for n in series.state_shape)
    page.table([("data", series.describe()), ("state", size)])
    if series.dt is None:
        page.paragraph("Noise is not estimated at irregular times.", note=True)
        return
    _show_noise(page, series)
    if model is not None:
        stop = min(series.lengths[0], 20 * model.config_.weak.ell)
        piece = series.cut([(0, 0, stop)])
        smooth = filtered(piece, model.config_, None).v
        truth = None if clean is None else clean[: len(piece.v)]
        caption = "A stretch of the data before and after the filter of the weak form."
        figure = figures.filtering(
            piece.times, piece.v, smooth, truth, names=model.names_
        )
        add_figure(page, run, "filter", figure, caption)


def _show_noise(page: Page, series: Series) -> None:
    """How much noise the data hold, over all and in every component."""
    _, spread = series.mean_and_spread()
    if not (spread > 0).any():
        page.paragraph("Noise was not estimated: no component varies.")
        return
    try:
        found = estimate_noise(series.v, mask=series.mask, lengths=series.lengths)
    except ValueError as error:
        page.paragraph(f"Noise was not estimated: {error}", note=True)
        return
    ratio = noise_ratio(series.with_nan(), found.sigma)
    text = (
        f"Noise estimated from the data alone: {100 * ratio:.2g} % of "
        f"{NOISE_OF['global_rms']}"
    )
    if not found.reliable.all():
        text += ", an upper bound: some components are not smooth from sample to sample"
    page.paragraph(text + ".")
    names = _component_names(series.names, len(spread))
    header, rows = noise_table(names, found.sigma, spread, found.reliable)
    page.table(rows[:MOST_ROWS], header)
    if rows[MOST_ROWS:]:
        page.paragraph(f"{len(rows) - MOST_ROWS} more components.", note=True)


def show_refined(
    page: Page,
    found: RefinedStates,
    series: Series,
    clean: Tensor | None,
    names: Names,
    run: RunFolder,
) -> None:
    """Noise and error bars, and the raw beside the refined series."""
    page.heading("States refined with the field")
    if found.states.shape != series.v.shape:
        page.paragraph("The data are not those the states belong to.", note=True)
        return
    noise, bars = found.sigma.flatten(), found.std.flatten(1).square().mean(0).sqrt()
    known = _component_names(names, len(noise))
    page.table(
        [
            (name, f"{s:.4g}", f"{b:.3g}", f"{100 * b / s:.2g} %" if s > 0 else "")
            for name, s, b in zip(known, noise.tolist(), bars.tolist(), strict=True)
        ][: 2 * MANY],
        header=("component", "noise", "error of refined states", "of the noise"),
    )
    if found.rounds:
        last = found.rounds[-1]
        page.paragraph(
            f"{len(found.rounds)} rounds of smoothing and fitting. Observations kept "
            f"from them were missed by {last['loss']:.3f} noise variances in the end; "
            "1 is the noise itself."
        )
    stop = min(series.lengths[0], STRETCH)
    figure = figures.filtering(
        series.times[:stop],
        series.v[:stop],
        found.states[:stop],
        None if clean is None else clean[:stop],
        names=names,
        label="refined",
    )
    caption = "A stretch of the data, raw and refined."
    add_figure(page, run, "states", figure, caption)


def add_figure(
    page: Page, run: RunFolder, name: str, figure: "Figure", caption: str
) -> None:
    """Into the page, and as a file of its own into ``figures/``."""
    save_figure(figure, run.figures / f"{name}.png", dpi=150)
    page.figure(figure, caption)


def _component_names(names: Names, count: int) -> list[str]:
    return [f"u{i}" for i in range(count)] if names is None else list(names)
