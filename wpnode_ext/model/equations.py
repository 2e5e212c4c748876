"""Learned polynomials as text, in the units of the data."""

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import nn

from ..coordinates.scaling import LinearScaler, Scaler
from ..fields import LibraryField, RestrictedField


def equations_of(
    field: nn.Module,
    scaler: Scaler,
    forcing_scaler: Scaler | None,
    names: Sequence[str] | None,
    digits: int,
) -> list[str]:
    """One line of text a component of a "library" field in scaled coordinates."""
    library = _library(field)
    if isinstance(scaler, LinearScaler):
        raise TypeError(
            "equations are printed for the entries of a state; this field was "
            f"fitted in {library.dim} coordinates of them. Those of the scaled "
            "coordinates are `field_.equations()`."
        )
    inputs, sizes = {}, _sizes(scaler, library.dim)
    if forcing_scaler is not None:
        inputs = {
            "forcing_scale": forcing_scaler.scale,
            "forcing_shift": forcing_scaler.shift,
        }
        sizes += _sizes(forcing_scaler, library.forcing_dim)
    physical = library.in_coordinates(scaler.scale, scaler.shift, **inputs)
    return physical.equations(names, digits=digits, sizes=sizes)


def _sizes(scaler: Scaler, count: int) -> list[float]:
    """Typical absolute values of the variables a scaler was fitted to."""
    return (scaler.shift.abs() + scaler.scale).flatten().expand(count).tolist()


@torch.no_grad()
def _library(field: nn.Module) -> LibraryField:
    """The polynomial; what a symmetry or a support leave open is one, too."""
    found = field.base if isinstance(field, RestrictedField) else field
    if not isinstance(found, LibraryField):
        raise TypeError(
            "equations can be printed for `field='library'`; "
            f"this field is a {type(found).__name__}."
        )
    found = deepcopy(found)
    if isinstance(field, RestrictedField):
        found.set_coefficients(field.head())
    return found.cpu()
