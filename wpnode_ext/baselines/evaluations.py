"""Evaluations: the unit of work that all methods share.

One evaluation is one state at which a field or map, its features or its derivative are
computed: by a fit, by a solver, or to choose settings by forecasts. One call counts
once at a state, the derivative together with the value. The state of a ring counts
once, however many sites it has. Backward passes do not count. Evaluations of different
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

# Methods of fields that evaluate at states, and the place of these among the arguments.
_PLACES = {
    "forward": 1,
    "at": 0,
    "features": 0,
    "combined": 0,
    "jacobian": 0,
    "value_and_jacobian": 0,
}
_open: list[list[int]] = []


def tally(states: int) -> None:
    """Adds to all open counters; maps, which are no fields, call it themselves."""
    for counter in _open:
        counter[0] += states


@contextmanager
def counted_evaluations() -> Iterator[list[int]]:
    """Counts evaluations while it is open; the entry of the list is their number.

    The methods of all fields are wrapped meanwhile, so fields hold no code for it.
    """
    counter = [0]
    _open.append(counter)
    changed = _wrap_fields() if len(_open) == 1 else []
    try:
        yield counter
    finally:
        _open.pop()
        for kind, name, method in changed:
            setattr(kind, name, method)


def _wrap_fields() -> list[tuple[type[nn.Module], str, Callable[..., Any]]]:
    """Makes the methods of all fields count, and returns the original ones."""
    changed = []
    # A value may need features or another field: only the outermost call counts.
    busy = [False]
    for kind in _with_subclasses(Field):
        for name in _PLACES.keys() & kind.__dict__.keys():
            method = kind.__dict__[name]
            changed.append((kind, name, method))
            setattr(kind, name, _counting(method, _PLACES[name], busy))
    return changed


def _counting(
    method: Callable[..., Any], place: int, busy: list[bool]
) -> Callable[..., Any]:
    @wraps(method)
    def wrapper(self: Field, *arguments: Any, **options: Any) -> Any:
        if busy[0] or torch.compiler.is_compiling():
            return method(self, *arguments, **options)
        u: Tensor = arguments[place] if len(arguments) > place else options["u"]
        tally(prod(u.shape[: u.dim() - self._state_dims()]))
        busy[0] = True
        try:
            return method(self, *arguments, **options)
        finally:
            busy[0] = False

    return wrapper


def _with_subclasses(kind: type[nn.Module]) -> set[type[nn.Module]]:
    found = {kind}
    for inner in kind.__subclasses__():
        found |= _with_subclasses(inner)
    return found
