"""``wpnode report``: one page about a run."""

import argparse
from pathlib import Path

from ..data import Series
from ..evaluation import Evaluation
from ..forecaster import Forecaster
from ..report import write_report
from ..training import config as settings
from ..training.prepare import filtered
from ..training.run_folder import RunFolder
from .common import add_command, read_model
from .data import DataConfig, RunConfig, read_series


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "report",
        "write one HTML page about a run",
        "Settings, versions, training curves, noise, filter and forecasts, with the "
        "figures in the\npage. Forecasts are compared with --reference, else with the "
        "filtered end of the data,\nwhich was held out of training.",
    )
    parser.add_argument("run_folder", metavar="RUN", help="run folder")
    parser.add_argument("--reference", help="file with a reference trajectory")
    parser.add_argument("--lyapunov", type=float, help="maximal exponent of the system")
    parser.add_argument("--threshold", type=float, default=0.3, help="valid error")
    parser.add_argument("-o", "--output", type=Path, help="default RUN/report.html")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    folder = RunFolder(arguments.run_folder).require()
    config = settings.load(RunConfig, folder.config)
    model = read_model(arguments.run_folder) if folder.model.exists() else None
    series = read_series(config.data) if Path(config.data.path).exists() else None
    evaluation, note = None, ""
    if model is not None and model.forcing_scaler_ is None:
        evaluation, note = _evaluate(arguments, model, series)
    path = write_report(
        folder,
        model,
        series=series,
        evaluation=evaluation,
        note=note,
        path=arguments.output,
    )
    print(path)


def _evaluate(
    arguments: argparse.Namespace, model: Forecaster, series: Series | None
) -> tuple[Evaluation | None, str]:
    options = {
        "lyapunov_exponent": arguments.lyapunov,
        "threshold": arguments.threshold,
    }
    if arguments.reference is not None:
        reference = read_series(DataConfig(path=arguments.reference, dt=model.dt_))
        if reference.dt is None:
            raise ValueError("`--reference` must have samples at equal distances.")
        note = f"Reference: {arguments.reference}."
        return model.evaluate(reference.v, reference.dt, **options), note
    if series is None or series.dt is None or series.mask is not None:
        return None, ""
    fraction = model.config_.validation.fraction or 0.1
    first, stop = round((1 - fraction) * series.lengths[0]), series.lengths[0]
    if stop - first <= model.config_.weak.ell:
        return None, ""
    held_out = filtered(series.cut([(0, first, stop)]), model.config_, None)
    note = (
        "Reference: the held-out end of the data after the filter, as no other was "
        "given. Its own errors limit the times below."
    )
    return model.evaluate(held_out.v, series.dt, **options), note
