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


@dataclass(frozen=True)
class Directions:
    """``coefficients = basis @ z * sizes``.

    Features are divided by their root mean squares; the basis are the right singular
    vectors of what is left, over their singular values: all combinations have one size,
    so that their information does not lose the small ones to rounding. How small they
    are is what a prior must know. Random features depend on each other almost
    completely: of 300 for three variables 56 combinations have a size above 1e-8.

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
        some = u[:: max(1, len(u) // SAMPLES)]
        phi = field.features(some).reshape(-1, field.n_features)
        rms = phi.square().mean(0).sqrt()
        rms = rms.clamp(min=1e-12 * rms.max().item())
        triangle = torch.linalg.qr(phi / rms, mode="r").R
        _, s, vh = torch.linalg.svd(triangle, full_matrices=False)
        share = s / s[0].clamp(min=torch.finfo(s.dtype).tiny)
        kept = share > SMALLEST
        outputs = field.coefficients.shape[1]
        size = speed.reshape(-1, outputs).square().mean(0).sqrt()
        return cls(
            basis=vh[kept].T / rms[:, None] / share[kept],
            inverse=vh[kept] * rms * share[kept][:, None],
            shares=share[kept],
            sizes=size.clamp(min=torch.finfo(s.dtype).tiny),
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

    def unknowns(self, coefficients: Float[Tensor, "J O"]) -> Float[Tensor, " P"]:
        """z of given coefficients, output by output."""
        return (self.inverse @ (coefficients.double() / self.sizes)).T.reshape(-1)

    def coefficients(self, z: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch J O"]:
        rows = z.unflatten(-1, (len(self.sizes), -1)).mT
        return self.basis @ rows * self.sizes
