"""Scalers to fewer coordinates: centres of symmetries, samples that are not whole."""

import pytest
import torch

from problems import noisy_lorenz96
from trajectories import lorenz63, normal
from wpnode_ext.coordinates.reduced import Coordinates
from wpnode_ext.coordinates.scaling import LinearScaler
from wpnode_ext.coordinates.symmetry import Symmetry
from wpnode_ext.data import make_series
from wpnode_ext.model.prepare import make_state_scaler, reduced_scaler, scaled_maps
from wpnode_ext.settings.config import TrainConfig

NAN = float("nan")


def test_maps_of_the_coordinates_are_those_of_the_state() -> None:
    """The mean of a finite record is not left alone by a reflection; the centre is."""
    # The end stays on one wing: the mean is far from the axis of the reflection.
    u, symmetry = lorenz63(300, 0.01), Symmetry.reflection([-1, -1, 1])
    u = torch.cat([u, torch.tensor([[9.0, 9.0, 25.0]]).double().expand(300, 3)])
    assert u.mean(0)[:2].abs().min() > 0.1
    scaler = reduced_scaler(make_series(u, dt=0.01), "pod", symmetry)
    maps = scaled_maps(symmetry, scaler)
    assert maps is not None
    for g, moved in zip(symmetry.matrices, maps.matrices, strict=True):
        torch.testing.assert_close(
            scaler.transform(u @ g.T), scaler.transform(u) @ moved.T
        )


def test_a_centre_that_the_maps_move_is_refused() -> None:
    eye = torch.eye(3, dtype=torch.float64)
    scaler = LinearScaler(eye, eye, torch.tensor([1.0, 0.0, 5.0]).double())
    with pytest.raises(ValueError, match="`shift` must be the same under every map"):
        scaled_maps(Symmetry.reflection([-1, -1, 1]), scaler)


@pytest.mark.parametrize("coordinates", [None, "fourier", "pod"])
def test_irregular_times_with_missing_values_are_scaled(coordinates) -> None:
    v = noisy_lorenz96(sites=6, n=200)[1]
    v[50, 2] = NAN
    t = 0.02 * torch.arange(200) + 0.005 * torch.rand(200)
    series, symmetry = make_series(v, t=t), Symmetry.shifts(6)
    assert series.t is not None
    scaler = make_state_scaler(series, TrainConfig(), symmetry, coordinates)
    assert scaler.transform(series.v).isfinite().all()


@pytest.mark.parametrize("coordinates", [None, "fourier"])
def test_a_series_without_a_whole_sample_is_left_out(coordinates) -> None:
    v = noisy_lorenz96(sites=6, n=200)[1]
    holed = v[:50].clone()
    holed[:, 1] = NAN
    symmetry, config = Symmetry.shifts(6), TrainConfig()
    one, other = (
        make_state_scaler(make_series(parts, dt=0.02), config, symmetry, coordinates)
        for parts in ([v, holed], [v])
    )
    torch.testing.assert_close(one.shift, other.shift)
    torch.testing.assert_close(one.scale, other.scale)
    with pytest.raises(ValueError, match="samples of which no value is missing"):
        first = torch.where(torch.arange(50)[:, None] % 2 == 0, v[:50], holed)
        first[::2, 0] = NAN
        make_state_scaler(make_series(first, dt=0.02), config, symmetry, coordinates)


@pytest.mark.parametrize("kind", ["fourier", "pod"])
def test_samples_on_both_sides_of_a_gap_are_no_neighbours(kind: str) -> None:
    """A jump across removed samples would be taken for noise."""
    angle = torch.arange(8).double() * torch.pi / 4
    t = 0.02 * torch.arange(400, dtype=torch.float64)
    v = torch.cos(t[:, None] + angle) + 1e-6 * normal(400, 8)
    missing = torch.zeros(400, dtype=torch.bool)
    missing[100:200] = missing[250:300] = True
    found = Coordinates.choose(kind, v, missing=missing)
    assert found.noise is not None and found.noise.max() < 1e-5
    # Of v there is no stretch of 17 samples: the old way is better than none.
    missing[::10] = True
    assert Coordinates.choose(kind, v, missing=missing).dim >= 2
