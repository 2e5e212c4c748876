"""Fully connected field, the network of the paper."""

import itertools
import math
from collections.abc import Sequence
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .base import Field
from .factory import FIELDS, Activation, FieldConfig, FieldKind

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
    "relu": nn.ReLU,
}

# Hidden layers of the paper: Lorenz-63 and Lorenz-96, Kuramoto-Sivashinsky.
PRESETS: dict[str, tuple[int, ...]] = {"2x200": (200, 200), "2x400": (400, 400)}


class MLPField(Field):
    """``f(u) = W_n a(... a(W_1 [u, x] + b_1) ...) + b_n``.

    Args:
        dim: size D of the state, the last axis of `u`.
        hidden: widths of the hidden layers.
        activation: "gelu", "tanh", "silu" or "relu".
        forcing_dim: number of inputs concatenated to the state.
        generator: draws the initial weights; torch's global one by default.
    """

    def __init__(
        self,
        dim: int,
        hidden: Sequence[int] = (200, 200),
        *,
        activation: Activation = "gelu",
        forcing_dim: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(forcing_dim)
        if dim < 1 or min(hidden, default=1) < 1:
            raise ValueError(
                f"`dim` and `hidden` must be positive; got {dim} and {list(hidden)}."
            )
        layers: list[nn.Module] = []
        width = dim + forcing_dim
        for size in hidden:
            layers += [nn.Linear(width, size), make_activation(activation)]
            width = size
        self.net = nn.Sequential(*layers, nn.Linear(width, dim))
        self.dim = dim
        if generator is not None:
            draw_weights(self, generator)

    @classmethod
    def preset(cls, name: str, dim: int, **options) -> Self:
        """A network of the paper: "2x200" (Lorenz systems) or "2x400" (KS)."""
        if name not in PRESETS:
            raise ValueError(f"`name` must be one of {list(PRESETS)}; got {name!r}.")
        return cls(dim, PRESETS[name], **options)

    def at(
        self, u: Float[Tensor, "*batch D"], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "*batch D"]:
        return self.net(u if x is None else torch.cat([u, x], dim=-1))


def make_activation(name: str) -> nn.Module:
    if name not in ACTIVATIONS:
        raise ValueError(
            f"`activation` must be one of {list(ACTIVATIONS)}; got {name!r}."
        )
    return ACTIVATIONS[name]()


@torch.no_grad()
def draw_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Draws weights from U(-1/sqrt(fan_in), 1/sqrt(fan_in)), as torch does."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv1d):
            bound = 1.0 / math.sqrt(layer.weight[0].numel())
            for parameter in layer.parameters():
                parameter.uniform_(-bound, bound, generator=generator)


def _make(
    config: FieldConfig,
    shape: tuple[int, ...],
    forcing_dim: int,
    generator: torch.Generator,
) -> MLPField:
    return MLPField(
        shape[0],
        config.hidden,
        activation=config.activation,
        forcing_dim=forcing_dim,
        generator=generator,
    )


def _count(config: FieldConfig, shape: tuple[int, ...], forcing_dim: int) -> int:
    widths = [shape[0] + forcing_dim, *config.hidden, shape[0]]
    return sum(a * b for a, b in itertools.pairwise(widths))


FIELDS.add("mlp", FieldKind(_make, _count))
