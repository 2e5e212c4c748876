"""The Gaussian grid of spectral models: latitudes whose sums are exact integrals."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class GaussianGrid(NamedTuple):
    """Latitudes and longitudes in degrees, south to north and eastwards from 0.

    Attributes:
        latitude: ``[I]``.
        longitude: ``[J]``, evenly spread.
        weights: of the latitudes, ``[I]``; their sum is 2, that over the sine of the
            latitude.
    """

    latitude: NDArray[np.float64]
    longitude: NDArray[np.float64]
    weights: NDArray[np.float64]


def gaussian_grid(n_latitudes: int, n_longitudes: int | None = None) -> GaussianGrid:
    """Gauss-Legendre latitudes; T30, for instance, has 48, and 96 longitudes.

    ``sum(weights * f(sin(latitude)))`` is the integral of polynomials f up to the
    degree ``2 n_latitudes - 1``. Data of ERA5 run from north to south: flip them.

    Args:
        n_latitudes: number I of latitudes.
        n_longitudes: number J of longitudes; twice as many by default.
    """
    for name, value in (("n_latitudes", n_latitudes), ("n_longitudes", n_longitudes)):
        if value is not None and value < 1:
            raise ValueError(f"`{name}` must be an integer >= 1; got {value}.")
    nodes, weights = np.polynomial.legendre.leggauss(n_latitudes)
    count = n_longitudes or 2 * n_latitudes
    return GaussianGrid(
        np.degrees(np.arcsin(nodes)), 360.0 * np.arange(count) / count, weights
    )
