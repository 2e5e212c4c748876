"""A learned field for other programs: its equations as text, or a program of torch."""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from ..common.files import replacing
from ..coordinates.scaling import Scaler
from ..fields import LibraryField, as_linear
from ..fields.base import without_forcing

if TYPE_CHECKING:
    from .forecaster import Forecaster


def equations_of(
    field: nn.Module,
    scaler: Scaler,
    forcing_scaler: Scaler | None,
    names: Sequence[str] | None,
    digits: int,
) -> list[str]:
    """One line of text a component of a "library" field in scaled coordinates."""
    library = _library(field)
    if not scaler.per_entry:
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


def _library(field: nn.Module) -> LibraryField:
    """The field as a polynomial."""
    linear = as_linear(field)
    found = None if linear is None else linear.polynomial()
    if found is None:
        raise TypeError(
            "equations can be printed for `field='library'`; "
            f"this field is a {type(field).__name__}."
        )
    return deepcopy(found).cpu()


def export_field(
    model: "Forecaster", path: str | Path, *, dtype: torch.dtype = torch.float64
) -> torch.export.ExportedProgram:
    """Writes the field in physical units with ``torch.export``.

    The file needs torch alone to be read: ``torch.export.load(path).module()`` is a
    callable of ``(t, u)`` (and the inputs `x` for a model that has them) with a scalar
    time and states ``[B, *state]``, for any B.

    Args:
        model: a fitted model.
        path: file to write, by custom ``*.pt2``.
        dtype: precision of the program.
    """
    if not hasattr(model, "field_"):
        raise RuntimeError("the model is not fitted; call `fit` first.")
    # The table of the inputs is data, not part of the program.
    field = without_forcing(model.field_)
    program = model.scaler_.to_physical(field, model.forcing_scaler_)
    program = program.to("cpu", dtype).eval()
    shape = model.state_shape_
    batch = torch.export.Dim("batch", min=1)
    # Two members: a batch of one would be taken for a constant.
    arguments = [torch.zeros((), dtype=dtype), torch.zeros(2, *shape, dtype=dtype)]
    shapes: list[dict[int, torch.export.Dim] | None] = [None, {0: batch}]
    if model.forcing_scaler_ is not None:
        inputs = model.forcing_scaler_.shift.numel()
        arguments.append(torch.zeros(2, inputs, dtype=dtype))
        shapes.append({0: batch})
    with torch.no_grad():
        exported = torch.export.export(
            program, tuple(arguments), dynamic_shapes=tuple(shapes)
        )
    with replacing(path, "wb") as file:
        torch.export.save(exported, file)
    return exported
