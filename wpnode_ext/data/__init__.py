"""Observations: files, series and their gaps, noise to add."""

from .earth import GaussianGrid, gaussian_grid, incident_radiation
from .grids import load_grid
from .loaders import load_arrays, load_series
from .make import Data, as_series, make_series
from .noise import NoiseMode, add_noise, noise_level, noise_ratio
from .series import Series, component_names, lay_end_to_end
from .tables import MissingName, load_csv

__all__ = [
    "Data",
    "GaussianGrid",
    "MissingName",
    "NoiseMode",
    "Series",
    "add_noise",
    "as_series",
    "component_names",
    "gaussian_grid",
    "incident_radiation",
    "lay_end_to_end",
    "load_arrays",
    "load_csv",
    "load_grid",
    "load_series",
    "make_series",
    "noise_level",
    "noise_ratio",
]
