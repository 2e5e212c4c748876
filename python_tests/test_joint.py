"""Networks trained together with the states of their data."""

import pytest
import torch

from training_cases import DT, oscillator_data
from wpnode_ext.closed_form import refit_head
from wpnode_ext.data import make_series
from wpnode_ext.estimator import WPNODE
from wpnode_ext.fields import MLPField
from wpnode_ext.smoothing import local_polynomial
from wpnode_ext.training import TrainConfig
from wpnode_ext.training.config import FieldConfig, OptimConfig, WeakForm
from wpnode_ext.training.joint import train_jointly

SIGMA = 0.1


def noisy(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    clean = oscillator_data(n, torch.float64)
    generator = torch.Generator().manual_seed(4)
    noise = torch.randn(clean.shape, generator=generator, dtype=torch.float64)
    return clean, clean + SIGMA * noise


def test_states_approach_the_truth_with_the_network() -> None:
    clean, v = noisy(600)
    series = make_series(v, dt=DT)
    first = local_polynomial(series).states
    field = MLPField(2, (16,), generator=torch.Generator().manual_seed(0))
    refit_head(field, make_series(first, dt=DT), p=4, ell=30)
    result = train_jointly(field, series, torch.full((2,), SIGMA))
    before, after = (
        (states - clean).square().mean().sqrt() / SIGMA
        for states in (first, result.states)
    )
    assert before > 0.25 and after < 0.2
    residuals = [row["residual"] for row in result.history]
    assert residuals == sorted(residuals, reverse=True)
    # What is taken away is the noise: its size, and no more.
    assert 0.9 < result.history[-1]["fidelity"] < 1.1
    truth = torch.stack([clean[:, 1], -clean[:, 0] - 0.05 * clean[:, 1]], 1)
    with torch.no_grad():
        found = field(0.0, clean.float()).double()
    assert (found - truth).square().mean().sqrt() < 0.02


def test_missing_samples_are_filled_by_the_field() -> None:
    clean, v = noisy(400)
    v[200:204] = float("nan")
    series = make_series(v, dt=DT)
    field = MLPField(2, (16,), generator=torch.Generator().manual_seed(0))
    result = train_jointly(field, series, torch.full((2,), SIGMA), steps=60, lr=1e-2)
    assert result.states.isfinite().all()
    assert (result.states - clean).square().mean().sqrt() < SIGMA


def test_the_estimator_refines_networks_where_asked_to() -> None:
    clean, v = noisy(400)
    settings = TrainConfig(
        method="weak",
        weak=WeakForm(p=4, ell=20, q=2),
        field=FieldConfig(kind="mlp", hidden=[8]),
        optim=OptimConfig(epochs=2, batch_size=64, refit_every=1),
    )
    model = WPNODE(config=settings, refine=True).fit(v, DT)
    assert model.states_ is not None and model.sigma_ is not None
    assert (model.sigma_ / SIGMA - 1).abs().max() < 0.3
    assert (model.states_ - clean).square().mean().sqrt() < 0.7 * SIGMA
    assert WPNODE(config=settings).fit(v, DT).states_ is None


def test_irregular_times_are_refused() -> None:
    t = torch.arange(100.0).double() + 0.3 * torch.rand(100).double()
    series = make_series(torch.randn(100, 2), t=t)
    with pytest.raises(ValueError, match="equal distances"):
        train_jointly(MLPField(2, (4,)), series, torch.ones(2))
