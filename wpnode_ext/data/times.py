"""Times as files hold them: numbers, dates, or nothing."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

TimeUnit = Literal["step", "s", "min", "h", "D"]

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "D": 86400.0}
# Names under which a column or array is taken for the time unless told otherwise.
TIME_NAMES = ("t", "time", "times", "date", "datetime", "timestamp", "valid_time")


def is_time_name(name: str) -> bool:
    return name.strip().lower() in TIME_NAMES


def dates_to_numbers(
    dates: NDArray[Any],
    unit: TimeUnit,
    *,
    step_seconds: float | None = None,
    dt: float | None = None,
) -> tuple[NDArray[Any], dict[str, Any]]:
    """Numbers that count `unit` since the first date, and what a unit is.

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
