"""Gridded data: NetCDF files and Zarr stores, which xarray reads."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..common.archives import TooLargeError, check_archive, check_size
from .make import make_series
from .series import Series
from .tables import MissingName, TimeUnit, dates_to_numbers, is_time_name

EXTRA = "pip install 'wpnode_ext[data]'"


def load_grid(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    dt: float | None = None,
    time: str | None = None,
    time_unit: TimeUnit = "step",
    missing: Literal["refuse", "drop"] = "refuse",
) -> Series:
    """Observations from a NetCDF file or a Zarr store.

    The state is ``[variables, *space]``, or ``[*space]`` for a single variable; axes of
    length 1 beside the time (a level, a member number) are dropped.

    Args:
        path: file, or folder that ends in ".zarr".
        columns: variables, all on one grid; default all that depend on time.
        dt: distance of the samples, if the file has no times. If it has, `dt` must
            agree with them; for dates it sets the unit in which a step is counted.
        time: dimension of the time; default the one that holds dates, or else is
            named "t", "time" or the like.
        time_unit: unit of the times, see
            :func:`~wpnode_ext.data.tables.dates_to_numbers`.
        missing: "refuse" or "drop" cells without a value at any time, such as the sea
            in data over land. If they are dropped, the state is the vector of the other
            cells, and ``meta["cells"]`` holds their places in the grid.

    Raises:
        ImportError: xarray, or a package it needs for this file, is not installed.
        ValueError: the file cannot be used; the message says why.
    """
    path = Path(path)
    with _open(path) as dataset:
        dimension = _time_dimension(dataset, time, path)
        names = list(columns) if columns is not None else _variables(dataset, dimension)
        unknown = [repr(name) for name in names if name not in dataset.data_vars]
        if unknown or not names:
            wanted = unknown[0] if unknown else f"that depends on {dimension!r}"
            raise MissingName(
                f"{path} has no variable {wanted}; its variables are "
                f"{', '.join(map(str, dataset.data_vars))}."
            )
        # Compressed fields may be far larger than their file.
        numbers = sum(dataset[name].size for name in names)
        check_size(np.dtype(np.float64).itemsize * numbers, path)
        arrays = [_values(dataset[name], dimension, path) for name in names]
        stamps = dataset[dimension].values if dimension in dataset.coords else None
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise ValueError(
            f"variables must share one grid; got "
            f"{dict(zip(names, (a.shape for a in arrays), strict=True))}. "
            "Load them one by one."
        )
    v = np.stack(arrays, axis=1) if len(arrays) > 1 else arrays[0]
    meta: dict[str, Any] = {"source": path.name, "variables": names}
    empty = np.asarray(np.isnan(v).all(axis=0))
    if empty.any():
        _check_may_drop(empty, missing, path)
        meta["cells"] = np.argwhere(~empty).tolist()
        meta["grid"] = list(empty.shape)
        v = v[:, ~empty]
    if stamps is None and dt is not None:
        return make_series(v, dt=dt, meta=meta)
    t, more = _times(stamps, time_unit, dt, path)
    return make_series(v, dt=dt, t=t, meta={**meta, **more})


def _check_may_drop(empty: NDArray[np.bool_], missing: str, path: Path) -> None:
    if missing != "drop":
        raise ValueError(
            f"{int(empty.sum())} of {empty.size} cells of {path} have no value at "
            "any time (sea in data over land?); pass missing='drop' to leave them "
            "out, or cut the region."
        )


def _open(path: Path) -> Any:
    """The dataset in a file or store, not read yet."""
    try:
        import xarray  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(f"reading {path.name} needs xarray; {EXTRA}.") from error
    try:
        if path.suffix.lower() == ".zarr":
            if path.is_file() and zipfile.is_zipfile(path):
                check_archive(path)
            return xarray.open_zarr(path, chunks=None)
        return xarray.open_dataset(path)
    except (ImportError, ValueError) as error:
        if isinstance(error, TooLargeError):
            raise
        # xarray reports a missing backend as an ImportError or as a ValueError.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ImportError(
            f"xarray cannot open {path.name} ({reason}); {EXTRA}."
        ) from error
    except OSError as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise ValueError(_unreadable(path, error)) from error
    except Exception as error:  # readers raise errors of any class on damaged bytes
        raise ValueError(_unreadable(path, error)) from error


def _unreadable(path: Path, error: Exception) -> str:
    reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    return f"{path} cannot be read as {path.suffix}: {reason}."


def _time_dimension(dataset: Any, time: str | None, path: Path) -> str:
    """The dimension `time`, or the only one with dates or with a name of times."""
    if time is not None:
        if time not in dataset.dims:
            raise MissingName(
                f"{path} has no dimension {time!r}; its dimensions are "
                f"{', '.join(map(str, dataset.dims))}."
            )
        return time
    dated = [
        str(name)
        for name in dataset.dims
        if name in dataset.coords and dataset[name].dtype.kind == "M"
    ]
    named = [str(name) for name in dataset.dims if is_time_name(str(name))]
    found = dated or named
    if len(found) != 1:
        raise ValueError(
            f"{path} has {len(found)} dimensions that look like the time; name it by "
            f"`time=`, one of {', '.join(map(str, dataset.dims))}."
        )
    return found[0]


def _variables(dataset: Any, dimension: str) -> list[str]:
    return [
        str(name)
        for name, array in dataset.data_vars.items()
        if dimension in array.dims and array.dtype.kind in "fiu"
    ]


def _values(array: Any, dimension: str, path: Path) -> NDArray[Any]:
    """A variable with the time first, without other axes of length 1."""
    if dimension not in array.dims:
        raise ValueError(f"variable {array.name!r} of {path} does not depend on time.")
    single = [
        name for name in array.dims if name != dimension and array.sizes[name] == 1
    ]
    ordered = array.squeeze(single, drop=True).transpose(dimension, ...)
    return np.asarray(ordered.values, dtype=np.float64)


def _times(
    stamps: NDArray[Any] | None, unit: TimeUnit, dt: float | None, path: Path
) -> tuple[NDArray[Any], dict[str, Any]]:
    if stamps is None:
        raise MissingName(f"{path} has no times; give `dt=`, the distance of samples.")
    if stamps.dtype.kind == "M":
        return dates_to_numbers(stamps, unit, dt=dt)
    if stamps.dtype.kind not in "fiu":
        raise ValueError(f"{path}: times must be numbers or dates; got {stamps.dtype}.")
    return stamps.astype(np.float64), {}
