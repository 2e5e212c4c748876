"""One HTML page about a training run: verdict, forecasts, data, training, settings."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .. import figures
from ..common.files import read_json, write_text
from ..data import Series, component_names
from ..data.noise import NOISE_OF, noise_ratio, noise_table
from ..metrics import GoodnessOfFit
from ..metrics.climate import Climate
from ..metrics.evaluation import Evaluation
from ..model.ensemble import EnsembleForecast
from ..model.files import RefinedStates, read_states
from ..model.forecaster import Forecaster
from ..model.prepare import filtered
from ..settings.text import read_settings
from ..training.log import read_metrics
from ..training.run_folder import RunFolder
from ..weak.noise import estimate_noise
from .html import Page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Share of the members that the bands of a forecast hold.
LEVEL = 0.9
# States with more entries are drawn as images over space and time.
MANY = 6
# Samples of the stretch that shows raw and refined series.
STRETCH = 600
# Components in the tables of noise and of refined states.
MOST_ROWS = 20
Names = tuple[str, ...] | None


@dataclass
class Judgement:
    """The judgement of a model; parts that the data do not allow are None.

    Attributes:
        evaluation: forecasts against a reference.
        climate: statistics of long forecasts against it.
        fit: goodness of fit to the observations.
        ensemble: forecasts of the members of an ensemble from the same starts.
        length: of the periodic line that the state lives on, for its densities.
        note: one sentence that names the reference, or the reason why there is none.
    """

    evaluation: Evaluation | None = None
    climate: Climate | None = None
    fit: GoodnessOfFit | None = None
    ensemble: EnsembleForecast | None = None
    length: float | None = None
    note: str = ""


def write_report(
    run: RunFolder,
    model: Forecaster | None = None,
    found: Judgement | None = None,
    *,
    series: Series | None = None,
    clean: Tensor | None = None,
    path: Path | None = None,
) -> Path:
    """Writes ``report.html`` into a run folder; figures are part of the page.

    Args:
        run: the run folder; the page shows its settings, versions and metrics.
        model: the trained model, if there is one yet.
        found: the judgement of the model.
        series: the observations, for the noise estimate and the filter.
        clean: the truth behind them, ``[N, *state]``, where it is known.
        path: file to write; default ``report.html`` in the folder.
    """
    run.require()
    page, found = Page(f"Run {run.path.name}"), found or Judgement()
    names = None if model is None else model.names_
    if model is not None and model.verdict_ is not None:
        verdict, numbers = model.verdict_.lines()
        page.verdict(verdict, numbers)
    if model is not None and model.why_:
        page.paragraph(f"Method: {model.config_.method} ({model.why_}).")
    if found.evaluation is not None:
        _show_forecasts(page, found.evaluation, found, names, run)
        if found.climate is not None:
            _show_climate(page, found.climate, found.evaluation, found, names, run)
    elif found.note:
        page.paragraph(found.note, note=True)
    if found.fit is not None:
        _show_fit(page, found.fit)
    if series is not None:
        show_data(page, series, clean, model, run)
        if run.states.exists():
            _show_refined(page, read_states(run.states), series, clean, names, run)
    if run.metrics.exists():
        _show_training(page, run)
    _show_settings(page, run)
    path = path or run.path / "report.html"
    write_text(path, page.render())
    return path


def _show_forecasts(
    page: Page, result: Evaluation, found: Judgement, names: Names, run: RunFolder
) -> None:
    page.heading("How good are the forecasts?")
    low, high = result.vpt.interval
    page.paragraph(
        f"The error of forecasts stays below {result.vpt.threshold:g} of the spread of "
        f"the data for {result.vpt.mean:.2f} {result.unit} on average (95 % interval "
        f"{low:.2f} to {high:.2f}; {len(result.starts)} starts)."
    )
    if found.note:
        page.paragraph(found.note, note=True)
    rows, band = result.rows(), None
    errors = {"model": result.rmse, "unchanged state": result.rmse_persistence}
    if found.ensemble is not None:
        band = found.ensemble.interval(LEVEL)
        rows += _spread(found.ensemble, band, result)
        # In the units of the errors: spreads of the reference.
        size = result.u.flatten(0, 1).std(0, correction=0)
        spread = (found.ensemble.std / size).flatten(1).square().mean(1).sqrt()
        errors["spread of the ensemble"] = spread
    page.table(rows)
    figure, caption = _forecast_figure(result, band, names)
    _add_figure(page, run, "forecast", figure, caption)
    figure = figures.error_growth(result.t, errors, threshold=result.vpt.threshold)
    caption = (
        "Error over lead time in units of the spread, for the model and for an "
        "unchanged state."
    )
    _add_figure(page, run, "error", figure, caption)


def _forecast_figure(
    result: Evaluation, band: tuple[Tensor, Tensor] | None, names: Names
) -> tuple["Figure", str]:
    """The longest, the median and the shortest forecast, with a caption."""
    order = result.vpt.vpt.argsort(descending=True).tolist()
    members = [order[0], order[len(order) // 2], order[-1]]
    if result.u.flatten(2).shape[2] > MANY:
        middle = members[1]
        figure = figures.space_time(
            result.t,
            result.u_hat[:, middle],
            result.u[:, middle],
            valid_until=result.vpt.vpt_time[middle].item(),
        )
        return figure, "The median forecast; the line marks the valid time."
    figure = figures.forecast(
        result.t,
        result.u_hat[:, members],
        result.u[:, members],
        valid_until=result.vpt.vpt_time[members],
        titles=[
            f"valid for {result.vpt.vpt[member].item():.2f} {result.unit}"
            for member in members
        ],
        names=names,
        band=band and (band[0][:, members], band[1][:, members]),
    )
    caption = (
        "Forecasts and truth: the longest, the median and the shortest forecast; the "
        "line marks the valid time."
    )
    if band is not None:
        caption += f" Bands hold {LEVEL:.0%} of the ensemble."
    return figure, caption


def _spread(
    ensemble: EnsembleForecast, band: tuple[Tensor, Tensor], result: Evaluation
) -> list[tuple[str, str]]:
    """Rows: the number of members, and how often their interval holds the truth."""
    low, high = band
    # All forecasts begin at the reference, so its first sample does not count.
    inside = ((low <= result.u) & (result.u <= high))[1:].double().mean().item()
    return [
        ("members of the ensemble", str(len(ensemble.members))),
        (f"reference within their {LEVEL:.0%} interval", f"{100 * inside:.0f} %"),
    ]


def _show_climate(
    page: Page,
    climate: Climate,
    result: Evaluation,
    found: Judgement,
    names: Names,
    run: RunFolder,
) -> None:
    page.heading("Is the climate of long forecasts right?")
    page.table(climate.rows())
    path = climate.u_hat[:, climate.bounded.bounded]
    if path.shape[1] == 0:
        page.paragraph("No figure: no long forecast stayed bounded.", note=True)
        return
    figure = figures.attractor(path, result.u, names=names)
    caption = "States that the truth and long forecasts visit."
    _add_figure(page, run, "attractor", figure, caption)
    truth, path = (x.flatten(2).flatten(0, 1) for x in (result.u, path))
    if ((truth.std(0) > 0) & (path.std(0) > 0)).all():
        figure = figures.densities(path, truth, length=found.length, names=names)
        caption = "Densities of the components of the truth and of long forecasts."
        _add_figure(page, run, "densities", figure, caption)


def _show_fit(page: Page, fit: GoodnessOfFit) -> None:
    page.heading("Does the field explain the data up to noise?")
    page.paragraph(
        "This check needs no reference. The ratio is near 1 if the field explains the "
        "data, far above 1 if it misses part of the dynamics, and far below 1 if it "
        "follows the noise. Small p-values (below 0.01) mean that the residuals still "
        "have structure."
    )
    page.table(fit.rows())


def show_data(
    page: Page,
    series: Series,
    clean: Tensor | None,
    model: Forecaster | None,
    run: RunFolder,
) -> None:
    """Size, gaps and noise of the observations, and the effect of the filter."""
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
        _add_figure(page, run, "filter", figure, caption)


def _show_noise(page: Page, series: Series) -> None:
    """The noise of the data as a whole and of every component."""
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
    names = component_names(series.names, len(spread))
    header, rows = noise_table(names, found.sigma, spread, found.reliable)
    page.table(rows[:MOST_ROWS], header)
    if rows[MOST_ROWS:]:
        page.paragraph(f"{len(rows) - MOST_ROWS} more components.", note=True)


def _show_refined(
    page: Page,
    found: RefinedStates,
    series: Series,
    clean: Tensor | None,
    names: Names,
    run: RunFolder,
) -> None:
    """Noise and error of the refined states, and a figure of raw and refined series."""
    page.heading("States refined with the field")
    if found.states.shape != series.v.shape:
        page.paragraph(
            "The refined states do not belong to these data: their shapes differ.",
            note=True,
        )
        return
    noise, bars = found.sigma.flatten(), found.std.flatten(1).square().mean(0).sqrt()
    known = component_names(names, len(noise))
    rows = [
        (name, f"{s:.4g}", f"{b:.3g}", f"{100 * b / s:.2g} %" if s > 0 else "")
        for name, s, b in zip(known, noise.tolist(), bars.tolist(), strict=True)
    ]
    page.table(
        rows[:MOST_ROWS],
        header=("component", "noise", "error of refined states", "of the noise"),
    )
    if found.rounds:
        last = found.rounds[-1]
        page.paragraph(
            f"{len(found.rounds)} rounds of smoothing and fitting. The squared error "
            "of the refined states at observations that were held out is "
            f"{last['loss']:.3f} noise variances; the noise alone gives 1."
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
    _add_figure(page, run, "states", figure, caption)


def _show_training(page: Page, run: RunFolder) -> None:
    rows = read_metrics(run.metrics)
    if not rows:
        return
    page.heading("Training")
    last = rows[-1]
    judged = [row for row in rows if "val_error" in row]
    table: list[tuple[str, Any]] = [
        ("epochs", int(last["epoch"]) + 1),
        ("last loss", f"{last['loss']:.4g}"),
    ]
    times = [row["seconds"] for row in rows if "seconds" in row]
    if times:
        table.append(("seconds an epoch", f"{median(times):.3g}"))
    if judged:
        best = min(judged, key=lambda row: row["val_error"])
        epoch = int(best["epoch"]) + 1
        text = f"{best['val_error']:.4g}, epoch {epoch} (the model has its weights)"
        table.append(("best validation error", text))
    page.table(table)
    figure = figures.training_curves(rows)
    caption = "Loss, validation error and learning rate."
    _add_figure(page, run, "training", figure, caption)


def _show_settings(page: Page, run: RunFolder) -> None:
    page.heading("Settings")
    page.table(_flat(read_settings(run.config)), header=("setting", "value"))
    if run.env.exists():
        page.heading("Versions and machine")
        page.table(_flat(read_json(run.env)))


def _add_figure(
    page: Page, run: RunFolder, name: str, figure: "Figure", caption: str
) -> None:
    """Puts a figure into the page, and into a file of ``figures/``."""
    figures.save_figure(figure, run.figures / f"{name}.png", dpi=150)
    page.figure(figure, caption)


def _flat(values: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Nested settings as rows; keys of inner ones follow a dot."""
    rows = []
    for key, value in values.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", value))
    return rows
