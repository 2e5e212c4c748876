"""Files of arrays and grids: made here, cut from real ones, and real ones whole."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from wpnode_ext.data import load_arrays, load_grid, load_series
from wpnode_ext.weak.noise import estimate_noise

ROOT = Path(__file__).resolve().parents[2]
FIXTURE = Path(__file__).parents[1] / "fixtures" / "double_pendulum.mat"
DATA = Path(os.environ.get("WPNODE_DATA", ROOT.parent / "shared" / "data"))


def real(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"there is no {name} in the folder WPNODE_DATA names")
    return path


def test_npy_is_one_series(tmp_path) -> None:
    v = np.arange(12.0).reshape(6, 2)
    np.save(tmp_path / "v.npy", v)
    series = load_series(tmp_path / "v.npy", dt=0.1)
    assert torch.equal(series.v, torch.from_numpy(v)) and series.dt == 0.1


def test_npz_has_arrays_by_name(tmp_path) -> None:
    path = tmp_path / "data.npz"
    v, t = np.random.default_rng(0).normal(size=(8, 3)), 0.2 * np.arange(8)
    np.savez(path, v=v, t=t, u=np.arange(8), dt=0.2)
    assert load_series(path).dt == pytest.approx(0.2)
    series = load_series(path, time="t", forcing=["u"])
    assert series.dt == pytest.approx(0.2)
    assert series.forcing is not None and series.forcing.shape == (8, 1)
    both = load_series(path, columns=["v", "u"], dt=0.2)
    assert both.state_shape == (4,) and both.v[3, 3] == 3


def test_times_of_a_file_of_arrays_are_used_beside_its_step(tmp_path) -> None:
    path, t = tmp_path / "data.npz", np.delete(0.2 * np.arange(10), [3, 6])
    np.savez(path, v=np.ones((8, 3)), t=t, dt=0.2)
    assert load_series(path).missing.nonzero().flatten().tolist() == [3, 6]
    with pytest.raises(ValueError, match="`dt` must be the step of the times"):
        load_series(path, dt=0.5)
    np.savez(path, v=np.ones((8, 3)), t=t, dt=0.3)
    with pytest.raises(ValueError, match="got 0.3, but the times have a step of 0.2"):
        load_series(path)


def test_npz_with_dates(tmp_path) -> None:
    path = tmp_path / "data.npz"
    dates = np.datetime64("2020-01-01T00", "h") + 3 * np.arange(6)
    np.savez(path, x=np.ones((6, 2)), time=dates)
    series = load_series(path)
    assert series.dt == 1.0 and series.meta["seconds_per_unit"] == 3 * 3600
    # Dates leave the unit of time open, which a step given beside them fixes.
    in_hours = load_series(path, dt=3.0)
    assert in_hours.dt == pytest.approx(3.0)
    assert in_hours.meta["seconds_per_unit"] == 3600
    with pytest.raises(ValueError, match="the times have a step of 3"):
        load_series(path, dt=1.0, time_unit="h")


def test_torch_files_hold_tensors_lists_or_dictionaries(tmp_path) -> None:
    path = tmp_path / "data.pt"
    torch.save(torch.ones(5, 2), path)
    assert load_series(path, dt=1.0).state_shape == (2,)
    torch.save({"v": [torch.ones(5, 2), torch.ones(7, 2)], "dt": 0.1}, path)
    series = load_series(path)
    assert series.lengths == (5, 7) and series.dt == pytest.approx(0.1)


def test_cells_of_a_matlab_file_are_series_along_their_longest_axis() -> None:
    series = load_series(FIXTURE, columns=["Y_id"])
    assert series.lengths == (120, 100) and series.state_shape == (4,)
    assert series.dt == pytest.approx(0.001)
    # The third row of a cell is the angular velocity of the first: its derivative.
    first = series.parts()[0].v
    slope = (first[2:, 0] - first[:-2, 0]) / (2 * 0.001)
    assert (slope - first[1:-1, 2]).abs().max() < 0.05 * first[:, 2].abs().max()
    timed = load_series(FIXTURE, columns=["Y_id"], time="Time_id")
    assert timed.dt == pytest.approx(0.001) and timed.lengths == (120, 100)


def test_an_unclear_time_axis_is_refused(tmp_path) -> None:
    path = tmp_path / "data.mat"
    savemat(path, {"v": np.ones((8, 6)), "dt": 1.0})
    with pytest.raises(ValueError, match="axis of 'v', shape .8, 6., is not clear"):
        load_series(path)
    assert load_series(path, time_axis=1).v.shape == (6, 8)


@pytest.mark.parametrize(
    ("arrays", "options", "words"),
    [
        ({"a": 1, "b": 2}, {"dt": 1.0}, "holds a, b; name the state by `columns=`"),
        ({"v": 1}, {}, "has no array 't' or 'dt'; give `dt=`"),
        ({"v": 1}, {"dt": 1.0, "columns": ["w"]}, "has no array 'w'; its arrays are v"),
        ({"v": 1}, {"dt": "step"}, "has no array 'step'"),
        ({"v": 1}, {"dt": 1.0, "time_axis": 5}, "`time_axis` must be an axis of 'v'"),
    ],
)
def test_missing_arrays_are_named(tmp_path, arrays, options, words) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, **{name: np.ones((6, 2)) for name in arrays})
    with pytest.raises(ValueError, match=words):
        load_arrays(path, **options)


@pytest.mark.parametrize("name", ["data.npz", "data.npy", "data.pt", "data.mat"])
def test_broken_files_are_refused(tmp_path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"this is no file of arrays")
    with pytest.raises(ValueError, match=f"{name} cannot be read as"):
        load_series(path, dt=1.0)


def test_files_that_hold_code_are_not_run(tmp_path) -> None:
    path = tmp_path / "data.pt"
    torch.save({"v": Path("x")}, path)
    with pytest.raises(ValueError, match="cannot be read as .pt"):
        load_series(path, dt=1.0)


def test_unknown_endings_and_absent_files_are_refused(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load_series(tmp_path / "data.csv")
    (tmp_path / "data.xlsx").write_bytes(b"")
    with pytest.raises(ValueError, match="must end in .csv.*got 'data.xlsx'"):
        load_series(tmp_path / "data.xlsx")


def test_without_xarray_the_message_names_the_extra(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "xarray", None)
    with pytest.raises(ImportError, match="needs xarray; pip install 'wpnode_ext.data"):
        load_grid(tmp_path / "data.nc")


def test_times_of_a_grid_may_be_numbers(tmp_path) -> None:
    xarray = pytest.importorskip("xarray", reason="needs the extra `data`")
    pytest.importorskip("h5netcdf", reason="needs the extra `data`")
    values, times = np.arange(20.0).reshape(10, 2), 0.5 * np.arange(10)
    coords = {"time": times, "x": [0.0, 1.0]}
    path = tmp_path / "data.nc"
    xarray.Dataset({"u": (("time", "x"), values)}, coords=coords).to_netcdf(path)
    series = load_series(path)
    assert series.dt == pytest.approx(0.5) and series.v.tolist() == values.tolist()
    xarray.Dataset({"u": (("a", "b"), values)}).to_netcdf(tmp_path / "other.nc")
    with pytest.raises(ValueError, match="0 dimensions that look like the time"):
        load_series(tmp_path / "other.nc")


def test_grids_become_states(tmp_path) -> None:
    xarray = pytest.importorskip("xarray", reason="needs the extra `data`")
    dates = np.datetime64("2021-03-01", "ns") + np.timedelta64(6, "h") * np.arange(9)
    values = np.random.default_rng(0).normal(size=(9, 1, 2, 3)).astype(np.float32)
    dims = ("time", "level", "lat", "lon")
    dataset = xarray.Dataset(
        {"a": (dims, values), "b": (dims, 2 * values), "area": ("lat", [1.0, 2.0])},
        coords={"time": dates},
    )
    path = tmp_path / "data.nc"
    dataset.to_netcdf(path, engine="scipy")
    series = load_series(path)
    assert series.state_shape == (2, 2, 3) and series.dt == 1.0
    assert series.meta["seconds_per_unit"] == 6 * 3600
    np.testing.assert_array_equal(series.v[:, 0].numpy(), values[:, 0])
    one = load_series(path, columns=["b"], time_unit="D")
    assert one.state_shape == (2, 3) and one.dt == pytest.approx(0.25)
    with pytest.raises(ValueError, match="no variable 'c'; its variables are a, b"):
        load_series(path, columns=["c"])
    with pytest.raises(ValueError, match="no dimension 't'"):
        load_series(path, time="t")


def test_real_pendulum_swings_are_26_series() -> None:
    series = load_series(
        real("double_pendulum/DoublePendulumDataForParameterEstimation.mat"),
        columns=["Y_id"],
    )
    assert series.n_series == 26 and set(series.lengths) <= {2667, 2658}
    assert series.dt == pytest.approx(0.001) and series.state_shape == (4,)
    angles = estimate_noise(series.v, lengths=series.lengths).sigma[:2]
    assert (angles < 1e-2).all()


def test_real_laser_intensities_are_8_bit_numbers() -> None:
    series = load_series(real("santafe_laser/santafe_laser.npy"), dt=1.0)
    assert series.v.shape == (10093, 1)
    assert series.v.min() >= 0 and series.v.max() <= 255
    assert torch.equal(series.v, series.v.round())


def test_real_reanalysis_is_read_from_zarr() -> None:
    pytest.importorskip("xarray", reason="needs the extra `data`")
    pytest.importorskip("zarr", reason="needs the extra `data`")
    series = load_series(real("era5_global_6h/era5_msl_2025-2026_djf_2.5x2.5.zarr"))
    assert series.v.shape == (360, 73, 144) and series.dt == 1.0
    assert series.meta["seconds_per_unit"] == 6 * 3600
    assert 9e4 < series.v.min() < series.v.max() < 1.1e5


def test_real_data_over_land_have_empty_cells_at_sea() -> None:
    pytest.importorskip("xarray", reason="needs the extra `data`")
    path = real("wfde5_uk_hourly/air_temperature.nc")
    pytest.importorskip("h5netcdf", reason="needs the extra `data`")
    with pytest.raises(ValueError, match="310 of 560 cells.*missing='drop'"):
        load_series(path)
    series = load_series(path, missing="drop")
    assert series.v.shape == (744, 250) and len(series.meta["cells"]) == 250
    assert series.mask is None and 250 < series.v.min() < series.v.max() < 300
