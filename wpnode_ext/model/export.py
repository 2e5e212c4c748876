"""A learned field for other programs: its equations as text, or a program of torch."""

import copy
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..common.files import replacing
from ..coordinates.scaling import LinearScaler, Scaler
from ..fields import Field, LibraryField, RestrictedField

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


class PhysicalField(nn.Module):
    """``field(t, u)`` or, with inputs, ``field(t, u, x)``, scaling included.

    Unlike a field in training it looks up no table: inputs are an argument.
    """

    shift: Tensor
    scale: Tensor
    forcing_shift: Tensor
    forcing_scale: Tensor

    def __init__(self, model: "Forecaster") -> None:
        super().__init__()
        self.field = model.field_
        scalers = {"": model.scaler_, "forcing_": model.forcing_scaler_}
        for name, scaler in scalers.items():
            if scaler is not None:
                self.register_buffer(f"{name}shift", scaler.shift.clone())
                self.register_buffer(f"{name}scale", scaler.scale.clone())
        self.forced = model.forcing_scaler_ is not None
        reduced = isinstance(model.scaler_, LinearScaler)
        self.embedded = model.physical_field_ if reduced else None

    def forward(
        self,
        t: Float[Tensor, ""],
        u: Float[Tensor, "B ..."],
        x: Float[Tensor, "B C"] | None = None,
    ) -> Float[Tensor, "B ..."]:
        if self.embedded is not None:
            return self.embedded(t, u)
        scaled = (u - self.shift) / self.scale
        if not self.forced:
            return self.scale * self.field(t, scaled)
        assert isinstance(self.field, Field) and x is not None
        inputs = (x - self.forcing_shift) / self.forcing_scale
        return self.scale * self.field.at(scaled, inputs)


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
    program = _copy(PhysicalField(model), dtype)
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


def _copy(module: PhysicalField, dtype: torch.dtype) -> PhysicalField:
    """A copy in another precision on the CPU; the model keeps its own."""
    field = module.field
    forcing = field.forcing if isinstance(field, Field) else None
    if isinstance(field, Field):
        field.forcing = None  # data, not part of the program
    try:
        return copy.deepcopy(module).to("cpu", dtype).eval()
    finally:
        if isinstance(field, Field):
            field.forcing = forcing
