"""The inputs of a forecast: from a file, at the times of the forecast."""

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from ..data import Series
from ..data.loaders import READERS, load_arrays
from ..fields import Forcing
from .data import DataConfig, data_of_run, read_series


def read_inputs(
    path: str,
    t: Float[Tensor, " T"],
    run: str | Path,
    start: Mapping[str, Any],
) -> Forcing:
    """Inputs that cover the times `t`, linear between those of the file.

    A file without times must hold one row for each of `t`.

    Args:
        path: file of inputs alone, or one like the data of training.
        t: times of the forecast.
        run: where the model is; a run folder knows the names of inputs and times.
        start: what is known of the file the forecast starts in, for dates.
    """
    timed = _with_times(path, run)
    if timed is None:
        return Forcing(t, _row_by_row(path, len(t), run))
    if timed.n_series > 1:
        raise ValueError(f"`--forcing` must hold one series; got {timed.n_series}.")
    known = ~timed.missing
    inputs = Forcing(_clock(timed, start, path)[known], timed.v.flatten(1)[known])
    inputs.check_covers(t[0].item(), t[-1].item())
    return inputs


def _with_times(path: str, run: str | Path) -> Series | None:
    """The file with its own times; None where it has none."""
    trained, reader = data_of_run(run), READERS.get(Path(path).suffix.lower())
    names: list[str | None] = [trained.time] if trained.time else []
    # Files of arrays would prefer a `dt`, which does not say when inputs begin.
    names += ["t", "time"] if reader is load_arrays else [None]
    for columns, time in product(_columns(trained), names):
        found = _if_named(DataConfig(path=path, columns=columns, time=time))
        if found is not None:
            return found
    return None


def _row_by_row(path: str, count: int, run: str | Path) -> Float[Tensor, "T C"]:
    configs = [
        DataConfig(path=path, columns=columns, dt=1.0)
        for columns in _columns(data_of_run(run))
    ]
    table = _if_named(configs[0]) if len(configs) > 1 else None
    table = table or read_series(configs[-1])
    if table.n_samples != count:
        raise ValueError(
            f"`--forcing` must have {count} rows, one for each time of the forecast, "
            f"as {path} has no times; got {table.n_samples}. Give it a column or array "
            "of times, or change --steps."
        )
    if table.missing.any():
        raise ValueError(
            f"`--forcing` must have a value at every time of the forecast; {path} has "
            "none in some rows. Fill them, or leave the rows out and give times."
        )
    return table.v.flatten(1)


def _columns(trained: DataConfig) -> Iterator[list[str] | None]:
    """Names inputs may have: those of training, else all there are."""
    if trained.forcing:
        yield trained.forcing
    yield None


def _if_named(config: DataConfig) -> Series | None:
    """What the file holds under these names; None where it has no such names."""
    try:
        return read_series(config)
    except ValueError as error:
        # Other faults of a file, times that go back for instance, are not for guessing.
        if " has no " in str(error):
            return None
        raise


def _clock(inputs: Series, start: Mapping[str, Any], path: str) -> Float[Tensor, " M"]:
    """Times of the inputs as those of the forecast are counted."""
    here, there = inputs.meta, start
    if ("first_date" in here) != ("first_date" in there):
        which = "dates" if "first_date" in here else "numbers"
        raise ValueError(
            f"`--forcing` must have times like those of the start; {path} has {which}."
        )
    if "first_date" not in here:
        return inputs.times
    unit = there["seconds_per_unit"]
    later = np.datetime64(here["first_date"], "ns") - np.datetime64(
        there["first_date"], "ns"
    )
    seconds = later.astype(np.int64) / 1e9
    return (seconds + here["seconds_per_unit"] * inputs.times) / unit
