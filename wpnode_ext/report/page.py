"""One HTML page about a training run: what was done, how it went, how good it is."""

from pathlib import Path
from statistics import median
from typing import Any

from torch import Tensor

from .. import figures
from ..common.files import read_json, write_text
from ..data import Series
from ..metrics import GoodnessOfFit
from ..metrics.climate import Climate
from ..metrics.evaluation import Evaluation
from ..model.ensemble import EnsembleForecast
from ..model.files import read_states
from ..model.forecaster import Forecaster
from ..settings.text import read_settings
from ..training.log import read_metrics
from ..training.run_folder import RunFolder
from .data_section import MANY, Names, add_figure, show_data, show_refined
from .html import Page

# Share of the members that the bands of a forecast hold.
LEVEL = 0.9


def write_report(
    run: RunFolder,
    model: Forecaster | None = None,
    *,
    series: Series | None = None,
    clean: Tensor | None = None,
    evaluation: Evaluation | None = None,
    climate: Climate | None = None,
    fit: GoodnessOfFit | None = None,
    ensemble: EnsembleForecast | None = None,
    length: float | None = None,
    note: str = "",
    path: Path | None = None,
) -> Path:
    """Writes ``report.html`` into a run folder; figures are part of the page.

    Args:
        run: the run folder; its settings, versions and metrics are shown.
        model: the trained model, if there is one yet.
        series: the observations, for the noise estimate and the filter.
        clean: the truth behind them, ``[N, *state]``, where it is known.
        evaluation: forecasts against a reference.
        climate: statistics of long forecasts against it.
        fit: goodness of fit to the observations.
        ensemble: forecasts of the members of an ensemble from the same starts.
        length: of the periodic line the state lives on, for its densities.
        note: one sentence on what the forecasts were judged against, or why not.
        path: file to write; default ``report.html`` in the folder.
    """
    run.require()
    page = Page(f"Run {run.path.name}")
    names = None if model is None else model.names_
    if model is not None and model.verdict_ is not None:
        verdict, figures_behind = model.verdict_.lines()
        page.verdict(verdict, figures_behind)
    if model is not None and model.why_:
        page.paragraph(f"Method: {model.config_.method} ({model.why_}).")
    if note and evaluation is None:
        page.paragraph(note, note=True)
    if evaluation is not None:
        _forecasts(page, evaluation, ensemble, note, names, run)
    if climate is not None and evaluation is not None:
        _climate(page, climate, evaluation, length, names, run)
    if fit is not None:
        _fit(page, fit)
    if series is not None:
        show_data(page, series, clean, model, run)
    if run.states.exists() and series is not None:
        show_refined(page, read_states(run.states), series, clean, names, run)
    if run.metrics.exists():
        _training(page, run)
    _settings(page, run)
    path = path or run.path / "report.html"
    write_text(path, page.render())
    return path


def _forecasts(
    page: Page,
    result: Evaluation,
    ensemble: EnsembleForecast | None,
    note: str,
    names: Names,
    run: RunFolder,
) -> None:
    page.heading("How good are the forecasts?")
    low, high = result.vpt.interval
    page.paragraph(
        f"Forecasts stay within {result.vpt.threshold:g} of the spread of the data for "
        f"{result.vpt.mean:.2f} {result.unit} on average (95 % interval {low:.2f} to "
        f"{high:.2f}; {len(result.starts)} starts)."
    )
    if note:
        page.paragraph(note, note=True)
    rows, band = result.rows(), None
    errors = {"model": result.rmse, "unchanged state": result.rmse_persistence}
    if ensemble is not None:
        band = ensemble.interval(LEVEL)
        rows += _spread(ensemble, band, result)
        # In the units of the errors: spreads of the reference.
        size = result.u.flatten(0, 1).std(0, correction=0)
        spread = (ensemble.std / size).flatten(1).square().mean(1).sqrt()
        errors["spread of the ensemble"] = spread
    page.table(rows)
    order = result.vpt.vpt.argsort(descending=True).tolist()
    members = [order[0], order[len(order) // 2], order[-1]]
    if result.u.flatten(2).shape[2] > MANY:
        median_one = members[1]
        figure = figures.space_time(
            result.t,
            result.u_hat[:, median_one],
            result.u[:, median_one],
            valid_until=result.vpt.vpt_time[median_one].item(),
        )
        caption = "The median forecast; the line marks the valid time."
    else:
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
            "Forecasts and truth: the longest, the median and the shortest; the line "
            "marks the valid time."
        )
        if band is not None:
            caption += f" Bands hold {LEVEL:.0%} of the ensemble."
    add_figure(page, run, "forecast", figure, caption)
    figure = figures.error_growth(
        result.t,
        errors,
        threshold=result.vpt.threshold,
    )
    caption = (
        "Error against lead time in units of the spread, beside that of an unchanged "
        "state."
    )
    add_figure(page, run, "error", figure, caption)


def _spread(
    ensemble: EnsembleForecast, band: tuple[Tensor, Tensor], result: Evaluation
) -> list[tuple[str, str]]:
    """How many members there are, and whether their intervals hold the truth."""
    low, high = band
    # All forecasts begin at the reference: its first sample tells nothing.
    inside = ((low <= result.u) & (result.u <= high))[1:].double().mean().item()
    return [
        ("members of the ensemble", str(len(ensemble.members))),
        (f"reference within their {LEVEL:.0%} interval", f"{100 * inside:.0f} %"),
    ]


def _climate(
    page: Page,
    climate: Climate,
    result: Evaluation,
    length: float | None,
    names: Names,
    run: RunFolder,
) -> None:
    page.heading("Is the climate of long forecasts right?")
    page.table(climate.rows())
    path = climate.u_hat[:, climate.bounded.bounded]
    if path.shape[1] == 0:
        page.paragraph("No long forecast stayed bounded; none is drawn.", note=True)
        return
    figure = figures.attractor(path, result.u, names=names)
    caption = "States visited by the truth and by long forecasts."
    add_figure(page, run, "attractor", figure, caption)
    truth, path = (x.flatten(2).flatten(0, 1) for x in (result.u, path))
    if ((truth.std(0) > 0) & (path.std(0) > 0)).all():
        figure = figures.densities(path, truth, length=length, names=names)
        add_figure(page, run, "densities", figure, "Densities of their components.")


def _fit(page: Page, fit: GoodnessOfFit) -> None:
    page.heading("Does the field explain the data up to noise?")
    page.paragraph(
        "Told without a reference. The ratio is near 1 where it does, far above where "
        "part of the dynamics is missed, far below where the field follows the noise; "
        "small p-values (below 0.01) say that residuals still hold structure."
    )
    page.table(fit.rows())


def _training(page: Page, run: RunFolder) -> None:
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
        table.append(
            (
                "best validation error",
                f"{best['val_error']:.4g}, epoch "
                f"{int(best['epoch']) + 1} (these weights were kept)",
            )
        )
    page.table(table)
    add_figure(
        page,
        run,
        "training",
        figures.training_curves(rows),
        "Loss, validation error and learning rate.",
    )


def _settings(page: Page, run: RunFolder) -> None:
    page.heading("Settings")
    page.table(_flat(read_settings(run.config)), header=("setting", "value"))
    if run.env.exists():
        page.heading("Versions and machine")
        page.table(_flat(read_json(run.env)))


def _flat(values: Any, prefix: str = "") -> list[tuple[str, Any]]:
    rows = []
    for key, value in values.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", value))
    return rows
