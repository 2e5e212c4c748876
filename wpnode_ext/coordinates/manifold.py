"""The rest of a state, which fewer coordinates leave out, as a function of them.

Modes that decay fast follow the slow ones. Noise may hide them, so that they are not
worth coordinates of their own; their mean, given the slow ones, can still be estimated
by a regression of the observations on the coordinates. Noise in the observations
averages out; noise in the coordinates would not, so that refined states are needed.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..common.files import check_tensor
from ..fields import LibraryField

# Modes that are driven by products of two others are polynomials of this degree.
DEGREE = 2

Maps = tuple[Float[Tensor, "G M M"], Float[Tensor, "G D D"]]


@dataclass(frozen=True)
class RegressionSettings:
    """Limits of :func:`fit_completion`.

    Attributes:
        samples: least number of samples per term of the polynomial.
        terms: most terms; their Gram matrix is solved densely.
        parts: parts of the record for cross validation.
        blocks: blocks of each part; their means vary as the decrease of the errors
            does, although samples are correlated.
        sure: standard errors by which squared errors must fall.
        rounding: rests below this share of the data are rounding.
        resolved: combinations of terms smaller than this share of the largest count as
            zero.
        rows: samples whose terms are in memory at a time.
    """

    samples: int = 10
    terms: int = 2000
    parts: int = 5
    blocks: int = 20
    sure: float = 3.0
    rounding: float = 1e-10
    resolved: float = 1e-12
    rows: int = 1 << 14


_DEFAULT = RegressionSettings()


class Completion(nn.Module):
    """``rest(s) = directions @ law(s)`` for coordinates s; constants are float64.

    Args:
        directions: orthonormal, among those that have coordinates of zero, ``[D, R]``.
        coefficients: of a polynomial of the M coordinates, ``[J, R]``.
        dim: number M of coordinates.
        rate: rate at which deviations of a state from `rest` decay. Explicit steps must
            be shorter than about 2.5 over this rate.
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
        # In the precision and on the device of the constants.
        own = self.directions
        return (self.law.at(s.to(own)) @ own.T).to(s)

    def velocity(
        self,
        s: Float[Tensor, "*batch M"],
        speed: Float[Tensor, "*batch M"],
        rest: Float[Tensor, "*batch D"],
    ) -> Float[Tensor, "*batch D"]:
        """Time derivative of the rest of states.

        It is that of ``rest(s)`` along ``ds/dt = speed``, and a decay of deviations.
        """
        own = self.directions
        value, slope = self.law.value_and_jacobian(s.to(own))
        astray = rest.to(own) @ own - value
        change = (slope @ speed.to(own)[..., None])[..., 0] - self.rate * astray
        return (change @ own.T).to(rest)

    def constants(self) -> dict[str, Tensor | float]:
        """Arguments that make the :class:`Completion` again, besides `dim`."""
        return {
            "directions": self.directions.cpu().clone(),
            "coefficients": self.law.coefficients.detach().double().cpu().clone(),
            "rate": self.rate,
        }


def check_matrix(value: Any, name: str) -> None:
    """Raises ValueError unless an entry of a file is a matrix of real numbers."""
    check_tensor(value, name)
    if value.dim() != 2 or not value.is_floating_point():
        raise ValueError(f"{name} must be a matrix; got {list(value.shape)}")


def check_completion(state: dict[str, Any], name: str, dim: int) -> None:
    """Raises ValueError unless `state` holds the constants of a :class:`Completion`.

    Args:
        state: entry of a file, see :meth:`Completion.constants`.
        name: what messages call it.
        dim: size of a state.
    """
    for entry in ("directions", "coefficients"):
        check_matrix(state[entry], f"{name}.{entry}")
    directions, law = state["directions"], state["coefficients"]
    if directions.shape[0] != dim or law.shape[1] != directions.shape[1]:
        raise ValueError(f"{name} must fit the coordinates")
    if type(state["rate"]) not in (int, float):
        raise ValueError(f"{name}.rate must be a number")


@torch.no_grad()
def fit_completion(
    rest: Float[Tensor, "N D"],
    states: Float[Tensor, "N M"],
    *,
    size: float,
    rate: float,
    maps: Maps | None = None,
    settings: RegressionSettings = _DEFAULT,
) -> Completion | None:
    """The regression of the rest of the observations on the coordinates.

    Combinations of entries are judged one by one: those are kept that cross validation
    over parts of the record predicts better than zero does.

    Args:
        rest: observations less the states of their coordinates, sample after sample.
        states: refined states, in the coordinates.
        size: standard deviation of the observations; far smaller values are rounding.
        rate: as in :class:`Completion`.
        maps: orthogonal symmetries, of the coordinates and of the states in the same
            order; the regression commutes with all of them.
        settings: limits of the regression.

    Returns:
        None if the samples are too few, or the coordinates predict nothing.
    """
    n, dim = states.shape
    terms = (dim + 1) * (dim + 2) // 2
    n_parts, resolved = settings.parts, settings.resolved
    least = settings.samples * terms * n_parts / (n_parts - 1)
    if terms > settings.terms or n < least:
        return None
    law = LibraryField(dim, DEGREE, outputs=1, dtype=torch.float64)
    parts = list(
        zip(
            states.double().tensor_split(n_parts),
            rest.double().tensor_split(n_parts),
            strict=True,
        )
    )
    sums = [_sums(law, s, r, maps, settings.rows) for s, r in parts]
    gram, right = (sum(pair[k] for pair in sums[1:]) + sums[0][k] for k in (0, 1))
    coefficients = _solution(gram, right, resolved)
    fitted = coefficients.T @ gram @ coefficients
    energy, axes = torch.linalg.eigh((fitted + fitted.T) / (2 * n))
    axes = axes[:, energy > (settings.rounding * size) ** 2]
    if axes.shape[1] == 0:
        return None
    # The decrease of squared errors, and the part of it that is chance.
    gains, chances = [], []
    for (s, r), (own_gram, own_right) in zip(parts, sums, strict=True):
        head = _solution(gram - own_gram, right - own_right, resolved) @ axes
        predicted = law.features(s) @ head
        chance = 2 * (r @ axes - predicted) * predicted
        gains.append((predicted.square() + chance).mean(0))
        chances += [block.mean(0) for block in chance.tensor_split(settings.blocks)]
    doubt = torch.stack(chances).std(0) / len(chances) ** 0.5
    axes = axes[:, torch.stack(gains).mean(0) > settings.sure * doubt]
    if axes.shape[1] == 0:
        return None
    return Completion(axes, coefficients @ axes, dim, rate)


def _sums(
    law: LibraryField,
    states: Float[Tensor, "N M"],
    rest: Float[Tensor, "N D"],
    maps: Maps | None,
    rows: int,
) -> tuple[Float[Tensor, "J J"], Float[Tensor, "J D"]]:
    """Both sides of the normal equations."""
    gram = torch.zeros(law.n_features, law.n_features, dtype=torch.float64)
    right = torch.zeros(law.n_features, rest.shape[1], dtype=torch.float64)
    for s, r in zip(states.split(rows), rest.split(rows), strict=True):
        phi = law.features(s)
        gram += phi.T @ phi
        right += phi.T @ r
    return (gram, right) if maps is None else _averaged(law, gram, right, *maps)


def _solution(
    gram: Float[Tensor, "J J"], right: Float[Tensor, "J D"], resolved: float
) -> Float[Tensor, "J D"]:
    """The solution of least norm, where terms depend on each other."""
    size = gram.diagonal().clamp(min=0.0).sqrt()
    # A coordinate that is always zero gets coefficients of zero.
    size = torch.where(size > 0, size, 1.0)
    values, vectors = torch.linalg.eigh(gram / size / size[:, None])
    known = values > resolved * values.max()
    inverse = torch.where(known, 1 / torch.where(known, values, 1.0), 0.0)
    scaled = vectors @ (inverse[:, None] * (vectors.T @ (right / size[:, None])))
    return scaled / size[:, None]


def _averaged(
    law: LibraryField,
    gram: Float[Tensor, "J J"],
    right: Float[Tensor, "J D"],
    maps: Float[Tensor, "G M M"],
    images: Float[Tensor, "G D D"],
) -> tuple[Float[Tensor, "J J"], Float[Tensor, "J D"]]:
    """Both sides for the data under all maps, ``features(g s) = features(s) moved``."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(2 * len(gram) + 8, law.dim, generator=generator).double()
    back = torch.linalg.pinv(law.features(points))
    both = torch.zeros_like(gram), torch.zeros_like(right)
    for g, image in zip(maps, images, strict=True):
        moved = back @ law.features(points @ g.T)
        both[0].add_(moved.T @ gram @ moved)
        both[1].add_(moved.T @ right @ image.T)
    return both[0] / len(maps), both[1] / len(maps)
