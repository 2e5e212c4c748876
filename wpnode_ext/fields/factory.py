"""Kinds of fields by name, and the field that settings describe.

A new kind of field is one file with a class and one entry of :data:`FIELDS`. Code
outside the package adds kinds in the same way::

    class DampedField(LinearField): ...

    def make(config, shape, forcing_dim, generator):
        return DampedField(shape[0], **config.options)

    FIELDS.add("damped", FieldKind(make, linear=True))
    model = WPNODE(field="damped", config={"field.options": {"order": 3}})
"""

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as setting
from typing import Any, Literal

import torch

from ..common.registry import Registry, suggestion
from .base import Field

Activation = Literal["gelu", "tanh", "silu", "relu"]


@dataclass
class FieldConfig:
    """Settings of a field.

    Attributes:
        kind: a name among :data:`FIELDS`; "auto" is "features" for the closed form and
            "mlp" otherwise.
        hidden: widths of the hidden layers of "mlp".
        activation: of "mlp" and "conv".
        width, kernels: channels and kernel sizes of "conv".
        degree: of polynomials, "library" and "ring_library".
        features, depth: hidden units and layers of random features, "features" and
            "ring".
        steepness: of random features; None: the evidence of noisy data chooses it where
            it is known, else it is 1.
        offsets: neighbours of a site that "ring" and "ring_library" see.
        options: settings of kinds that stand outside the package, numbers and texts.
    """

    kind: str = "auto"
    hidden: list[int] = setting(default_factory=lambda: [200, 200])
    activation: Activation = "gelu"
    width: int = 64
    kernels: list[int] = setting(default_factory=lambda: [5, 1, 1])
    degree: int = 2
    features: int = 300
    depth: int = 1
    steepness: float | None = None
    offsets: list[int] = setting(default_factory=lambda: [-2, -1, 0, 1, 2])
    options: dict[str, Any] = setting(default_factory=dict)

    def __post_init__(self) -> None:
        names = ("auto", *FIELDS)
        if self.kind not in names:
            raise ValueError(
                f"`field.kind` must be one of {', '.join(names)}; got {self.kind!r}."
                f"{suggestion(self.kind, names)}"
            )


Make = Callable[[FieldConfig, tuple[int, ...], int, torch.Generator], Field]
Count = Callable[[FieldConfig, tuple[int, ...], int], int]


@dataclass(frozen=True)
class FieldKind:
    """One kind of field, as settings and files know it.

    How a field is fitted, saved and exported follows from its class: the methods of
    :class:`~wpnode_ext.fields.Field` and :class:`~wpnode_ext.fields.LinearField`.

    Attributes:
        make: returns the field, with its initial weights, for settings, the shape of a
            state, the number of inputs and a generator. A field read from a file is
            made anew from its settings and takes the weights of the file.
        count: returns for the same, without a generator, about how many weights the
            field has. Files whose settings describe far more weights than they hold are
            refused before the field is made. Not checked if None.
        linear: whether the field is linear in its coefficients, a
            :class:`~wpnode_ext.fields.LinearField`; the closed form needs it.
        shared: whether the field is one map at all sites, which are scaled alike.
        drawn: whether its hidden layer is drawn, `features` units of one `steepness`,
            both of which the data may choose.
        axes: numbers of axes that a state may have.
    """

    make: Make
    count: Count | None = None
    linear: bool = False
    shared: bool = False
    drawn: bool = False
    axes: tuple[int, ...] = (1,)


FIELDS: Registry[FieldKind] = Registry("field.kind", "fields")


def make_field(
    config: FieldConfig,
    state_shape: tuple[int, ...],
    forcing_dim: int,
    generator: torch.Generator,
) -> Field:
    """The field that settings describe, with its initial weights.

    Args:
        config: settings; their kind is not "auto".
        state_shape: shape of a state.
        forcing_dim: number of inputs.
        generator: draws the initial weights of networks.
    """
    kind = FIELDS.find(config.kind)
    if len(state_shape) not in kind.axes:
        axes = " or ".join(map(str, kind.axes))
        raise ValueError(
            f"`v` must have states with {axes} axis for the field {config.kind!r}; got "
            f"shape {list(state_shape)}. Flatten them, or give a field of your own."
        )
    return kind.make(config, state_shape, forcing_dim, generator)


def count_weights(
    config: FieldConfig, state_shape: tuple[int, ...], forcing_dim: int
) -> int:
    """About how many weights :func:`make_field` makes; 0 for kinds without a count."""
    count = FIELDS.find(config.kind).count
    return 0 if count is None else count(config, state_shape, forcing_dim)
