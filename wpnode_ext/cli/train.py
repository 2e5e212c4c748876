"""``wpnode train``: settings and data in, a run folder with a model out."""

import argparse
import warnings
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from ..common.files import checked_path
from ..data import Series
from ..model.estimator import WPNODE
from ..model.verdict import PoorFit
from ..settings.config import TrainConfig
from ..settings.text import load as load_settings
from ..training.distributed import ProcessGroup, join
from ..training.run_folder import Run, RunFolder
from .common import add_command, print_table, print_verdict, say
from .data import (
    RunConfig,
    read_series,
    read_validation,
    run_folder_of,
    with_settings,
)

EPILOG = """\
settings and their defaults:
{keys}

  None         the paper's value for the method
  weak.*=0     chosen from the data, as by `wpnode tune`
  method=auto  closed_form where it applies; wp if its field does not explain the data
  refine       improve the field and the states together; None does so with closed_form
  ensemble     number of fields for forecasts with a standard deviation
  field.steepness=None  chosen from the data where they are noisy

examples:
  wpnode train data.path=l63.npz name=first
  wpnode train l63.yaml method=closed_form field.kind=library ensemble=30
  wpnode train l63.yaml method=weak weak.ell=40 optim.epochs=500 refine=true
  wpnode train l63.yaml --dry-run
  wpnode train --resume runs/first
  torchrun --nproc-per-node=2 -m wpnode_ext train l63.yaml
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    keys = [f"  {key}={value}" for key, value in _leaves(RunConfig())]
    parser = add_command(
        commands,
        "train",
        "learn a field from data",
        "Settings come from a YAML file, then from key=value arguments, which win. The "
        "run folder\nruns/NAME holds config.yaml, env.json, metrics.csv, log.txt, "
        "checkpoints/ and model.pt.\nCtrl-C saves the run; --resume continues it and "
        "gives the same bits as an uninterrupted run.",
        EPILOG.format(keys="\n".join(keys)),
    )
    parser.add_argument("settings", nargs="*", metavar="CONFIG.yaml | key=value")
    parser.add_argument("--resume", metavar="RUN", help="continue the run in a folder")
    parser.add_argument(
        "--dry-run", action="store_true", help="print settings and data, then stop"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a run of the same name"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    config, folder = _settings(arguments)
    series = read_series(config.data)
    if arguments.dry_run:
        chosen = _model(arguments, config).choose(series)
        _show(with_settings(config, chosen.config), series, folder)
        return 0
    group = join(config.device)
    try:
        return _train(arguments, config, series, folder, group)
    finally:
        group.close()


def _settings(arguments: argparse.Namespace) -> tuple[RunConfig, RunFolder]:
    files = [s for s in arguments.settings if "=" not in s]
    overrides = [s for s in arguments.settings if "=" in s]
    if len(files) > 1:
        raise ValueError(
            f"`settings` must name one file at most; got {', '.join(files)}."
        )
    if arguments.resume and files:
        raise ValueError(
            f"`--resume` must come without a settings file; got {files[0]}. The run "
            "has its own settings; key=value arguments change them."
        )
    for file in files:
        if not Path(file).is_file():
            raise FileNotFoundError(f"there is no settings file {file}.")
    if arguments.resume:
        folder = RunFolder(checked_path(arguments.resume, "--resume")).require()
        return load_settings(RunConfig, folder.config, overrides), folder
    config = load_settings(RunConfig, files[0] if files else None, overrides)
    return config, run_folder_of(config)


def _train(
    arguments: argparse.Namespace,
    config: RunConfig,
    series: Series,
    folder: RunFolder,
    group: ProcessGroup,
) -> int:
    """Fits in the run folder, prints the result, and returns the exit code."""

    def begin(settings: TrainConfig) -> None:
        if not arguments.resume:
            folder.create(overwrite=arguments.overwrite)
            folder.write_config(with_settings(config, settings))
            folder.write_environment()

    model = _model(arguments, config)
    where = Run(folder, bool(arguments.resume), group, model.verbose, begin)
    with where.opened():
        with warnings.catch_warnings():
            # The verdict is printed at the end.
            warnings.simplefilter("ignore", PoorFit)
            model.fit(series, validation=read_validation(config.data), run=where)
        if not group.is_main:
            return 0
        if model.result_.signal is not None:
            say(f"stopped; continue with: wpnode train --resume {folder.path}")
            return 128 + model.result_.signal
        model.save(folder.model)
        # After the model: a run that is killed before is resumed with the settings it
        # began with, and chooses again.
        folder.write_config(with_settings(config, model.config_))
    _print_result(model, series, folder)
    return print_verdict(model)


def _model(arguments: argparse.Namespace, config: RunConfig) -> WPNODE:
    return WPNODE(config=config, verbose=not arguments.quiet)


def _print_result(model: WPNODE, series: Series, folder: RunFolder) -> None:
    result, solved = model.result_, model.config_.method == "closed_form"
    names = ("rounds", "field of round") if solved else ("epochs", "weights of epoch")
    best = result.best_epoch + (0 if solved else 1)
    # A closed form without refinement has no rounds.
    length = [(names[0], result.epochs), (names[1], best)] if result.epochs else []
    print_table(
        [
            ("run", folder.path),
            ("data", series.describe()),
            ("model", folder.model),
            ("method", f"{model.config_.method} ({model.why_})"),
            *length,
            ("score", f"{result.best_score:.4g}"),
        ]
    )
    say(f"next: wpnode report {folder.path}")


def _show(config: RunConfig, series: Series, folder: RunFolder) -> None:
    print_table([*_leaves(config)])
    print()
    print_table(
        [
            ("data", series.describe()),
            ("state", list(series.state_shape)),
            ("inputs", 0 if series.forcing is None else series.forcing[0].numel()),
            ("run folder", folder.path),
        ]
    )


def _leaves(config: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Every key with its value, nested ones with dots."""
    found = []
    for entry in fields(config):
        value = getattr(config, entry.name)
        if is_dataclass(value):
            found += _leaves(value, f"{prefix}{entry.name}.")
        else:
            found.append((prefix + entry.name, value))
    return found
