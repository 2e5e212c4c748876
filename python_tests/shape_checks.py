"""Checks the shapes in the package's annotations at every call made by a test."""

from collections.abc import Callable
from typing import Any, TypeVar, get_args

from beartype import beartype
from jaxtyping import AbstractArray, install_import_hook

F = TypeVar("F", bound=Callable[..., Any])

# Everything that states shapes and is not traced: `torch.compile` and `torch.export`
# cannot see through the checks.
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
    """Whether a hint is, or holds, ``Float[Tensor, "N D"]`` or its like."""
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(names_a_shape(part) for part in get_args(hint))


def check(function: F) -> F:
    """`function` with the shapes of its arguments and its result checked.

    Other hints are for the type checker: our own checks answer a wrong type, in words
    that tests look for.
    """
    hints = getattr(function, "__annotations__", {})
    kept = {name: hint for name, hint in hints.items() if names_a_shape(hint)}
    function.__annotations__ = kept
    return beartype(function)


def switch_on() -> None:
    """From now on, these modules are checked as they are imported."""
    install_import_hook([f"wpnode_ext.{name}" for name in CHECKED], CHECKER)
