"""Files of models: fields that settings rebuild, and fields that the user gives."""

from typing import Any

import pytest
import torch

from training_cases import DT, oscillator_data, small_config
from wpnode_ext import WPNODE, load
from wpnode_ext.fields import LibraryField, MLPField, RingField
from wpnode_ext.settings.config import FieldConfig

U0 = torch.tensor([1.0, 0.0])
TIMES = DT * torch.arange(10)


def trained(**options: Any) -> WPNODE:
    field = FieldConfig(kind="mlp", hidden=[16])
    config = small_config(field=field, optim={"epochs": 1})
    return WPNODE(config=config, **options).fit(oscillator_data(), DT)


def test_another_activation_is_not_rebuilt_as_the_one_of_the_settings(tmp_path) -> None:
    model = trained(field=MLPField(2, (16,), activation="tanh"))
    model.save(tmp_path / "own.pt")
    with pytest.raises(ValueError, match="a MLPField of your own"):
        load(tmp_path / "own.pt")
    again = load(tmp_path / "own.pt", field=MLPField(2, (16,), activation="tanh"))
    assert torch.equal(again.forecast(U0, TIMES), model.forecast(U0, TIMES))


def test_a_field_whose_values_differ_from_the_settings_is_the_users_own(
    tmp_path,
) -> None:
    field = MLPField(2, (16,))
    field.net[1] = torch.nn.GELU(approximate="tanh")
    trained(field=field).save(tmp_path / "own.pt")
    with pytest.raises(ValueError, match="of your own"):
        load(tmp_path / "own.pt")


def test_a_module_that_the_settings_describe_needs_not_be_given(tmp_path) -> None:
    model = trained(field=MLPField(2, (16,)))
    model.save(tmp_path / "same.pt")
    again = load(tmp_path / "same.pt")
    assert torch.equal(again.forecast(U0, TIMES), model.forecast(U0, TIMES))


def test_offsets_of_a_ring_are_in_the_file(tmp_path) -> None:
    """The settings describe other values: the weights alone show the difference."""
    settings = FieldConfig(kind="ring_library", offsets=[-1, 0, 1])
    config = small_config("closed_form", field=settings)
    own = RingField(LibraryField(3, 2, outputs=1), 4, offsets=(0, 1, 2))
    v = torch.randn(200, 4, dtype=torch.float64).cumsum(0) / 10
    model = WPNODE(config=config, field=own, refine=False).fit(v, DT)
    model.save(tmp_path / "ring.pt")
    again = load(tmp_path / "ring.pt")
    u = torch.randn(5, 4, dtype=torch.float64)
    assert torch.equal(again.field_(0.0, u), model.field_(0.0, u))
