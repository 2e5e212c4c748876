"""What `evaluate` and `report` share: a reference, and all that is judged by it."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data import Series
from ..metrics import GoodnessOfFit
from ..metrics.climate import Climate
from ..metrics.evaluation import Evaluation
from ..metrics.forecast import SOLVERS
from ..model.ensemble import EnsembleForecast
from ..model.forecaster import Forecaster
from ..model.prepare import filtered
from ..settings import config as settings
from ..training.run_folder import RunFolder
from .common import add_solver_arguments, substeps_of
from .data import DataConfig, RunConfig, read_as_trained, read_series, read_validation

# Fewest samples in a row whose statistics are worth comparing.
FEWEST = 200


@dataclass
class Judgement:
    """What could be said of a model; None where the data do not allow it.

    Attributes:
        ensemble: forecasts of all members from the same starts; None without members.
        note: what the forecasts were compared with, or why they were not.
    """

    evaluation: Evaluation | None = None
    climate: Climate | None = None
    fit: GoodnessOfFit | None = None
    ensemble: EnsembleForecast | None = None
    note: str = ""


def add_judge_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("judgement")
    group.add_argument("--lyapunov", type=float, help="maximal exponent of the system")
    group.add_argument("--threshold", type=float, default=0.3, help="valid error")
    group.add_argument("--starts", type=int, default=30, help="number of forecasts")
    group.add_argument(
        "--horizon",
        type=float,
        help="time to forecast; ten Lyapunov times if the exponent is given, at most a "
        "quarter of the reference",
    )
    add_solver_arguments(group)
    group.add_argument("--seed", type=int, default=0, help="of the starts")
    group.add_argument(
        "--climate",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare long forecasts with the statistics of the reference; those by "
        "--solver, and but for etdrk4 also by other solvers",
    )
    group.add_argument(
        "--length",
        type=float,
        help="length of the periodic line the state lives on (KS: 22); the climate is "
        "then judged by the joint density of u_x and u_xx",
    )


def read_run(path: str) -> tuple[RunConfig | None, Series | None]:
    """Settings and observations of a run folder, as far as they are there."""
    if not Path(path).is_dir():
        return None, None
    config = settings.load(RunConfig, RunFolder(path).require().config)
    there = bool(config.data.path) and Path(config.data.path).exists()
    return config, read_series(config.data) if there else None


def reference_from_file(
    config: DataConfig, model: Forecaster, run: str
) -> tuple[Series, str]:
    """A reference trajectory; its samples must be equally spaced."""
    series = read_as_trained(config, model, run)
    shape = model.state_shape_
    if tuple(series.state_shape) != shape:
        raise ValueError(
            f"{config.path} has states of shape {list(series.state_shape)}; the model "
            f"was trained on {list(shape)}. Name the columns by --columns."
        )
    if series.dt is None:
        raise ValueError("the reference must have samples at equal distances.")
    return series, f"Reference: {config.path}."


def held_out_reference(
    config: RunConfig, series: Series, model: Forecaster
) -> tuple[Series | None, str]:
    """The filtered data a run was validated on, where it has such."""
    if series.dt is None:
        return None, "Forecasts were not judged: the data have irregular times."
    held_out = read_validation(config.data)
    note = (
        "Reference: the held-out data after the filter, as no other was given. They "
        "decided which weights were kept, and their own errors limit the times below."
    )
    if held_out is None:
        if model.config_.method == "closed_form":
            note = (
                "Reference: the end of the training data after the filter, as no other "
                "was given. The model has seen them; another reference judges better."
            )
        fraction = model.config_.validation.fraction
        try:
            shortest = model.config_.weak.ell + 1
            held_out = series.split(fraction, min_length=shortest)[1]
        except ValueError:
            return None, "Forecasts were not judged: no data were held out."
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
            note="Forecasts were not judged: the model needs inputs, which forecasts "
            "from many starts would need each."
        )
    result = Judgement(note=note)
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
    """The solver of long forecasts, then those they are compared with."""
    if chosen == "etdrk4":
        # Explicit steps explode on stiff fields, and short enough ones take hours.
        return (chosen,)
    return (chosen, *(name for name in SOLVERS if name != chosen))


def fit_of(model: Forecaster, series: Series) -> GoodnessOfFit | None:
    """Goodness of fit where residuals are many enough and noise can be told."""
    if series.dt is None or model.config_.method == "strong":
        return None
    try:
        return model.goodness_of_fit(series)
    except ValueError:
        return None
