"""Scalers of a fit: reduced coordinates, symmetries, sites that share a map."""

import pytest
import torch

from problems import noisy_lorenz96
from trajectories import lorenz63, lorenz96, normal
from wpnode_ext import WPNODE
from wpnode_ext.coordinates.reduced import Coordinates
from wpnode_ext.coordinates.scaling import LinearScaler, Scaler
from wpnode_ext.coordinates.symmetry import Symmetry
from wpnode_ext.data import make_series
from wpnode_ext.fields import ConvField, LibraryField, MLPField, RingField
from wpnode_ext.model.choose import Choice
from wpnode_ext.model.network import records
from wpnode_ext.model.prepare import (
    make_state_scaler,
    prepare,
    reduced_scaler,
    scaled_maps,
)
from wpnode_ext.settings.config import FieldConfig, TrainConfig, resolve

NAN, DT = float("nan"), 0.01


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


def ring(n: int = 600) -> torch.Tensor:
    return lorenz96(n, DT, sites=8)


def trained_on(v: torch.Tensor, config: TrainConfig) -> tuple[Scaler, torch.Tensor]:
    """The scaler of the state, and the values that a network is trained on."""
    config.validation.fraction = 0.0
    choice = Choice(config, "", config)
    data = prepare(make_series(v, dt=DT), None, choice)
    return data.scaler, records(data, choice, torch.float32)[0].v


def test_a_users_own_ring_fits_data_that_a_ring_made() -> None:
    field = RingField(LibraryField(4, 2, outputs=1), 8, offsets=(-2, -1, 0, 1))
    model = WPNODE(field=field, method="closed_form", refine=False).fit(ring(), DT)
    assert model.scaler_.scale.numel() == 1
    assert model.solved_.fit.relative.max() < 1e-4


@pytest.mark.parametrize("kind", ["conv", "ring", "ring_library"])
def test_training_by_gradients_scales_all_sites_alike(kind: str) -> None:
    config = resolve(TrainConfig(method="wp", field=FieldConfig(kind=kind)))
    v = ring(100)
    scaler, scaled = trained_on(v, config)
    assert scaler.kind == "minmax" and scaler.scale.numel() == 1
    assert scaled.min() == 0.0 and scaled.max() == 1.0


def test_the_module_decides_and_the_settings_overrule_it() -> None:
    quick = {"method": "weak", "epochs": 1, "p": 4, "ell": 20, "q": 4}
    v = ring(200)
    sizes = [
        WPNODE(field=field, **quick).fit(v, DT).scaler_.scale.numel()
        for field in (ConvField(width=4), MLPField(8, (4,)))
    ]
    assert sizes == [1, 8]
    config = TrainConfig(scaler_per="component")
    model = WPNODE(field=ConvField(width=4), config=config, **quick).fit(v, DT)
    assert model.scaler_.scale.numel() == 8


def test_channels_of_a_ring_keep_scales_of_their_own() -> None:
    v = torch.stack([ring(100), 50 * ring(100) + 7], 1)
    config = resolve(TrainConfig(method="wp", field=FieldConfig(kind="conv")))
    _, scaled = trained_on(v, config)
    assert scaled.amin((0, 2)).tolist() == [0.0, 0.0]
    assert scaled.amax((0, 2)).tolist() == pytest.approx([1.0, 1.0])


def test_sites_stay_alike_under_a_symmetry_that_does_not_exchange_them_all() -> None:
    v = ring(100)
    config = resolve(TrainConfig(field=FieldConfig(kind="ring")))
    series, mirror = make_series(v, dt=DT), Symmetry.mirror(8)
    scaler = make_state_scaler(series, config, mirror, None)
    assert scaler.scale.unique().tolist() == pytest.approx([v.std(correction=0).item()])
    assert scaler.shift.unique().tolist() == pytest.approx([v.mean().item()])
