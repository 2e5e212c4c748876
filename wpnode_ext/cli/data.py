"""Settings of a run, and the files its data come from."""

import inspect
from dataclasses import dataclass, replace
from dataclasses import field as setting
from pathlib import Path

from ..data import Series
from ..data.loaders import READERS, load_series
from ..training.config import TrainConfig


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
                raise ValueError(f"`data.{name}` has no meaning for {suffix} files.")
    return load_series(config.path, **given)


def read_validation(config: DataConfig) -> Series | None:
    """The held-out observations, read as the others are; None if there are none."""
    if config.validation is None:
        return None
    return read_series(replace(config, path=config.validation, validation=None))
