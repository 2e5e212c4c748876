"""Settings of a run, and the data files that they name."""

import inspect
import re
from dataclasses import dataclass, fields, replace
from dataclasses import field as setting
from pathlib import Path

from ..common.files import checked_path
from ..data import MissingName, Series, load_csv
from ..data.loaders import READERS, load_series
from ..model.forecaster import Forecaster
from ..settings.config import TrainConfig
from ..settings.text import load as load_settings
from ..training.run_folder import RunFolder


@dataclass
class DataConfig:
    """A file of observations and the way to read it.

    `time` names the column or array with the times, `columns` those of the state,
    `forcing` those of known inputs, `series` the column of a table that numbers or
    names its series, `validation` a file of held-out observations.
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


def with_settings(config: RunConfig, used: TrainConfig) -> RunConfig:
    """The settings of a run with those that training used."""
    names = (entry.name for entry in fields(TrainConfig))
    return replace(config, **{name: getattr(used, name) for name in names})


def run_folder_of(config: RunConfig) -> RunFolder:
    """The folder of a run; no name leads out of the folder of all runs."""
    parts = config.name.split("/")
    if not config.name.isprintable() or any(p in ("", ".", "..") for p in parts):
        raise ValueError(
            "`name` must be a name, or names joined by `/`, without empty ones, `.`, "
            f"`..` and control characters; got {config.name!r}. Another place for all "
            "runs is given by `runs=`."
        )
    return RunFolder(checked_path(config.runs or ".", "runs") / config.name)


def read_series(config: DataConfig) -> Series:
    """The observations that a configuration describes."""
    if not config.path:
        raise ValueError("`data.path` must name a file of observations; it is empty.")
    options = {
        "dt": config.dt,
        "time": config.time,
        "columns": config.columns,
        "forcing": config.forcing,
        "series": config.series,
    }
    # Formats accept different options; those that are not set are left to them.
    given = {name: value for name, value in options.items() if value is not None}
    suffix = Path(config.path).suffix.lower()
    if suffix in READERS:
        known = inspect.signature(READERS[suffix]).parameters
        for name in given:
            if name not in known:
                raise ValueError(
                    f"`{name}` must be left out for {suffix} files; got "
                    f"{given[name]!r}."
                )
    try:
        return load_series(config.path, **given)
    except ValueError as error:
        # The reader names its arguments; here they are options and settings.
        names = "|".join(options)
        text = re.sub(rf"`({names})=?`", r"--\1 (data.\1 in settings)", str(error))
        kind = MissingName if isinstance(error, MissingName) else ValueError
        raise kind(text) from error


def read_as_trained(config: DataConfig, model: Forecaster, run: str | Path) -> Series:
    """Observations for a model; missing options default to those of its training.

    Args:
        config: the file, and the options that the user gave.
        model: its `dt` is the default for files without times.
        run: file or folder of the model; a run folder knows the columns of training.
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
    except MissingName:
        # The file has no times, so its samples are as far apart as those of training.
        return read_series(replace(config, dt=model.dt_))


def data_of_run(run: str | Path) -> DataConfig:
    """The data settings of a run folder; those of a model file are not known."""
    if not Path(run).is_dir():
        return DataConfig()
    return load_settings(RunConfig, RunFolder(run).require().config).data


def read_validation(config: DataConfig) -> Series | None:
    """The held-out observations, read like the others; None if there are none."""
    if config.validation is None:
        return None
    return read_series(replace(config, path=config.validation, validation=None))
