"""The earth of climate data: the Gaussian grid, and sunlight as ERA5 counts it.

Sunlight at the top of the atmosphere is an input known ahead. With the solar constant
S, the distance R, the declination delta, the hour angle H and the latitude phi its flux
at time t is ::

    S(t) R^-2 max(0, cos phi cos delta cos H + sin phi sin delta).

Formulas and constants are those of the ECMWF model.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Solar constant at the middle of 1996 .. 2008, W/m^2; the cycle of 13 years repeats.
_CYCLE = np.array(
    [
        *(1365.6121, 1365.7399, 1366.1021, 1366.3851, 1366.6836, 1366.6022, 1366.6807),
        *(1366.2300, 1366.0480, 1365.8545, 1365.8107, 1365.7240, 1365.6918),
    ]
)
_FIRST_YEAR, _SCALE = 1996, 0.9965
_NOON_2000 = np.datetime64("2000-01-01T12:00:00", "ms")
# Width of the bins of the integral, seconds.
BIN = 10


def incident_radiation(
    times: ArrayLike, latitude: ArrayLike, longitude: ArrayLike, *, hours: int = 1
) -> NDArray[np.float64]:
    """Energy that reached the top of the atmosphere in the hours that end at `times`.

    The variable "tisr" of ERA5, J/m^2, by trapezoids of ten seconds.

    Args:
        times: UTC, ``[T]``, as ``numpy.datetime64`` or text like "2000-01-01T12:00".
        latitude: degrees north, ``[I]``.
        longitude: degrees east, ``[J]``.
        hours: length of the intervals; 1 for hourly accumulations, 6 for their sums.

    Returns:
        ``[T, I, J]``.
    """
    if hours < 1:
        raise ValueError(f"`hours` must be an integer >= 1; got {hours}.")
    ends = np.atleast_1d(np.asarray(times, dtype="datetime64[ms]"))
    phi, lam = (
        np.radians(np.atleast_1d(np.asarray(angle, np.float64)))
        for angle in (latitude, longitude)
    )
    if np.isnat(ends).any() or (np.abs(phi) > np.pi / 2 + 1e-9).any():
        raise ValueError(
            "`times` must be dates, `latitude` between -90 and 90 degrees."
        )
    bins = 3600 * hours // BIN
    before = (1000 * BIN * np.arange(-bins, 1)).astype("timedelta64[ms]")
    weights = np.full(bins + 1, float(BIN))
    weights[[0, -1]] /= 2
    found = np.empty((len(ends), len(phi), len(lam)))
    for number, end in enumerate(ends):
        sun = _Sun(end + before)
        along = np.cos(sun.hour[:, None] + lam) * sun.cos_declination[:, None]
        height = np.cos(phi)[:, None] * along[:, None, :]
        height += (np.sin(phi) * sun.sin_declination[:, None])[..., None]
        found[number] = np.tensordot(
            weights * sun.constant / sun.distance**2, np.maximum(height, 0.0), 1
        )
    return found


class _Sun:
    """Place of the sun at some times, ``[n]`` each; angles in radians, distance in AU.

    Attributes:
        constant: flux at a distance of 1, W/m^2.
        distance: from the earth.
        sin_declination, cos_declination: of its height over the equator.
        hour: hour angle on the meridian of Greenwich, 0 at noon.
    """

    def __init__(self, times: NDArray[np.datetime64]) -> None:
        days = (times - _NOON_2000) / np.timedelta64(1, "D")
        years = days / 365.25
        orbit = 1.7535 + 6.283076 * years
        anomaly = 6.240041 + 6.283020 * years
        mean = 4.8951 + 6.283076 * years
        ecliptic = 4.8952 + 6.283320 * years - 0.0075 * np.sin(orbit)
        ecliptic += -0.0326 * np.cos(orbit) - 0.0003 * np.sin(2 * orbit)
        ecliptic += 0.0002 * np.cos(2 * orbit)
        # The equation of time, seconds.
        ahead = 591.8 * np.sin(2 * mean) - 459.4 * np.sin(anomaly)
        ahead += 39.5 * np.sin(anomaly) * np.cos(2 * mean)
        ahead += -12.7 * np.sin(4 * mean) - 4.8 * np.sin(2 * anomaly)
        self.constant = solar_constant(times)
        self.distance = 1.0001 - 0.0163 * np.sin(orbit) + 0.0037 * np.cos(orbit)
        self.sin_declination = np.sin(0.409093) * np.sin(ecliptic)
        self.cos_declination = np.sqrt(1 - self.sin_declination**2)
        self.hour = 2 * np.pi * (days % 1.0 + ahead / 86400)


def solar_constant(times: Any) -> NDArray[np.float64]:
    """Flux at the mean distance of the sun, W/m^2; linear between the middles of years.

    Args:
        times: ``numpy.datetime64``, any shape.
    """
    stamps = np.asarray(times, dtype="datetime64[ms]")
    first = stamps.astype("datetime64[Y]")
    length = (first + 1).astype("datetime64[ms]") - first.astype("datetime64[ms]")
    share = (stamps - first.astype("datetime64[ms]")) / length
    place = 1970 + first.astype(np.int64) + share - 0.5 - _FIRST_YEAR
    left = np.floor(place).astype(np.int64)
    low, high = (_CYCLE[n % len(_CYCLE)] for n in (left, left + 1))
    return _SCALE * (low + (place - left) * (high - low))


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
