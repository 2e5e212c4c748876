"""Checks shapes in the package's annotations at every call during the tests."""

from collections.abc import Callable
from typing import Any, TypeVar, get_args

from beartype import beartype
from jaxtyping import AbstractArray, install_import_hook

F = TypeVar("F", bound=Callable[..., Any])

# Modules with shapes in annotations, except traced ones: `torch.compile` and
# `torch.export` fail on the checks.
CHECKED = (
    "coordinates.reduced",
    "coordinates.scaling",
    "data",
    "metrics",
    "ops.reference",
    "solvers.rollouts",
    "systems",
    "weak.filter",
    "weak.noise",
    "weak.selection",
)
CHECKER = f"{__name__}.check"


def names_a_shape(hint: Any) -> bool:
    """Returns True for ``Float[Tensor, "N D"]`` and hints that contain such."""
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(names_a_shape(part) for part in get_args(hint))


def check(function: F) -> F:
    """`function` with the shapes of its arguments and its result checked.

    Other hints are dropped: the package's own checks refuse wrong types, with messages
    that tests match.
    """
    hints = getattr(function, "__annotations__", {})
    kept = {name: hint for name, hint in hints.items() if names_a_shape(hint)}
    function.__annotations__ = kept
    return beartype(function)


def switch_on() -> None:
    """Adds the checks to these modules when they are imported."""
    install_import_hook([f"wpnode_ext.{name}" for name in CHECKED], CHECKER)
