"""``wpnode report``: one page about a run."""

import argparse
from pathlib import Path

from ..report.page import Judgement, write_report
from ..training.run_folder import RunFolder
from .common import add_command, read_model, say, substeps_of
from .data import DataConfig
from .evaluate import (
    add_judge_arguments,
    held_out_reference,
    judge,
    read_run,
    reference_from_file,
)


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "report",
        "write one HTML page about a run",
        "The page shows the verdict on the model, its forecasts and their climate, the "
        "noise of the\ndata, the effect of the filter, training curves, settings and "
        "versions, with all figures.\nForecasts are compared with --reference, or else "
        "with the run's held-out data after\nthe filter.",
        "example: wpnode report runs/first --reference l63_test.npz --lyapunov 0.91",
    )
    parser.add_argument("run_folder", metavar="RUN", help="run folder")
    parser.add_argument("--reference", help="file with a reference trajectory")
    parser.add_argument(
        "-o", "--output", type=Path, help="file; RUN/report.html by default"
    )
    add_judge_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    folder = RunFolder(arguments.run_folder).require()
    config, series = read_run(arguments.run_folder)
    model = read_model(arguments.run_folder) if folder.model.exists() else None
    found = Judgement(note="The run has no trained model yet.")
    if model is not None:
        reference, note = None, "No forecasts were judged: the data file is missing."
        if arguments.reference is not None:
            where = DataConfig(path=arguments.reference)
            reference, note = reference_from_file(where, model, arguments.run_folder)
        elif config is not None and series is not None:
            reference, note = held_out_reference(config, series, model)
        found = judge(arguments, model, reference, note, series)
        shown = found.evaluation
        if shown is not None and model.members_:
            steps = substeps_of(arguments.substeps, arguments.solver)
            found.ensemble = model.forecast_ensemble(
                shown.u[0],
                shown.t,
                method=arguments.solver,
                step=shown.t[1].item() / steps,
            )
    path = write_report(folder, model, found, series=series, path=arguments.output)
    say(f"report: {path}")
