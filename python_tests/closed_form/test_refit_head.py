"""The last layer of any network, solved for."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trajectories import lorenz63, normal
from wpnode_ext import WeakPlan
from wpnode_ext.closed_form import refit_head
from wpnode_ext.coordinates.symmetry import Symmetry
from wpnode_ext.data import make_series
from wpnode_ext.fields import MLPField
from wpnode_ext.model.estimator import WPNODE
from wpnode_ext.settings.config import FieldConfig, OptimConfig, TrainConfig, WeakForm

WEAK: dict[str, Any] = {"p": 4, "ell": 20, "q": 3}


def noisy_lorenz(n: int = 400) -> Tensor:
    return lorenz63(n, 0.02) + normal(n, 3)


def test_a_refitted_head_has_no_gradient_left() -> None:
    v = noisy_lorenz() / 20
    field = MLPField(3, (16,), generator=torch.Generator().manual_seed(0)).double()
    plan = WeakPlan(v, dt=0.02, **WEAK)
    before = plan.loss(field(None, v)).item()
    refit_head(field, make_series(v, dt=0.02), ridge=0.0, **WEAK)
    loss = plan.loss(field(None, v))
    loss.backward()
    last = field.net[-1]
    assert isinstance(last, nn.Linear) and last.weight.grad is not None
    assert loss.item() < 0.5 * before
    assert last.weight.grad.abs().max().item() < 1e-6 * before


def test_a_refitted_float32_head_is_as_good_as_the_exact_one() -> None:
    v = lorenz63(2000, 0.01) / 20
    losses = []
    for dtype in (torch.float64, torch.float32):
        generator = torch.Generator().manual_seed(0)
        field = MLPField(3, (200, 200), generator=generator).to(dtype)
        refit_head(field, make_series(v, dt=0.01))
        plan = WeakPlan(v.to(dtype), dt=0.01, p=8, ell=50, q=2)
        losses.append(plan.loss(field(None, v.to(dtype))).item())
    scale = WeakPlan(v, dt=0.01, p=8, ell=50, q=2).lhs.square().sum(1).mean().item()
    assert losses[1] < 1e-6 * scale and losses[0] < losses[1]


def test_a_module_with_operations_after_its_last_layer_is_refused() -> None:
    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(3, 3)

        def forward(self, t: Tensor, u: Tensor) -> Tensor:
            return 2 * self.net(u)

    series = make_series(noisy_lorenz(), dt=0.02)
    with pytest.raises(ValueError, match="last nn.Linear"):
        refit_head(Doubled(), series, **WEAK)
    with pytest.raises(ValueError, match="has none"):
        refit_head(nn.Identity(), series, **WEAK)


def test_training_can_refit_the_last_layer_at_intervals() -> None:
    v = noisy_lorenz(600) / 10
    losses = {}
    for every in (0, 1):
        config = TrainConfig(
            method="weak",
            weak=WeakForm(**WEAK),
            field=FieldConfig(kind="mlp", hidden=[32]),
            optim=OptimConfig(lr=1e-5, epochs=2, refit_every=every),
        )
        result = WPNODE(config=config).fit(v, 0.02).result_
        losses[every] = result.history[0]["loss"]
    # With a rate this small the weights stay where they began, but for the refit.
    assert losses[1] < 0.05 * losses[0]


def test_a_refit_under_a_symmetry_equals_one_to_all_images_of_the_data() -> None:
    symmetry = Symmetry.shifts(3) * Symmetry.reflection([-1, -1, -1])
    v = normal(120, 3, seed=0)
    settings: dict[str, Any] = WEAK | {"ridge": 1e-6}
    fields = [MLPField(3, (8,), generator=torch.Generator().manual_seed(0)).double()]
    fields.append(copy.deepcopy(fields[0]))
    images = [v @ g.T for g in symmetry.matrices]
    one = refit_head(fields[0], make_series(v, dt=0.1), symmetry=symmetry, **settings)
    other = refit_head(fields[1], make_series(images, dt=0.1), **settings)
    assert one.n_rows == other.n_rows
    torch.testing.assert_close(one.coefficients, other.coefficients)
