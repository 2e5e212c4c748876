"""Settings of a run, and the files its data come from."""

import inspect
import re
from dataclasses import dataclass, replace
from dataclasses import field as setting
from pathlib import Path

from ..common.files import checked_path
from ..data import Series, load_csv
from ..data.loaders import READERS, load_series
from ..model.forecaster import Forecaster
from ..settings import config as settings
from ..settings.config import TrainConfig
from ..training.run_folder import RunFolder


@dataclass
class DataConfig:
    """Where the observations are, and how to read them.

    `time` names the column or array with the times, `columns` those of the state,
    `forcing` those of known inputs, `series` the column of a table that tells several
    series apart, `validation` a file of held-out observations.
    """

    path: str = ""
    dt: float | None = None
    time: str | None = None
    columns: list[str] | None = None
    forcing: list[str] | None = None
    series: str | None = None
    validation: str | None = None


@dataclass
class RunConfig(TrainConfig):
    """Settings of ``wpnode train``: a name, the data, and those of the trainer."""

    name: str = "run"
    runs: str = "runs"
    data: DataConfig = setting(default_factory=DataConfig)


def run_folder_of(config: RunConfig) -> RunFolder:
    """The folder of a run, which is inside that of all runs whatever its name."""
    parts = config.name.split("/")
    if not config.name.isprintable() or any(p in ("", ".", "..") for p in parts):
        raise ValueError(
            "`name` must be a name, or names joined by `/`, without empty ones, `.`, "
            f"`..` and control characters; got {config.name!r}. Another place for all "
            "runs is given by `runs=`."
        )
    return RunFolder(checked_path(config.runs or ".", "runs") / config.name)


def read_series(config: DataConfig) -> Series:
    """The observations of a configuration, checked."""
    if not config.path:
        raise ValueError("`data.path` must name a file of observations; it is empty.")
    options = {
        "dt": config.dt,
        "time": config.time,
        "columns": config.columns,
        "forcing": config.forcing,
        "series": config.series,
    }
    # Formats differ in what they can be told; what is not set is left to them.
    given = {name: value for name, value in options.items() if value is not None}
    suffix = Path(config.path).suffix.lower()
    if suffix in READERS:
        known = inspect.signature(READERS[suffix]).parameters
        for name in given:
            if name not in known:
                raise ValueError(f"`{name}` has no meaning for {suffix} files.")
    try:
        return load_series(config.path, **given)
    except ValueError as error:
        # The reader speaks of its arguments; here they are options and settings.
        names = "|".join(options)
        text = re.sub(rf"`({names})=?`", r"--\1 (data.\1 in settings)", str(error))
        raise ValueError(text) from error


def read_as_trained(config: DataConfig, model: Forecaster, run: str | Path) -> Series:
    """Observations for a model; what is not said is as it was in training.

    Args:
        config: the file, and what the user says of it.
        model: its `dt` is taken where the file has no times of its own.
        run: where the model is; a run folder knows the columns it was trained on.
    """
    config, known = replace(config), data_of_run(run)
    alike = Path(config.path).suffix.lower() == Path(known.path).suffix.lower()
    if config.columns is None and alike:
        config.columns = known.columns
    table = READERS.get(Path(config.path).suffix.lower()) is load_csv
    if config.columns is None and table and model.names_ is not None:
        config.columns = list(model.names_)
    if alike:
        for name in ("time", "series", "forcing"):
            if getattr(config, name) is None:
                setattr(config, name, getattr(known, name))
    if config.dt is not None or config.time is not None or model.dt_ is None:
        return read_series(config)
    try:
        return read_series(config)
    except ValueError:
        # No times in the file: then they are as far apart as those of training.
        return read_series(replace(config, dt=model.dt_))


def data_of_run(run: str | Path) -> DataConfig:
    """How the data of training were read; nothing is known of a mere model file."""
    if not Path(run).is_dir():
        return DataConfig()
    return settings.load(RunConfig, RunFolder(run).require().config).data


def read_validation(config: DataConfig) -> Series | None:
    """The held-out observations, read as the others are; None if there are none."""
    if config.validation is None:
        return None
    return read_series(replace(config, path=config.validation, validation=None))
