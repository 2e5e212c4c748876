"""``wpnode evaluate``: judges forecasts and climate of a run against a reference.

``wpnode report`` judges a run in the same way.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from ..data import Series
from ..metrics import GoodnessOfFit
from ..metrics.climate import SOLVERS
from ..model.forecaster import Forecaster
from ..model.prepare import filtered
from ..report.page import Judgement
from ..settings.text import load as load_settings
from ..training.run_folder import RunFolder
from .common import (
    add_command,
    add_data_arguments,
    add_forecast_arguments,
    add_solver_arguments,
    data_config,
    print_table,
    read_model,
    say,
    substeps_of,
)
from .data import DataConfig, RunConfig, read_as_trained, read_series, read_validation

# Fewest samples in a row whose statistics are compared with those of a model.
FEWEST = 200


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "evaluate",
        "judge a trained model against a reference",
        "Forecasts start at random samples of the reference, which should not be part "
        "of the\ntraining data, and are compared with its later samples. Clean "
        "references give the\npaper's numbers; noisy ones limit even a perfect model. "
        "Without a reference, the run's\nheld-out data are used after the filter. "
        "Long forecasts show whether the model visits\nthe right states as often as "
        "the system; residuals of the run's own data, whether the\nmodel explains "
        "them up to noise.",
        "example: wpnode evaluate runs/first l63_test.npz --lyapunov 0.91",
    )
    parser.add_argument("model", help="run folder or model file")
    add_data_arguments(parser, optional=True)
    add_judge_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    model = read_model(arguments.model)
    config, observations = read_run(arguments.model)
    if arguments.data is not None:
        where = data_config(arguments)
        reference, note = reference_from_file(where, model, arguments.model)
    elif config is not None and observations is not None:
        reference, note = held_out_reference(config, observations, model)
    else:
        raise ValueError(
            "`data` must name a reference file: the model has no run folder with data "
            "to compare with."
        )
    found = judge(arguments, model, reference, note, observations)
    parts = {
        "forecasts": found.evaluation,
        "climate": found.climate,
        "goodness_of_fit": found.fit,
    }
    if arguments.json:
        numbers: dict[str, Any] = {"note": found.note}
        for name, part in parts.items():
            numbers[name] = None if part is None else _plain(part.summary())
        print(json.dumps(numbers, indent=2))
        return
    titles = {
        "forecasts": "Forecasts",
        "climate": "Climate of long forecasts",
        "goodness_of_fit": "Fit to the data the run was trained on",
    }
    say(found.note)
    for name, part in parts.items():
        if part is not None:
            print(f"\n{titles[name]}")
            print_table(part.rows())


def _plain(values: Any) -> Any:
    """The values with null for infinity and NaN, which JSON does not have."""
    if isinstance(values, dict):
        return {key: _plain(value) for key, value in values.items()}
    if isinstance(values, list):
        return [_plain(value) for value in values]
    return values if not isinstance(values, float) or math.isfinite(values) else None


def add_judge_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of :func:`judge`."""
    group = parser.add_argument_group("judgement")
    add_forecast_arguments(
        group,
        horizon="by default ten Lyapunov times if the exponent is given, at most a "
        "quarter of the reference",
    )
    add_solver_arguments(group)
    group.add_argument("--seed", type=int, default=0, help="seed of the starts")
    group.add_argument(
        "--climate",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare statistics of long forecasts with those of the reference; "
        "forecasts use --solver and, unless it is etdrk4, other solvers as well",
    )
    group.add_argument(
        "--length",
        type=float,
        help="length of the periodic line that the state lives on (KS: 22); the "
        "climate is then judged by the joint density of u_x and u_xx",
    )


def read_run(path: str) -> tuple[RunConfig | None, Series | None]:
    """Settings and observations of a run folder; None for those that are missing."""
    if not Path(path).is_dir():
        return None, None
    config = load_settings(RunConfig, RunFolder(path).require().config)
    there = bool(config.data.path) and Path(config.data.path).exists()
    return config, read_series(config.data) if there else None


def reference_from_file(
    config: DataConfig, model: Forecaster, run: str
) -> tuple[Series, str]:
    """A reference trajectory with a note that names it."""
    series = read_as_trained(config, model, run)
    shape = model.state_shape_
    if tuple(series.state_shape) != shape:
        raise ValueError(
            f"{config.path} must have states of shape {list(shape)}, as the training "
            f"data had; got {list(series.state_shape)}. Name the columns with "
            "--columns."
        )
    if series.dt is None:
        raise ValueError(f"{config.path} must have samples at equal distances.")
    return series, f"Reference: {config.path}."


def held_out_reference(
    config: RunConfig, series: Series, model: Forecaster
) -> tuple[Series | None, str]:
    """The filtered validation data of a run, with a note; None without any."""
    if series.dt is None:
        return None, "No forecasts were judged: the data have irregular times."
    held_out = read_validation(config.data)
    note = (
        "Reference: the held-out data after the filter, because no other reference was "
        "given. They decided which weights were kept, and their own errors limit the "
        "times below."
    )
    if held_out is None:
        if model.config_.method == "closed_form":
            note = (
                "Reference: the end of the training data after the filter, because no "
                "other reference was given. The model was trained on them; a reference "
                "of its own judges it better."
            )
        fraction = model.config_.validation.fraction
        try:
            shortest = model.config_.weak.ell + 1
            held_out = series.split(fraction, min_length=shortest)[1]
        except ValueError:
            return None, "No forecasts were judged: no data were held out."
    return filtered(held_out, model.config_, None), note


def judge(
    arguments: argparse.Namespace,
    model: Forecaster,
    reference: Series | None,
    note: str,
    observations: Series | None = None,
) -> Judgement:
    """Forecasts and climate against a reference, the fit against observations."""
    if model.forcing_scaler_ is not None:
        return Judgement(
            note="No forecasts were judged: the model has inputs, and each of the many "
            "forecasts would need its own."
        )
    result = Judgement(note=note, length=arguments.length)
    if reference is not None and reference.dt is not None:
        steps = substeps_of(arguments.substeps, arguments.solver)
        where: dict[str, Any] = {
            "lengths": reference.lengths,
            "mask": reference.mask,
            "step": reference.dt / steps,
        }
        result.evaluation = model.evaluate(
            reference.v,
            reference.dt,
            lyapunov_exponent=arguments.lyapunov,
            threshold=arguments.threshold,
            starts=arguments.starts,
            horizon=arguments.horizon,
            method=arguments.solver,
            seed=arguments.seed,
            **where,
        )
        if arguments.climate and max(reference.lengths) >= FEWEST:
            result.climate = model.climate(
                reference.v,
                reference.dt,
                lyapunov_exponent=arguments.lyapunov,
                length=arguments.length,
                solvers=climate_solvers(arguments.solver),
                seed=arguments.seed,
                **where,
            )
    if observations is not None:
        result.fit = fit_of(model, observations)
    return result


def climate_solvers(chosen: str) -> tuple[str, ...]:
    """The solver of long forecasts, then others to compare with."""
    if chosen == "etdrk4":
        # Explicit steps explode on stiff fields; sufficiently short ones take hours.
        return (chosen,)
    return (chosen, *(name for name in SOLVERS if name != chosen))


def fit_of(model: Forecaster, series: Series) -> GoodnessOfFit | None:
    """Goodness of fit; None with too few residuals or without a noise estimate."""
    if series.dt is None or model.config_.method == "strong":
        return None
    try:
        return model.goodness_of_fit(series)
    except ValueError:
        return None
