"""One local map at every site of a ring: Lorenz-96 and its like."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .factory import FIELDS, FieldConfig, FieldKind
from .library import count_polynomial, make_polynomial
from .linear import LinearField
from .random_features import count_features, make_features


class RingField(LinearField):
    """``f_s(u) = local(u_{s + o_1}, ..., u_{s + o_w})``, indices modulo the sites.

    Every site is an example of the same map: S times the data for few coefficients,
    and shifting the state shifts the field.

    Args:
        local: the map of the values at w neighbours to one number: a linear field with
            ``dim = w`` and ``outputs = 1``, e.g.
            ``LibraryField(4, 2, outputs=1)``. Its inputs are felt at all sites alike.
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
        places = torch.arange(sites)[:, None] + torch.tensor(list(offsets))
        self.register_buffer("neighbours", places % sites)

    @property
    def coefficients(self) -> nn.Parameter:  # type: ignore[override]
        """Those of the local map, ``[J, 1]``."""
        return self.local.coefficients

    def around(self, u: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S w"]:
        """Values at the neighbours of every site."""
        return u[..., self.neighbours]

    def features(
        self, u: Float[Tensor, "*batch S"], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "*batch S J"]:
        return self.local.features(self.around(u), self._felt(x))

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
        slopes = self.local.jacobian(self.around(u), self._felt(x))
        return self._spread(slopes[..., 0, :])

    def at(
        self, u: Float[Tensor, "*batch S"], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "*batch S"]:
        return self.local.at(self.around(u), self._felt(x))[..., 0]

    def value_and_jacobian(
        self, u: Float[Tensor, "*batch S"]
    ) -> tuple[Float[Tensor, "*batch S"], Float[Tensor, "*batch S S"]]:
        value, slopes = self.local.value_and_jacobian(self.around(u))
        return value[..., 0], self._spread(slopes[..., 0, :])

    def _spread(self, slopes: Float[Tensor, "*batch S w"]) -> Tensor:
        """Slopes by the neighbours of each site in their columns of a matrix."""
        table = slopes.new_zeros(*slopes.shape[:-1], self.sites)
        return table.scatter_(-1, self.neighbours.expand(slopes.shape), slopes)

    def _felt(self, x: Tensor | None) -> Tensor | None:
        if x is None:
            return None
        return x[..., None, :].expand(*x.shape[:-1], self.sites, x.shape[-1])


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
