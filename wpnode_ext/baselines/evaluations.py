"""Evaluations: the unit of work that all methods share.

One evaluation is one state at which a field or map, its features or its derivative are
computed: by a fit, by a solver, or to choose settings by forecasts. A call that returns
a value with its derivative counts once at each state. The state of a ring counts once,
however many sites it has. Backward passes do not count. Evaluations of different
methods have different costs; compare seconds for those.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from ..fields import Field

# Methods that evaluate a field, and the position of the states among their arguments.
_STATE_POSITIONS = {
    "forward": 1,
    "at": 0,
    "features": 0,
    "combined": 0,
    "jacobian": 0,
    "value_and_jacobian": 0,
}
_open_counters: list[list[int]] = []


def tally(states: int) -> None:
    """Adds evaluations at so many states to all open counters.

    Maps call it themselves: only the methods of fields are wrapped.
    """
    for counter in _open_counters:
        counter[0] += states


@contextmanager
def counted_evaluations() -> Iterator[list[int]]:
    """Counts evaluations while it is open; the entry of the list is their number.

    The methods of all field classes are wrapped while it is open, so that fields need
    no code for counting.
    """
    counter = [0]
    _open_counters.append(counter)
    wrapped = _wrap_fields() if len(_open_counters) == 1 else []
    try:
        yield counter
    finally:
        _open_counters.pop()
        for kind, name, method in wrapped:
            setattr(kind, name, method)


def _wrap_fields() -> list[tuple[type[nn.Module], str, Callable[..., Any]]]:
    """Wraps the methods of all field classes; returns class, name, original method."""
    originals = []
    # A value may need features or another field: only the outermost call counts.
    inside_call = [False]
    for kind in _with_subclasses(Field):
        for name in _STATE_POSITIONS.keys() & kind.__dict__.keys():
            method = kind.__dict__[name]
            originals.append((kind, name, method))
            position = _STATE_POSITIONS[name]
            setattr(kind, name, _counting(method, position, inside_call))
    return originals


def _counting(
    method: Callable[..., Any], position: int, inside_call: list[bool]
) -> Callable[..., Any]:
    """`method`, which also adds the number of its states to the open counters."""

    @wraps(method)
    def wrapper(self: Field, *arguments: Any, **options: Any) -> Any:
        if inside_call[0] or torch.compiler.is_compiling():
            return method(self, *arguments, **options)
        u: Tensor = arguments[position] if len(arguments) > position else options["u"]
        tally(prod(u.shape[: u.dim() - self._state_dims()]))
        inside_call[0] = True
        try:
            return method(self, *arguments, **options)
        finally:
            inside_call[0] = False

    return wrapper


def _with_subclasses(kind: type[nn.Module]) -> set[type[nn.Module]]:
    found = {kind}
    for subclass in kind.__subclasses__():
        found |= _with_subclasses(subclass)
    return found
