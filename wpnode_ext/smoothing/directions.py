"""Heads of a linear field in an orthonormal basis, from what it shows most to least."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..fields.linear import LinearField

# Combinations of features smaller than this share of the largest are left out: no noise
# that is worth removing lets the data speak of them.
SMALLEST = 1e-8
# Samples the sizes of features are taken from.
SAMPLES = 2000
# Sizes beside the largest that are not told from none.
ROUNDING = 1e-12
TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class Directions:
    """``coefficients = basis @ z * sizes``.

    Features are divided by their sizes (``field.feature_sizes``); the basis are the
    right singular vectors of what is left, over their singular values: all combinations
    have one size, so that their information does not lose the small ones to rounding.
    How small they are is what a prior must know. Random features depend on each other
    almost completely: of 300 for three variables 56 combinations have a size above
    1e-8.

    Attributes:
        basis: ``[J, K]``.
        inverse: ``[K, J]``, a left inverse of it.
        shares: singular values relative to the largest, ``[K]``.
        sizes: of the time derivative, for each output, ``[O]``.
    """

    basis: Float[Tensor, "J K"]
    inverse: Float[Tensor, "K J"]
    shares: Float[Tensor, " K"]
    sizes: Float[Tensor, " O"]

    @classmethod
    def of(
        cls, field: LinearField, u: Float[Tensor, "N D"], speed: Float[Tensor, "M D"]
    ) -> "Directions":
        """For the features at states `u`, and time derivatives of size `speed`."""
        size, share, vh = _combinations(field, u)
        outputs = field.coefficients.shape[1]
        speeds = speed.reshape(-1, outputs).square().mean(0).sqrt()
        least = max(TINY, ROUNDING * speeds.max().item())
        return cls(
            basis=vh.T / size[:, None] / share,
            inverse=vh * size * share[:, None],
            shares=share,
            # Of what never changes rounding, at least, can be expected.
            sizes=speeds.clamp(min=least),
        )

    @property
    def n_unknowns(self) -> int:
        return self.basis.shape[1] * len(self.sizes)

    @property
    def spread(self) -> Float[Tensor, " P"]:
        """Sizes of the unknowns that a prior expects, output by output."""
        return self.shares.repeat(len(self.sizes))

    def features(
        self, field: LinearField, u: Float[Tensor, "M D"]
    ) -> Float[Tensor, "M S K"]:
        """Those of the field, combined; one row a site."""
        return field.combined(u, self.basis).reshape(len(u), field.sites, -1)

    def mean_features(
        self,
        field: LinearField,
        points: list[Float[Tensor, "M D"]],
        weights: list[float],
    ) -> Float[Tensor, "M S K"]:
        """Weighted sums of the same at several points."""
        u, share = torch.stack(points), torch.tensor(weights, dtype=points[0].dtype)
        found = field.combined(u, self.basis, share)
        return found.reshape(u.shape[1], field.sites, -1)

    def unknowns(self, coefficients: Float[Tensor, "J O"]) -> Float[Tensor, " P"]:
        """z of given coefficients, output by output."""
        return (self.inverse @ (coefficients.double() / self.sizes)).T.reshape(-1)

    def coefficients(self, z: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch J O"]:
        rows = z.unflatten(-1, (len(self.sizes), -1)).mT
        return self.basis @ rows * self.sizes


def count_unknowns(field: LinearField, u: Float[Tensor, "N D"]) -> int:
    """How many numbers :class:`Directions` has for a field at states `u`."""
    return len(_combinations(field, u)[1]) * field.coefficients.shape[1]


def _combinations(
    field: LinearField, u: Float[Tensor, "N D"]
) -> tuple[Float[Tensor, " J"], Float[Tensor, " K"], Float[Tensor, "K J"]]:
    """Sizes of the features, and those and weights of combinations that stand out."""
    some = u[:: max(1, len(u) // SAMPLES)]
    phi = field.features(some).reshape(-1, field.n_features)
    size = field.feature_sizes(some)
    size = size.clamp(min=ROUNDING * size.max().item())
    triangle = torch.linalg.qr(phi / size, mode="r").R
    _, s, vh = torch.linalg.svd(triangle, full_matrices=False)
    share = s / s[0].clamp(min=TINY)
    kept = share > SMALLEST
    return size, share[kept], vh[kept]
