"""Convolutional field on a ring, for Lorenz-96 and Kuramoto-Sivashinsky."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .base import Field
from .factory import FIELDS, Activation, FieldConfig, FieldKind
from .mlp import draw_weights, make_activation


class ConvField(Field):
    """Circular convolutions along the last axis; shifting the state shifts the field.

    With the default kernels it is one local map, a network of the values at a site and
    at its two neighbours on each side, applied at every site.

    Args:
        channels: variables at each site. States are ``[*batch, S]`` for one, and
            ``[*batch, channels, S]`` for more. The number of sites is not fixed.
        width: channels of the hidden layers.
        kernels: odd kernel sizes, one a layer.
        activation: "gelu", "tanh", "silu" or "relu".
        forcing_dim: number of inputs; every site depends on each in the same way.
        generator: draws the initial weights; torch's global one by default.
    """

    same_at_sites = True

    def __init__(
        self,
        channels: int = 1,
        *,
        width: int = 64,
        kernels: Sequence[int] = (5, 1, 1),
        activation: Activation = "gelu",
        forcing_dim: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(forcing_dim)
        if channels < 1 or width < 1:
            raise ValueError(
                f"`channels` and `width` must be positive; got {channels} and {width}."
            )
        if not kernels or any(k < 1 or k % 2 == 0 for k in kernels):
            raise ValueError(
                f"`kernels` must be odd and positive; got {list(kernels)}."
            )
        layers: list[nn.Module] = []
        size = channels + forcing_dim
        for k in kernels[:-1]:
            layers += [_ring_convolution(size, width, k), make_activation(activation)]
            size = width
        self.net = nn.Sequential(
            *layers, _ring_convolution(size, channels, kernels[-1])
        )
        self.channels = channels
        self.reach = sum(k // 2 for k in kernels)
        if generator is not None:
            draw_weights(self, generator)

    def _state_dims(self) -> int:
        return 1 if self.channels == 1 else 2

    def at(
        self, u: Float[Tensor, "..."], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "..."]:
        sites = u.shape[-1]
        if sites < 2 * self.reach + 1:
            raise ValueError(
                f"`u` must have at least {2 * self.reach + 1} sites, the reach of the "
                f"kernels; got {sites}. Use smaller `kernels`."
            )
        rows = u.reshape(-1, self.channels, sites)
        if x is not None:
            inputs = x.reshape(-1, self.forcing_dim, 1).expand(-1, -1, sites)
            rows = torch.cat([rows, inputs], dim=1)
        return self.net(rows).reshape(u.shape)


def _ring_convolution(inputs: int, outputs: int, kernel: int) -> nn.Conv1d:
    return nn.Conv1d(
        inputs, outputs, kernel, padding=kernel // 2, padding_mode="circular"
    )


def _make(
    config: FieldConfig,
    shape: tuple[int, ...],
    forcing_dim: int,
    generator: torch.Generator,
) -> ConvField:
    return ConvField(
        1 if len(shape) == 1 else shape[0],
        width=config.width,
        kernels=config.kernels,
        activation=config.activation,
        forcing_dim=forcing_dim,
        generator=generator,
    )


def _count(config: FieldConfig, shape: tuple[int, ...], forcing_dim: int) -> int:
    channels = 1 if len(shape) == 1 else shape[0]
    between = [config.width] * (len(config.kernels) - 1)
    widths = [channels + forcing_dim, *between, channels]
    pairs = zip(widths, widths[1:], config.kernels, strict=False)
    return sum(a * b * k for a, b, k in pairs)


FIELDS.add("conv", FieldKind(_make, _count, shared=True, axes=(1, 2)))
