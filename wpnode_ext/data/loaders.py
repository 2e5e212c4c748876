"""Reads a `Series` from a file; the ending of its name decides the format."""

import pickle
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..common.archives import (
    TooLargeError,
    check_archive,
    check_mat,
    check_size,
    read_npy,
    read_npz,
)
from ..common.files import checked_path
from .grids import load_grid
from .make import make_series
from .series import Series
from .tables import MissingName, TimeUnit, dates_to_numbers, listed, load_csv


def load_series(path: str | Path, **options: Any) -> Series:
    """Observations from a file; the ending of its name decides the format.

    ==================  ==========================================================
    .csv .tsv .txt      :func:`load_csv`: a table with a header
    .npy .npz .pt .mat  :func:`load_arrays`: arrays by name
    .nc .zarr           :func:`load_grid`: fields on a grid, through xarray
    ==================  ==========================================================

    Args:
        path: file.
        **options: those of the function for the format; `dt`, `time` and `columns` are
            common to all.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file cannot be read. A file that declares more numbers than the
            memory of the machine, or of the control group, holds is refused before it
            is expanded.
    """
    path = checked_path(path, "path")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}.")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ValueError(
            f"the name of the file must end in {', '.join(READERS)}; got {path.name!r}."
        )
    if path.is_dir() and path.suffix.lower() != ".zarr":
        raise IsADirectoryError(f"{path} must be a file; it is a folder.")
    try:
        return reader(path, **options)
    except ValueError as error:
        if str(path) in str(error):
            raise
        # `make_series` does not know the file.
        raise ValueError(f"{path}: {error}") from error


def load_arrays(
    path: str | Path,
    *,
    dt: float | str | None = None,
    time: str | None = None,
    columns: Sequence[str] | None = None,
    forcing: Sequence[str] | None = None,
    time_axis: int | None = None,
    time_unit: TimeUnit = "step",
) -> Series:
    """Observations from a file of numpy, torch or MATLAB arrays.

    An array is one series; so is each cell of a MATLAB cell array, and each entry of a
    list in a torch file.

    Args:
        path: ".npy", ".npz", ".pt" (a tensor, or a dictionary of tensors) or ".mat"
            (up to version 7).
        dt: distance of the samples, or the name of the array that holds it; default
            the array "dt", if there is one. Beside times it must say the same; for
            dates it sets the unit in which a step is counted.
        time: array with the times; default "t" or "time", if there is one that has no
            other role.
        columns: arrays of the state, joined along the last axis; default "v", or the
            only array that is no time.
        forcing: arrays of known inputs, joined along the last axis.
        time_axis: which axis of the arrays is the time; default the first, but for
            ".mat" files the longest, which must then be clear.
        time_unit: unit of times that are dates.
    """
    path = Path(path)
    try:
        held = _read(path)
    except (OSError, TooLargeError) as error:
        if isinstance(error, TooLargeError) or error.filename is not None:
            raise
        raise ValueError(_unreadable(path, error)) from error
    except Exception as error:
        # Damaged bytes make the readers fail in any way.
        raise ValueError(_unreadable(path, error)) from error
    taken = {*(columns or []), *(forcing or [])}
    if dt is None and "dt" in held and "dt" not in taken:
        dt = "dt"
    if isinstance(dt, str):
        dt = _one_number(_pick(held, dt, path), dt, path)
    if time is None:
        times = (x for x in ("t", "time") if x in held and x not in taken)
        time = next(times, None)
        if time is None and dt is None:
            raise MissingName(
                f"{path} has no array 't' or 'dt'; give `dt=`, the distance of the "
                f"samples, or `time=`, one of {listed([*held])}."
            )
    names = list(columns) if columns is not None else [_state_name(held, time, path)]
    if path.suffix.lower() != ".mat" and time_axis is None:
        time_axis = 0
    meta: dict[str, Any] = {"source": path.name, "arrays": names}
    v = _joined([_parts(held, name, path, time_axis) for name in names], path)
    u = None
    if forcing:
        u = _joined([_parts(held, name, path, time_axis) for name in forcing], path)
    t = None
    if time is not None:
        cells = _cells(_pick(held, time, path))
        t = [_times(part, time_unit, dt, meta) for part in cells]
        if len(t) != len(v):
            raise ValueError(
                f"{path}: {time!r} has {len(t)} series, {names[0]!r} {len(v)}."
            )
    one = len(v) == 1
    return make_series(
        v[0] if one else v,
        dt=dt,
        t=t[0] if t is not None and one else t,
        forcing=u[0] if u is not None and one else u,
        meta=meta,
    )


READERS: dict[str, Callable[..., Series]] = {
    ".csv": load_csv,
    ".tsv": load_csv,
    ".txt": load_csv,
    ".npy": load_arrays,
    ".npz": load_arrays,
    ".pt": load_arrays,
    ".mat": load_arrays,
    ".nc": load_grid,
    ".zarr": load_grid,
}


def _read(path: Path) -> Mapping[str, Any]:
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return {"v": read_npy(path)}
    if suffix == ".npz":
        return read_npz(path)
    if suffix == ".mat":
        return _read_mat(path)
    return _read_torch(path)


def _read_torch(path: Path) -> Mapping[str, Any]:
    check_size(path.stat().st_size, path)
    if zipfile.is_zipfile(path):
        check_archive(path)
    held = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(held, Mapping):
        held = {"v": held}
    for value in held.values():
        parts = value if isinstance(value, list | tuple) else [value]
        # A tensor with strides of zero has more numbers than it stores.
        shown = [x.numel() * x.element_size() for x in parts if isinstance(x, Tensor)]
        check_size(sum(shown), path)
    return {str(name): value for name, value in held.items()}


def _read_mat(path: Path) -> Mapping[str, Any]:
    from scipy.io import loadmat

    check_mat(path)
    try:
        held = loadmat(path)
    except NotImplementedError:
        raise ValueError("it is of version 7.3; save it with '-v7'") from None
    return {name: value for name, value in held.items() if not name.startswith("__")}


def _unreadable(path: Path, error: Exception) -> str:
    reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    if isinstance(error, pickle.UnpicklingError) or "allow_pickle" in reason:
        # The readers name arguments that callers of this package cannot give.
        reason = "it holds more than numbers and plain values, or is damaged"
    return f"{path} cannot be read as {path.suffix}: {reason}."


def _one_number(value: Any, name: str, path: Path) -> float:
    """The first entry of an array that holds a distance of samples."""
    try:
        return float(np.asarray(value).reshape(-1)[0])
    except (IndexError, TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"{path}: {name!r} must be a number, the distance of the samples; got "
            f"{_described(value)}. Give `dt=`."
        ) from None


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return type(value).__name__
    return f"an array of shape {list(shape)} and type {value.dtype}"


def _pick(held: Mapping[str, Any], name: str, path: Path) -> Any:
    if name not in held:
        raise MissingName(
            f"{path} has no array {name!r}; its arrays are {listed([*held])}."
        )
    return held[name]


def _state_name(held: Mapping[str, Any], time: str | None, path: Path) -> str:
    left = [name for name in held if name not in (time, "t", "dt", "time")]
    if "v" in left:
        return "v"
    if len(left) != 1:
        raise ValueError(
            f"{path} holds {listed(left) or 'no array of observations'}; "
            "name the state by `columns=`."
        )
    return left[0]


def _cells(value: Any) -> list[NDArray[Any]]:
    """The array itself, or those of a cell array or list."""
    if isinstance(value, Tensor):
        return [value.detach().numpy()]
    if isinstance(value, (list, tuple)):
        return [np.asarray(cell) for cell in value]
    array = np.asarray(value)
    if array.dtype == object:
        return [np.asarray(cell) for cell in array.reshape(-1)]
    return [array]


def _parts(
    held: Mapping[str, Any], name: str, path: Path, time_axis: int | None
) -> list[NDArray[Any]]:
    """Every series of an array, the time first."""
    parts = []
    for array in _cells(_pick(held, name, path)):
        axis = time_axis
        if axis is None:
            axis = int(np.argmax(array.shape))
            others = [n for i, n in enumerate(array.shape) if i != axis]
            if any(3 * n > array.shape[axis] for n in others):
                raise ValueError(
                    f"{path}: the time axis of {name!r}, shape {list(array.shape)}, is "
                    "not clear; give `time_axis=`."
                )
        elif not -array.ndim <= axis < array.ndim:
            raise ValueError(
                f"`time_axis` must be an axis of {name!r}, which has {array.ndim}; "
                f"got {axis}."
            )
        parts.append(np.moveaxis(array, axis, 0))
    return parts


def _joined(arrays: list[list[NDArray[Any]]], path: Path) -> list[NDArray[Any]]:
    """Series by series, the arrays side by side along the last axis."""
    if len({len(parts) for parts in arrays}) > 1:
        raise ValueError(f"{path}: the arrays have different numbers of series.")
    if len(arrays) == 1:
        return arrays[0]
    wide = [[x[:, None] if x.ndim == 1 else x for x in parts] for parts in arrays]
    try:
        return [np.concatenate(group, axis=-1) for group in zip(*wide, strict=True)]
    except ValueError as error:
        raise ValueError(f"{path}: the arrays do not fit together; {error}.") from None


def _times(
    part: NDArray[Any], unit: TimeUnit, dt: float | None, meta: dict[str, Any]
) -> NDArray[Any]:
    flat = part.reshape(-1)
    if flat.dtype.kind != "M":
        return flat
    known = meta.get("seconds_per_unit")
    step_seconds = None if known is None else known * (dt or 1.0)
    numbers, more = dates_to_numbers(flat, unit, step_seconds=step_seconds, dt=dt)
    for key, value in more.items():
        meta.setdefault(key, value)
    return numbers
