"""A layered random feature map, global or shared by the groups of a ring."""

from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .evaluations import tally
from .local import RingGroups


class RandomFeatureMap(nn.Module):
    """The slope ``(Psi(u) - u) / dt`` of a layered random feature map.

    With ``y_0 = u`` (its own group, for local maps), layers ``i = 1 .. depth`` give ::

        y_i = skip * y_{i-1} + C_i tanh(W_i z + b_i),   Psi(u) = y_depth

    and ``z = [u, y_{i-1}]`` for deep maps, ``z = u`` otherwise.

    Args:
        dim: size D of the state.
        dt: distance of the samples.
        width: features D_r of a layer.
        depth: number of layers.
        skip: add what came before.
        carry: show each layer what came before, besides the state.
        group, reach: of a local map, see :class:`RingGroups`.
    """

    def __init__(
        self,
        dim: int,
        dt: float,
        width: int,
        depth: int,
        *,
        skip: bool,
        carry: bool,
        group: int | None = None,
        reach: int = 0,
    ) -> None:
        super().__init__()
        self.groups = RingGroups(dim, group, reach)
        self.dt, self.depth, self.skip, self.carry = dt, depth, skip, carry
        columns = self.groups.seen + carry * self.groups.size
        shapes = {"w": (width, columns), "b": (width,), "c": (width, self.groups.size)}
        for name, shape in shapes.items():
            empty = torch.zeros(depth, *shape, dtype=torch.float64)
            self.register_buffer(name, empty)

    w: Tensor
    b: Tensor
    c: Tensor

    def features(
        self,
        layer: int,
        x: Float[Tensor, "*r seen"],
        y: Float[Tensor, "*r G"],
    ) -> Float[Tensor, "*r width"]:
        """``tanh(W_i z + b_i)``."""
        z = torch.cat([x, y], dim=-1) if self.carry else x
        return torch.tanh(nn.functional.linear(z, self.w[layer], self.b[layer]))

    def apply_layer(
        self, layer: int, x: Float[Tensor, "*r seen"], y: Float[Tensor, "*r G"]
    ) -> Float[Tensor, "*r G"]:
        change = self.features(layer, x, y) @ self.c[layer]
        return y + change if self.skip else change

    def forward(self, t: Tensor | float, u: Float[Tensor, "*b D"]) -> Tensor:
        tally(prod(u.shape[:-1]))
        x, own = self.groups.inputs(u), self.groups.own(u)
        if self.skip:
            # The change alone is summed, so that dividing by dt loses no digits.
            y, change = own, torch.zeros_like(own)
            for layer in range(self.depth):
                change = change + self.features(layer, x, y) @ self.c[layer]
                y = own + change
        else:
            y = own
            for layer in range(self.depth):
                y = self.apply_layer(layer, x, y)
            change = y - own
        return change.flatten(-2) / self.dt
