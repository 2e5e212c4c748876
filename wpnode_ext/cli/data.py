"""Settings of a run, and the files its data come from."""

from dataclasses import dataclass, replace
from dataclasses import field as setting
from pathlib import Path

import numpy as np

from ..data import Series, make_series
from ..training.config import TrainConfig


@dataclass
class DataConfig:
    """Where the observations are, and how to read them.

    `time` names the column or array with the times, `columns` those of the state,
    `forcing` those of known inputs, `validation` a file of held-out observations.
    """

    path: str = ""
    dt: float | None = None
    time: str | None = None
    columns: list[str] | None = None
    forcing: list[str] | None = None
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
    path = Path(config.path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}.")
    readers = {".csv": _read_csv, ".npz": _read_npz, ".npy": _read_npy}
    if path.suffix not in readers:
        raise ValueError(
            f"`data.path` must end in {', '.join(readers)}; got {path.name!r}."
        )
    return readers[path.suffix](path, config)


def read_validation(config: DataConfig) -> Series | None:
    """The held-out observations, read as the others are; None if there are none."""
    if config.validation is None:
        return None
    return read_series(replace(config, path=config.validation, validation=None))


def _read_csv(path: Path, config: DataConfig) -> Series:
    """A table with a header; empty cells are missing values."""
    with path.open(encoding="utf-8") as file:
        names = [name.strip() for name in file.readline().split(",")]
    table = np.genfromtxt(path, delimiter=",", skip_header=1, ndmin=2)
    time = config.time or ("t" if "t" in names and config.dt is None else None)
    inputs = config.forcing or []
    taken = {time, *inputs, *({"t"} if config.columns is None else ())}
    state = config.columns or [name for name in names if name not in taken]
    return make_series(
        _pick(table, names, state, path),
        dt=None if time else config.dt,
        t=_pick(table, names, [time], path)[:, 0] if time else None,
        forcing=_pick(table, names, inputs, path) if inputs else None,
        names=state,
    )


def _pick(table: np.ndarray, names: list[str], wanted: list[str], path: Path):
    missing = [name for name in wanted if name not in names]
    if missing:
        raise ValueError(
            f"{path} has no column {missing[0]!r}; its columns are {', '.join(names)}."
        )
    return table[:, [names.index(name) for name in wanted]]


def _read_npz(path: Path, config: DataConfig) -> Series:
    """Arrays `v` (or the one that `columns` names), `t` or `dt`, and inputs."""
    with np.load(path) as arrays:
        held = dict(arrays)
    name = (config.columns or ["v"])[0]
    wanted = [name, *([config.time] if config.time else []), *(config.forcing or [])]
    for key in wanted:
        if key not in held:
            raise ValueError(
                f"{path} has no array {key!r}; its arrays are {', '.join(held)}."
            )
    dt = config.dt or (float(held["dt"]) if "dt" in held and not config.time else None)
    inputs = [np.atleast_2d(held[key].T).T for key in config.forcing or []]
    return make_series(
        held[name],
        dt=dt,
        t=held[config.time or "t"] if dt is None else None,
        forcing=np.concatenate(inputs, axis=1) if inputs else None,
    )


def _read_npy(path: Path, config: DataConfig) -> Series:
    return make_series(np.load(path), dt=config.dt)
