"""Settings of methods that must lie in a range."""

from typing import Any


def check_least(model: Any, **least: float) -> None:
    """Raises for settings below what they are named with; None is left to the fit."""
    for name, bound in least.items():
        if not _number(model, name, bound) >= bound:
            raise ValueError(
                f"`{name}` must be >= {bound:g}; got {getattr(model, name)}."
            )


def check_positive(model: Any, *names: str) -> None:
    """Raises for settings that are not above zero; None is left to the fit."""
    for name in names:
        if not _number(model, name, 1.0) > 0:
            raise ValueError(f"`{name}` must be > 0; got {getattr(model, name)}.")


def _number(model: Any, name: str, open_: float) -> float:
    value = getattr(model, name)
    if value is None:
        return open_
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"`{name}` must be a number; got {value!r}.")
    return value
