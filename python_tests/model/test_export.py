"""Exported programs against the model they were made from."""

import pytest
import torch

from training_cases import DT, oscillator_data
from wpnode_ext.model.estimator import WPNODE
from wpnode_ext.model.export import export_field
from wpnode_ext.settings.config import FieldConfig, OptimConfig, TrainConfig, WeakForm


def trained(kind: str, forcing: bool = False) -> WPNODE:
    config = TrainConfig(
        method="weak",
        weak=WeakForm(p=4, ell=20, q=2),
        field=FieldConfig(kind=kind, hidden=[8], width=4, kernels=[3, 1]),  # type: ignore[arg-type]
        optim=OptimConfig(epochs=1, batch_size=64),
    )
    v = 50 + 10 * oscillator_data(100, torch.float64)
    if kind == "conv":
        v = v.repeat(1, 3)
    inputs = torch.arange(100.0)[:, None].repeat(1, 2) if forcing else None
    return WPNODE(config=config).fit(v, DT, forcing=inputs)


@pytest.mark.parametrize("kind", ["mlp", "conv", "library"])
def test_a_program_read_back_is_the_field_in_physical_units(kind, tmp_path) -> None:
    model = trained(kind)
    export_field(model, tmp_path / "field.pt2")
    program = torch.export.load(tmp_path / "field.pt2").module()
    for batch in (1, 5):
        u = 50 + 10 * torch.randn(batch, *model.state_shape_, dtype=torch.float64)
        scaled = (u - model.scaler_.shift) / model.scaler_.scale
        expected = model.scaler_.scale * model.field_(0.0, scaled.float()).double()
        got = program(torch.zeros((), dtype=torch.float64), u)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert next(model.field_.parameters()).dtype == torch.float32


def test_inputs_become_an_argument_of_the_program(tmp_path) -> None:
    model = trained("mlp", forcing=True)
    forcing = model.field_.forcing
    export_field(model, tmp_path / "field.pt2", dtype=torch.float32)
    assert model.field_.forcing is forcing
    program = torch.export.load(tmp_path / "field.pt2").module()
    u, x = 50 + torch.randn(3, 2), 40 * torch.rand(3, 2)
    got = program(torch.zeros(()), u, x)
    inputs = model.forcing_scaler_.transform(x)
    expected = model.field_.at(model.scaler_.transform(u), inputs)
    torch.testing.assert_close(got, expected * model.scaler_.scale.float())


def test_an_unfitted_model_cannot_be_exported(tmp_path) -> None:
    with pytest.raises(RuntimeError, match="not fitted"):
        export_field(WPNODE(), tmp_path / "field.pt2")
