"""Sunlight and Gaussian grids against published values and exact integrals."""

import numpy as np
import pytest

from wpnode_ext.data import gaussian_grid, incident_radiation
from wpnode_ext.data.earth import solar_constant

# Time, latitude, longitude, J/m^2 in one hour and in six, from an independent program.
RADIATION = [
    ("2000-01-01T12:00", 0.0, 0.0, 4_602_745.9, 17_567_443.8),
    ("2000-06-21T12:00", 1.8556, 0.0, 4_358_951.2, 16_859_866.9),
    ("2000-06-21T00:00", 87.1591, 0.0, 1_672_453.7, 10_495_413.4),
    ("2005-03-20T06:00", 46.3886, 90.0, 3_346_695.1, 12_536_520.8),
    ("2008-12-21T18:00", -35.2556, 270.0, 4_915_146.4, 21_567_340.1),
    ("2010-07-01T12:00", 50.0995, 30.0, 4_019_455.1, 23_083_214.5),
]
# The northern half of 48 Gaussian latitudes in degrees, and their weights.
LATITUDES = """
1.8556 5.5667 9.2779 12.9890 16.7001 20.4112 24.1223 27.8334 31.5445 35.2556 38.9666
42.6776 46.3886 50.0995 53.8103 57.5210 61.2316 64.9419 68.6520 72.3616 76.0702 79.7770
83.4789 87.1591
"""
WEIGHTS = """
.06473770 .06446616 .06392424 .06311419 .06203942 .06070444 .05911484 .05727729
.05519950 .05289019 .05035904 .04761666 .04467456 .04154508 .03824135 .03477722
.03116723 .02742651 .02357076 .01961616 .01557932 .01147723 .00732755 .00315335
"""


@pytest.mark.parametrize(("time", "north", "east", "hour", "six"), RADIATION)
def test_radiation_is_that_of_the_table(time, north, east, hour, six) -> None:
    for hours, expected in ((1, hour), (6, six)):
        found = incident_radiation([time], [north], [east], hours=hours)
        assert found.shape == (1, 1, 1)
        assert found.item() == pytest.approx(expected, rel=1e-6)


def test_hours_add_up_and_the_other_side_is_dark() -> None:
    times = np.datetime64("2003-09-01T06") + np.arange(6).astype("timedelta64[h]")
    found = incident_radiation(times, [-60.0, 10.0, 80.0], [0.0, 120.0, 240.0])
    assert found.shape == (6, 3, 3)
    whole = incident_radiation(
        times[-1:], [-60.0, 10.0, 80.0], [0.0, 120.0, 240.0], hours=6
    )
    np.testing.assert_allclose(found.sum(0), whole[0], rtol=1e-12)
    # Midnight at 10 degrees north.
    assert incident_radiation(["2003-09-01T12:30"], [10.0], [180.0]).item() == 0.0


def test_the_sun_lights_half_the_earth() -> None:
    # The mean over the sphere is a quarter of the flux, whatever the season.
    grid = gaussian_grid(64, 128)
    time = "2007-02-03T04:00"
    found = incident_radiation([time], grid.latitude, grid.longitude)[0]
    mean = (grid.weights / 2) @ found.mean(1) / 3600
    # Early in February the distance is 0.9857 (Astronomical Almanac).
    assert mean == pytest.approx(solar_constant(time) / 4 / 0.9857**2, rel=2e-3)


def test_the_solar_constant_follows_its_cycle() -> None:
    assert solar_constant("2020-07-02") == pytest.approx(1360.944, abs=2e-3)
    assert solar_constant("2033-07-02T12") == pytest.approx(
        solar_constant("2007-07-02T12")
    )


def test_gaussian_latitudes_and_weights() -> None:
    grid = gaussian_grid(48)
    north = np.array(LATITUDES.split(), float)
    np.testing.assert_allclose(grid.latitude[24:], north, atol=1e-4)
    np.testing.assert_allclose(grid.latitude[:24], -north[::-1], atol=1e-4)
    np.testing.assert_allclose(
        grid.weights[24:], np.array(WEIGHTS.split(), float), atol=1e-8
    )
    np.testing.assert_array_equal(grid.longitude[[0, 1, -1]], [0.0, 3.75, 356.25])


@pytest.mark.parametrize("degree", [0, 7, 94])
def test_sums_over_latitudes_are_integrals(degree: int) -> None:
    grid = gaussian_grid(48)
    x = np.sin(np.radians(grid.latitude))
    exact = 2 / (degree + 1) if degree % 2 == 0 else 0.0
    assert grid.weights @ x**degree == pytest.approx(exact, abs=1e-13)


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"`n_latitudes` must be an integer >= 1; got 0"
    ):
        gaussian_grid(0)
    with pytest.raises(ValueError, match="`hours`"):
        incident_radiation(["2000-01-01"], [0.0], [0.0], hours=0)
    with pytest.raises(ValueError, match="`latitude` between -90 and 90"):
        incident_radiation(["2000-01-01"], [91.0], [0.0])
