"""What fewer coordinates leave out of a state, as a function of what they hold.

Modes that decay fast follow the slow ones. Where noise hides them they are not worth
coordinates of their own, but their mean, given the slow ones, is seen all the same: it
is the regression of what was observed there on the coordinates that were kept. Noise in
what is predicted averages out; noise in what predicts would not, so that the states are
to be refined ones.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .fields import LibraryField

# Modes that are driven by products of two others are polynomials of this degree.
DEGREE = 2
# Samples for every term of the polynomial, at least, and terms at most.
SAMPLES, TERMS = 10, 2000
# How sure it must be that what is kept is not noise, in standard deviations of it.
SURE = 4.0
# Rows of terms held at a time.
ROWS = 1 << 14
# Combinations of terms smaller than this share of the largest are not told from none.
RESOLVED = 1e-12


class Completion(nn.Module):
    """``rest(s) = directions @ law(s)`` for coordinates s; constants are float64.

    Args:
        directions: orthonormal, orthogonal to what the coordinates hold, ``[D, R]``.
        coefficients: of a polynomial of the M coordinates, ``[J, R]``.
        dim: number M of coordinates.
        rate: at which what a state has beyond `rest` is forgotten, over time.
    """

    directions: Tensor
    law: LibraryField

    def __init__(
        self,
        directions: Float[Tensor, "D R"],
        coefficients: Float[Tensor, "J R"],
        dim: int,
        rate: float,
    ) -> None:
        super().__init__()
        self.dim, self.rate = dim, rate
        self.register_buffer("directions", directions.double().cpu().clone())
        count = directions.shape[1]
        self.law = LibraryField(dim, DEGREE, outputs=count, dtype=torch.float64)
        self.law.set_coefficients(coefficients.double())
        self.law.requires_grad_(False)

    def forward(self, s: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch D"]:
        # In the precision of the constants, where they are.
        own = self.directions
        return (self.law.at(s.to(own)) @ own.T).to(s)

    def velocity(
        self,
        s: Float[Tensor, "*batch M"],
        speed: Float[Tensor, "*batch M"],
        u: Float[Tensor, "*batch D"],
    ) -> Float[Tensor, "*batch D"]:
        """Time derivative of the rest of states `u` about the centre.

        That of `rest` along ``ds/dt = speed``, and the way back to it.
        """
        own = self.directions
        value, slope = self.law.value_and_jacobian(s.to(own))
        astray = u.to(own) @ own - value
        change = (slope @ speed.to(own)[..., None])[..., 0] - self.rate * astray
        return (change @ own.T).to(u)

    def constants(self) -> dict[str, Tensor | float]:
        """What :class:`Completion` is made of again, besides `dim`."""
        return {
            "directions": self.directions.cpu().clone(),
            "coefficients": self.law.coefficients.detach().double().cpu().clone(),
            "rate": self.rate,
        }


@torch.no_grad()
def fit_completion(
    rest: Float[Tensor, "N D"],
    states: Float[Tensor, "N M"],
    *,
    left_out: int,
    rate: float,
    maps: tuple[Float[Tensor, "G M M"], Float[Tensor, "G D D"]] | None = None,
) -> Completion | None:
    """The regression of what was left out on the coordinates, where there is any.

    Of the combinations of entries those are kept whose fitted part is larger than noise
    alone would make it: for J terms and R directions of normal noise of variance v its
    sum of squares exceeds ``v (sqrt(J) + sqrt(R) + t)^2`` along any of them with a
    chance below ``exp(-t^2 / 2)`` (Davidson and Szarek).

    Args:
        rest: observations less what the coordinates hold of them.
        states: refined states, in the coordinates.
        left_out: number of directions the coordinates do not span.
        rate: as in :class:`Completion`.
        maps: orthogonal symmetries, of the coordinates and of the states in the same
            order; what is found is the same under all of them.

    Returns:
        None where samples are too few, or what was left out is noise.
    """
    n, dim = states.shape
    terms = (dim + 1) * (dim + 2) // 2
    if left_out < 1 or terms > TERMS or n < SAMPLES * terms:
        return None
    law = LibraryField(dim, DEGREE, outputs=1, dtype=torch.float64)
    gram = torch.zeros(terms, terms, dtype=torch.float64)
    right = torch.zeros(terms, rest.shape[1], dtype=torch.float64)
    pieces = zip(states.double().split(ROWS), rest.double().split(ROWS), strict=True)
    for s, r in pieces:
        phi = law.features(s)
        gram += phi.T @ phi
        right += phi.T @ r
    if maps is not None:
        gram, right = _averaged(law, gram, right, *maps)
    size = gram.diagonal().sqrt()
    values, vectors = torch.linalg.eigh(gram / size / size[:, None])
    known = values > RESOLVED * values.max()
    inverse = torch.where(known, 1 / torch.where(known, values, 1.0), 0.0)
    scaled = vectors @ (inverse[:, None] * (vectors.T @ (right / size[:, None])))
    coefficients = scaled / size[:, None]
    fitted = coefficients.T @ gram @ coefficients
    energy, axes = torch.linalg.eigh((fitted + fitted.T) / 2)
    noise = (rest.double().square().sum() - energy.sum()).clamp(min=0.0) / (
        n * left_out
    )
    kept = energy > noise * (terms**0.5 + left_out**0.5 + SURE) ** 2
    kept &= energy > RESOLVED * energy.max()
    if not kept.any():
        return None
    directions = axes[:, kept]
    return Completion(directions, coefficients @ directions, dim, rate)


def _averaged(
    law: LibraryField,
    gram: Float[Tensor, "J J"],
    right: Float[Tensor, "J D"],
    maps: Float[Tensor, "G M M"],
    images: Float[Tensor, "G D D"],
) -> tuple[Float[Tensor, "J J"], Float[Tensor, "J D"]]:
    """Both for the data under all maps, by ``features(g s) = features(s) moved``."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(2 * len(gram) + 8, law.dim, generator=generator).double()
    back = torch.linalg.pinv(law.features(points))
    both = torch.zeros_like(gram), torch.zeros_like(right)
    for g, image in zip(maps, images, strict=True):
        moved = back @ law.features(points @ g.T)
        both[0].add_(moved.T @ gram @ moved)
        both[1].add_(moved.T @ right @ image.T)
    return both[0] / len(maps), both[1] / len(maps)
