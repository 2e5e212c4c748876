"""A ring of alike groups: what each of them sees."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class RingGroups(nn.Module):
    """D components in ``D / G`` groups; each sees itself and I groups on either side.

    Without a group size there is one group, the whole state, which sees itself.

    Args:
        dim: size D of the state.
        group: size G of a group, a divisor of D, or None.
        reach: number I of neighbouring groups on either side.

    Attributes:
        size: components G of a group.
        count: number of groups.
        seen: inputs ``(2 I + 1) G`` of each.
    """

    index: Tensor

    def __init__(self, dim: int, group: int | None = None, reach: int = 0) -> None:
        super().__init__()
        size = dim if group is None else group
        reach = 0 if group is None else reach
        if size < 1 or dim % size:
            raise ValueError(f"`group` must divide the {dim} components; got {group}.")
        if reach < 0 or (2 * reach + 1) * size > dim:
            raise ValueError(
                f"`reach` must be >= 0 and the {2 * reach + 1} groups of {size} it "
                f"spans fit into {dim} components; got {reach}."
            )
        self.size, self.count = size, dim // size
        self.seen = (2 * reach + 1) * size
        first = size * torch.arange(self.count) - reach * size
        places = (first[:, None] + torch.arange(self.seen)) % dim
        self.register_buffer("index", places, persistent=False)

    def inputs(self, u: Float[Tensor, "*b D"]) -> Float[Tensor, "*b S seen"]:
        """What every group sees."""
        return u[..., self.index]

    def own(self, u: Float[Tensor, "*b D"]) -> Float[Tensor, "*b S G"]:
        """The components of every group."""
        return u.unflatten(-1, (self.count, self.size))
