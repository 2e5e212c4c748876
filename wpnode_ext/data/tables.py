"""Tables of text with a row for each sample, and times that files hold as dates."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .make import make_series
from .series import Series

TimeUnit = Literal["step", "s", "min", "h", "D"]

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "D": 86400.0}
# Names of columns or arrays that hold the time unless the caller names another.
TIME_NAMES = ("t", "time", "times", "date", "datetime", "timestamp", "valid_time")
MISSING = ("", "na", "n/a", "nan", "null", "none", "-", "--")
DELIMITERS = ",;\t|"
# Names of columns or arrays that a message lists at most.
MANY_NAMES = 40


class MissingName(ValueError):
    """A file has no column, array, variable or times of the name that was asked for."""


def load_csv(
    path: str | Path,
    *,
    dt: float | None = None,
    time: str | None = None,
    columns: Sequence[str] | None = None,
    forcing: Sequence[str] | None = None,
    series: str | None = None,
    time_unit: TimeUnit = "step",
) -> Series:
    """Observations from a table with a header line.

    Cells are separated by commas, semicolons, tabs or bars; empty cells and words like
    "NA" are missing values; lines that begin with ``#`` are left out.

    Args:
        path: file in UTF-8.
        dt: distance of the rows, if no column holds the time. If one does, `dt` must
            agree with it; for dates it sets the unit in which a step is counted.
        time: column with the times, numbers or ISO dates; default the one named "t",
            "time", "date" or the like that has no other role.
        columns: columns of the state, in this order; default all that have no other
            role.
        forcing: columns of known inputs.
        series: column with the name of the series a row belongs to. Rows of one series
            need not be neighbours, but must be in order.
        time_unit: unit of times given as dates, see
            :func:`~wpnode_ext.data.tables.dates_to_numbers`.

    Raises:
        ValueError: the table cannot be used; the message names line and column.
    """
    table = _Table(Path(path))
    inputs = list(forcing or [])
    if time is None:
        taken = {series, *inputs, *(columns or [])}
        named = [x for x in table.names if is_time_name(x) and x not in taken]
        if not named and dt is None:
            raise MissingName(
                f"{table.path} must have a column of times; none has such a name. Give "
                f"`time=`, one of {listed(table.names)}, or `dt=`, their distance."
            )
        time = named[0] if named else None
    assigned = {time, series, *inputs}
    if columns is None:
        columns = [x for x in table.names if x not in assigned and not is_time_name(x)]
    if not columns:
        raise MissingName(f"{table.path} has no column left for the state.")
    v = table.numbers(columns)
    x = table.numbers(inputs) if inputs else None
    t, meta = table.times(time, time_unit, dt) if time is not None else (None, {})
    groups = table.groups(series)
    single = len(groups) == 1

    def by_series(array: NDArray[Any] | None) -> Any:
        if array is None:
            return None
        return array if single else [array[rows] for rows in groups]

    return make_series(
        by_series(v),
        dt=dt,
        t=by_series(t),
        forcing=by_series(x),
        names=list(columns),
        meta={"source": table.path.name, **meta},
    )


class _Table:
    """Cells of a file, and the errors for those that cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        kept = [
            (number, line)
            for number, line in enumerate(_lines(path), start=1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        if not kept:
            raise ValueError(f"{path} is empty.")
        head = kept[0][1]
        delimiter = max(DELIMITERS, key=head.count)
        rows = _rows(kept, delimiter, path)
        self.names = [name.strip() for name in rows[0]]
        self.rows, self.lines = rows[1:], [number for number, _ in kept[1:]]
        if all(_is_number(name) for name in self.names):
            raise ValueError(
                f"{path} must begin with a header that names the columns; "
                f"its first line is {head.strip()[:60]!r}."
            )
        # A dictionary, because tables may have thousands of columns.
        self._places: dict[str, int] = {}
        for place, name in enumerate(self.names):
            if self._places.setdefault(name, place) != place:
                raise ValueError(f"{path} has two columns {name!r}; rename one.")
        for line, row in zip(self.lines, self.rows, strict=True):
            if len(row) != len(self.names):
                raise ValueError(
                    f"{path}, line {line}: {len(row)} cells, but the header has "
                    f"{len(self.names)}."
                )

    def column(self, name: str) -> list[str]:
        """The cells of a column as text."""
        index = self._places.get(name)
        if index is None:
            raise MissingName(
                f"{self.path} has no column {name!r}; its columns are "
                f"{listed(self.names)}."
            )
        return [row[index].strip() for row in self.rows]

    def numbers(self, names: Sequence[str]) -> NDArray[Any]:
        """Columns as float64 ``[rows, names]``, NaN where a value is missing."""
        return np.stack([self._floats(name) for name in names], axis=1)

    def times(
        self, name: str, unit: TimeUnit, dt: float | None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """A column of times as numbers, and facts about dates for the metadata."""
        cells = self.column(name)
        if cells and not _is_number(cells[0]):
            try:
                # A trailing Z means UTC, which numpy assumes but does not parse.
                dates = np.array([cell.removesuffix("Z") for cell in cells], "M8[ns]")
            except ValueError as error:
                raise ValueError(
                    f"{self.path}, column {name!r}: times must be numbers or ISO dates "
                    f"like 2017-01-31T06:00; {error}."
                ) from None
            return dates_to_numbers(dates, unit, dt=dt)
        values = self._floats(name)
        if np.isnan(values).any():
            line = self.lines[int(np.isnan(values).argmax())]
            raise ValueError(f"{self.path}, line {line}: the time is missing.")
        return values, {}

    def groups(self, name: str | None) -> list[NDArray[Any]]:
        """Rows of every series, in the order in which the series appear."""
        if name is None:
            return [np.arange(len(self.rows))]
        members: dict[str, list[int]] = {}
        for row, cell in enumerate(self.column(name)):
            members.setdefault(cell, []).append(row)
        return [np.array(rows) for rows in members.values()]

    def _floats(self, name: str) -> NDArray[Any]:
        cells = self.column(name)
        try:
            # Much faster than cell by cell, if no cell is missing.
            return np.array(cells, dtype=np.float64)
        except ValueError:
            pass
        values = np.empty(len(cells))
        for row, cell in enumerate(cells):
            if cell.lower() in MISSING:
                values[row] = np.nan
            elif _is_number(cell):
                values[row] = float(cell)
            else:
                raise ValueError(
                    f"{self.path}, line {self.lines[row]}, column {name!r}: {cell!r} "
                    "is not a number. Leave the column out by `columns=`."
                )
        return values


def listed(names: Sequence[str]) -> str:
    """Names for a message, at most the first 40 of them."""
    shown = ", ".join(map(str, names[:MANY_NAMES]))
    more = len(names) - MANY_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _lines(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(file)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} must be a text file in UTF-8; {error}. Save it as UTF-8."
        ) from None


def _rows(kept: list[tuple[int, str]], delimiter: str, path: Path) -> list[list[str]]:
    """The cells of every line; raises ValueError where a cell spans several lines."""
    rows: list[list[str]] = []
    # With an empty line at the end, a quote left open in the last line is noticed.
    reader = csv.reader([*(line for _, line in kept), "\n"], delimiter=delimiter)
    try:
        for (line, _), row in zip(kept, reader, strict=False):
            rows.append(row)
            if reader.line_num != len(rows):
                raise ValueError(
                    f"{path}, line {line}: a cell must end on its line; a quote is "
                    "left open. Close it, or remove it."
                )
    except csv.Error as error:
        line = kept[min(reader.line_num, len(kept)) - 1][0]
        raise ValueError(
            f"{path}, line {line}: the line cannot be read; {error}."
        ) from None
    return rows


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def is_time_name(name: str) -> bool:
    return name.strip().lower() in TIME_NAMES


def dates_to_numbers(
    dates: NDArray[Any],
    unit: TimeUnit,
    *,
    step_seconds: float | None = None,
    dt: float | None = None,
) -> tuple[NDArray[Any], dict[str, Any]]:
    """Times in `unit` since the first date, and the length of a unit.

    Args:
        dates: datetime64, ``[N]``.
        unit: "step" for the median distance of the dates, which keeps fields of order
            one; else seconds, minutes, hours or days.
        step_seconds: length of a step where it is known from another series.
        dt: how many units a step has where `unit` is "step"; default 1.
    """
    if unit not in ("step", *_SECONDS):
        raise ValueError(
            f"`time_unit` must be 'step', 's', 'min', 'h' or 'D'; got {unit!r}."
        )
    if np.isnat(dates).any():
        row = int(np.isnat(dates).argmax())
        raise ValueError(f"the date of sample {row} is missing; drop the sample.")
    exact = dates.astype("datetime64[ns]")
    seconds = (exact - exact[0]).astype(np.int64) / 1e9
    if unit == "step":
        size = step_seconds or float(np.median(np.diff(seconds)))
        if not size > 0:
            raise ValueError("dates must be increasing; sort the samples first.")
        size /= dt or 1.0
    else:
        size = _SECONDS[unit]
    return seconds / size, {"seconds_per_unit": size, "first_date": str(dates[0])}
