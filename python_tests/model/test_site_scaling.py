"""Fields that are one map at all sites: none of these is scaled by itself."""

import pytest
import torch

from trajectories import lorenz96
from wpnode_ext import WPNODE, make_series
from wpnode_ext.coordinates.scaling import Scaler
from wpnode_ext.coordinates.symmetry import Symmetry
from wpnode_ext.fields import ConvField, LibraryField, MLPField, RingField
from wpnode_ext.model.choose import Choice
from wpnode_ext.model.network import records
from wpnode_ext.model.prepare import make_state_scaler, prepare
from wpnode_ext.settings.config import FieldConfig, TrainConfig, resolve

DT = 0.01


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
