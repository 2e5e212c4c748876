"""Models on another device than their data; "meta" stands for one that is not here."""

from typing import Any

import pytest
import torch

from training_cases import DT, oscillator_data, small_config, small_field
from wpnode_ext import WPNODE
from wpnode_ext.coordinates.scaling import LinearScaler, StandardScaler
from wpnode_ext.data import lay_end_to_end
from wpnode_ext.fields import EquivariantField, LibraryField
from wpnode_ext.fields.base import FarField, device_of
from wpnode_ext.metrics import evaluation
from wpnode_ext.training.validation import ForecastValidation

META = torch.device("meta")


def test_wrapped_fields_follow_states_to_their_device() -> None:
    v = oscillator_data(50).double()
    eye = torch.eye(2, dtype=torch.float64)
    for scaler in (StandardScaler().fit(v), LinearScaler(eye, eye, v.mean(0))):
        field = small_field().double()
        physical = scaler.to_physical(field)
        field.to(META)  # as a trainer does, behind the back of what wraps it
        assert physical(0.0, v.to(META)).device == META


def test_validation_follows_the_field() -> None:
    times = DT * torch.arange(400, dtype=torch.float64)
    validate = ForecastValidation(lay_end_to_end(oscillator_data(), t=times), horizon=3)
    field = small_field()
    assert validate(field)["val_error"] < 1.0
    errors, lengths = validate.errors(field.to(META))
    assert errors.device == META and lengths.device == META
    # A function does not tell where it computes: the record stays.
    assert validate.errors(lambda t, u: -u)[0].device == META


def test_forecasts_start_where_the_field_is(monkeypatch) -> None:
    model = WPNODE(config=small_config(optim={"epochs": 1})).fit(oscillator_data(), DT)
    started = []

    def rollout(field: Any, u0: torch.Tensor, t: torch.Tensor, **options: Any) -> Any:
        started.append(u0.device)
        raise StopIteration

    monkeypatch.setattr(evaluation, "rollout", rollout)
    model.field_.to(META)
    with pytest.raises(StopIteration):
        model.evaluate(oscillator_data(100), DT)
    assert started == [META] and model.scaler_device() == META


def test_states_are_sent_to_a_field_far_away() -> None:
    class Far(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1, device=META))

        def forward(self, t, u):
            seen.extend([t.device, u.device])
            # Nothing comes back from there; a number in its place.
            return torch.ones(u.shape)

    seen = []
    field = FarField(Far())
    assert field(torch.tensor(0.0), torch.zeros(3, 2)).device.type == "cpu"
    assert seen == [META, META] and device_of(field) == META


def test_the_closed_form_says_that_it_leaves_the_device_alone() -> None:
    model = WPNODE(field="library", method="closed_form", refine=False, device="cuda")
    model.fit(oscillator_data(), DT)
    assert model.why_ == "as asked; computed on the CPU, not on cuda"
    assert model.scaler_device().type == "cpu"


def test_a_symmetric_field_drops_its_caches_when_it_is_moved() -> None:
    maps = torch.stack([torch.eye(2), -torch.eye(2)]).double()
    field = EquivariantField.of(LibraryField(2, 3, dtype=torch.float64), maps)
    u = torch.randn(4, 2, dtype=torch.float64)
    with torch.no_grad():
        field(0.0, u)
        assert field.to(META)(0.0, u.to(META)).device == META
