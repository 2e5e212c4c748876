"""One local map at every site of a ring, such as Lorenz-96."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .factory import FIELDS, FieldConfig, FieldKind
from .library import count_polynomial, make_polynomial
from .linear import LinearField
from .random_features import count_features, make_features


def ring_neighbours(
    dim: int, offsets: Sequence[int], group: int = 1
) -> Int[Tensor, "S w"]:
    """Positions that each group of a ring sees.

    Args:
        dim: entries of the ring.
        offsets: positions seen, from the first entry of a group on.
        group: entries of a group, a divisor of `dim`.
    """
    first = torch.arange(0, dim, group)
    return (first[:, None] + torch.tensor(list(offsets))) % dim


class RingField(LinearField):
    """``f_s(u) = local(u_{s + o_1}, ..., u_{s + o_w})``, indices modulo the sites.

    Every site is an example of the same map: S times the data for few coefficients,
    and shifting the state shifts the field.

    Args:
        local: the map of the values at w neighbours to one number: a linear field with
            ``dim = w`` and ``outputs = 1``, e.g.
            ``LibraryField(4, 2, outputs=1)``. All sites have the same inputs.
        sites: size S of the ring.
        offsets: positions of the neighbours, e.g. ``(-2, -1, 0, 1)``; by default those
            around the site, the left side first: ``-(w // 2), ...``.
    """

    same_at_sites = True
    neighbours: Tensor

    def __init__(
        self, local: LinearField, sites: int, offsets: Sequence[int] | None = None
    ) -> None:
        super().__init__(local.forcing_dim)
        width = local.dim
        if offsets is None:
            offsets = range(-(width // 2), width - width // 2)
        if len({o % sites for o in offsets}) != len(offsets) or len(offsets) != width:
            raise ValueError(
                f"`offsets` must name {width} different sites of {sites}; "
                f"got {list(offsets)}."
            )
        if local.sites != 1 or local.coefficients.shape[1] != 1:
            raise ValueError(
                "`local` must have one value; make it with `outputs=1`. Got "
                f"{local.sites * local.coefficients.shape[1]}."
            )
        self.local, self.dim, self.sites = local, sites, sites
        self.register_buffer("neighbours", ring_neighbours(sites, offsets))

    @property
    def coefficients(self) -> nn.Parameter:  # type: ignore[override]
        """The coefficients of the local map, ``[J, 1]``."""
        return self.local.coefficients

    def around(self, u: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S w"]:
        """Values at the neighbours of every site."""
        return u[..., self.neighbours]

    def draw(
        self,
        states: Float[Tensor, "N D"],
        generator: torch.Generator,
        *,
        inputs: Float[Tensor, "N C"] | None = None,
        maps: Float[Tensor, "G D D"] | None = None,
        whole_group: bool = True,
    ) -> None:
        """Draws the local map for one box that holds the values of all sites."""
        ends = torch.stack([states.amin(), states.amax()])[:, None]
        self.local.draw(ends.expand(-1, self.local.dim), generator, inputs=inputs)

    def features(
        self, u: Float[Tensor, "*batch S"], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "*batch S J"]:
        return self.local.features(self.around(u), self._inputs_of_sites(x))

    def combined(
        self,
        u: Float[Tensor, "*batch S"],
        basis: Float[Tensor, "J K"],
        weights: Float[Tensor, " P"] | None = None,
    ) -> Float[Tensor, "*rest S K"]:
        return self.local.combined(self.around(u), basis, weights)

    def jacobian(
        self, u: Float[Tensor, "*batch S"], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "*batch S S"]:
        slopes = self.local.jacobian(self.around(u), self._inputs_of_sites(x))
        return self._spread(slopes[..., 0, :])

    def at(
        self, u: Float[Tensor, "*batch S"], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "*batch S"]:
        return self.local.at(self.around(u), self._inputs_of_sites(x))[..., 0]

    def value_and_jacobian(
        self, u: Float[Tensor, "*batch S"]
    ) -> tuple[Float[Tensor, "*batch S"], Float[Tensor, "*batch S S"]]:
        value, slopes = self.local.value_and_jacobian(self.around(u))
        return value[..., 0], self._spread(slopes[..., 0, :])

    def _spread(self, slopes: Float[Tensor, "*batch S w"]) -> Tensor:
        """Matrix of the slopes of each site by its neighbours."""
        table = slopes.new_zeros(*slopes.shape[:-1], self.sites)
        return table.scatter_(-1, self.neighbours.expand(slopes.shape), slopes)

    def _inputs_of_sites(self, x: Tensor | None) -> Tensor | None:
        if x is None:
            return None
        return x[..., None, :].expand(*x.shape[:-1], self.sites, x.shape[-1])


class RingGroups(nn.Module):
    """A state of D components on a ring, cut into ``D / G`` groups that are alike.

    Each group sees itself and `reach` groups on either side. Without a group size the
    whole state is one group, which sees itself.

    Args:
        dim: size D of the state.
        group: size G of a group, a divisor of D, or None.
        reach: number of neighbouring groups on either side.

    Attributes:
        size: components G of a group.
        count: number of groups.
        seen: inputs ``(2 reach + 1) G`` of each.
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
        places = ring_neighbours(dim, range(-reach * size, (reach + 1) * size), size)
        self.register_buffer("index", places, persistent=False)

    def inputs(self, u: Float[Tensor, "*b D"]) -> Float[Tensor, "*b S seen"]:
        """The components that each group sees."""
        return u[..., self.index]

    def own(self, u: Float[Tensor, "*b D"]) -> Float[Tensor, "*b S G"]:
        """The components of each group."""
        return u.unflatten(-1, (self.count, self.size))


def _of_features(
    config: FieldConfig, shape: tuple[int, ...], forcing_dim: int, _: torch.Generator
) -> RingField:
    local = make_features(config, len(config.offsets), forcing_dim, outputs=1)
    return RingField(local, shape[0], config.offsets)


def _of_polynomials(
    config: FieldConfig, shape: tuple[int, ...], forcing_dim: int, _: torch.Generator
) -> RingField:
    local = make_polynomial(config, len(config.offsets), forcing_dim, outputs=1)
    return RingField(local, shape[0], config.offsets)


def _count_features(config: FieldConfig, shape: tuple[int, ...], _: int) -> int:
    return count_features(config) + shape[0] + len(config.offsets)


def _count_polynomials(
    config: FieldConfig, shape: tuple[int, ...], forcing_dim: int
) -> int:
    reach = len(config.offsets)
    return count_polynomial(config, reach + forcing_dim) + shape[0] + reach


FIELDS.add(
    "ring",
    FieldKind(_of_features, _count_features, linear=True, shared=True, drawn=True),
)
FIELDS.add(
    "ring_library",
    FieldKind(_of_polynomials, _count_polynomials, linear=True, shared=True),
)
