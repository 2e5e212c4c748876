"""``wpnode report``: one page about a run."""

import argparse
from pathlib import Path

from ..report.page import write_report
from ..training.run_folder import RunFolder
from .common import add_command, read_model, say, substeps_of
from .data import DataConfig
from .judge import (
    Judgement,
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
        "Settings, versions, training curves, noise, filter, forecasts and their "
        "climate, and the\nspread of an ensemble, with the figures in the page. "
        "Forecasts are compared with\n--reference, else with the filtered data held "
        "out of training.",
        "example: wpnode report runs/first --reference l63_test.npz --lyapunov 0.91",
    )
    parser.add_argument("run_folder", metavar="RUN", help="run folder")
    parser.add_argument("--reference", help="file with a reference trajectory")
    parser.add_argument("-o", "--output", type=Path, help="default RUN/report.html")
    add_judge_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    folder = RunFolder(arguments.run_folder).require()
    config, series = read_run(arguments.run_folder)
    model = read_model(arguments.run_folder) if folder.model.exists() else None
    found = Judgement(note="The run has no trained model yet.")
    if model is not None:
        reference, note = None, "Forecasts were not judged: the data are gone."
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
    path = write_report(
        folder,
        model,
        series=series,
        evaluation=found.evaluation,
        climate=found.climate,
        fit=found.fit,
        ensemble=found.ensemble,
        length=arguments.length,
        note=found.note,
        path=arguments.output,
    )
    say(f"report: {path}")
