"""Networks trained together with the states of their data."""

import numpy as np
import pytest
import torch

from training_cases import DT, oscillator_data
from trajectories import normal
from wpnode_ext.closed_form import refit_head
from wpnode_ext.data import make_series
from wpnode_ext.fields import LibraryField, MLPField
from wpnode_ext.model.estimator import WPNODE
from wpnode_ext.settings.config import (
    FieldConfig,
    JointConfig,
    OptimConfig,
    TrainConfig,
    WeakForm,
)
from wpnode_ext.smoothing import hide_values, local_polynomial
from wpnode_ext.training.joint import train_jointly
from wpnode_ext.weak.noise import estimate_noise

SIGMA = 0.1


def noisy(n: int, seed: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    clean = oscillator_data(n, torch.float64)
    noise = normal(*clean.shape, seed=seed)
    return clean, clean + SIGMA * noise


def test_states_approach_the_truth_with_the_network() -> None:
    """Medians of three draws."""
    ratios, misses = [], []
    for seed in range(3):
        clean, v = noisy(1500, seed)
        series = make_series(v, dt=DT)
        first = local_polynomial(series).states
        field = MLPField(2, (16,), generator=torch.Generator().manual_seed(0))
        refit_head(field, make_series(first, dt=DT), p=4, ell=30)
        result = train_jointly(field, series, torch.full((2,), SIGMA))
        before, after = (
            (states - clean).square().mean().sqrt() / SIGMA
            for states in (first, result.states)
        )
        assert 0.2 < before < 0.35
        ratios.append((after / before).item())
        residuals = [row["residual"] for row in result.history]
        assert residuals == sorted(residuals, reverse=True)
        # What is taken away is the noise: its size, and no more.
        assert 0.85 < result.history[-1]["fidelity"] < 1.1
        truth = torch.stack([clean[:, 1], -clean[:, 0] - 0.05 * clean[:, 1]], 1)
        with torch.no_grad():
            found = field(0.0, clean.float()).double()
        misses.append((found - truth).square().mean().sqrt().item())
    # On ten draws: 0.73 with a spread of 0.13, and 0.02 with one of 0.01.
    assert np.median(ratios) < 0.95
    assert np.median(misses) < 0.05


def test_missing_samples_are_filled_by_the_field() -> None:
    clean, v = noisy(400)
    v[200:204] = float("nan")
    series = make_series(v, dt=DT)
    field = MLPField(2, (16,), generator=torch.Generator().manual_seed(0))
    result = train_jointly(
        field, series, torch.full((2,), SIGMA), JointConfig(steps=60, lr=1e-2)
    )
    assert result.states.isfinite().all()
    assert (result.states - clean).square().mean().sqrt() < SIGMA


def test_stages_that_predict_hidden_values_worse_are_taken_back() -> None:
    # No rate of growth turns the states around: the more the field is believed, the
    # worse they are.
    class Growth(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rate = torch.nn.Parameter(torch.zeros(1))

        def forward(self, t: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
            return self.rate * u

    _, v = noisy(900)
    series, field = make_series(v, dt=DT), Growth()
    result = train_jointly(
        field, series, torch.full((2,), SIGMA), JointConfig(steps=60)
    )
    assert "predicted worse" in result.reason
    assert len(result.history) == result.best + 1 < 3
    missed = ((v - result.states) / SIGMA)[result.hidden].square().mean()
    # 0.8 to 1.1 on ten draws.
    assert missed < 1.5 and result.history[-1]["loss"] > missed
    if result.best == 0:
        assert field.rate.item() == 0.0


def test_hidden_values_play_no_part_in_the_training() -> None:
    _, v = noisy(200)
    sigma, found = torch.full((2,), SIGMA), []
    for shift in (0.0, 5.0):
        hidden = hide_values(make_series(v, dt=DT), 0.05, 0)
        moved = make_series(v + shift * hidden, dt=DT)
        field = MLPField(2, (8,), generator=torch.Generator().manual_seed(0))
        # One stage: what is hidden may decide which one is kept.
        result = train_jointly(
            field, moved, sigma, JointConfig(penalties=[10.0], steps=20)
        )
        found.append(result.history[0]["fidelity"])
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_rates_that_are_too_large_for_the_weights_are_lowered() -> None:
    # Solved for its head, this network has large weights that almost cancel: steps of
    # 1e-3 raise the sum ten thousandfold, and states follow (fidelity 3 in the end).
    clean, v = noisy(600, seed=2)
    series = make_series(v, dt=DT)
    field = MLPField(2, (16,), generator=torch.Generator().manual_seed(0))
    first = make_series(local_polynomial(series).states, dt=DT)
    refit_head(field, first, p=4, ell=30)
    result = train_jointly(
        field, series, torch.full((2,), SIGMA), JointConfig(steps=60)
    )
    assert result.best == 3 and result.history[-1]["fidelity"] < 1.1


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
    torch.testing.assert_close(model.sigma_, estimate_noise(v).sigma)
    error = model.states_ - clean
    assert error.square().mean().sqrt() < 0.4 * SIGMA
    assert model.states_std_ is not None
    assert 0.5 < (error / model.states_std_).square().mean().sqrt() < 2.0
    assert WPNODE(config=settings).fit(v, DT).states_ is None


def test_irregular_times_have_segments_with_weights_of_their_own() -> None:
    generator = torch.Generator().manual_seed(1)
    shifts = torch.rand(400, generator=generator, dtype=torch.float64) - 0.5
    t = DT * (torch.arange(400, dtype=torch.float64) + 0.8 * shifts)
    matrix = torch.tensor([[0.0, 1.0], [-1.0, -0.05]], dtype=torch.float64)
    clean = torch.matrix_exp(t[:, None, None] * matrix)[:, :, 0]
    noise = normal(*clean.shape, seed=1)
    series = make_series(clean + SIGMA * noise, t=t)
    field = LibraryField(2, 1)
    with torch.no_grad():
        field.set_coefficients(_truth(field, matrix))
    sigma = torch.full((2,), SIGMA)
    result = train_jointly(field, series, sigma, JointConfig(steps=100))
    assert result.best == 3 and result.history[-1]["residual"] < 1e-3
    # Weights for equal distances see jumps of the true states.
    equal = train_jointly(
        field, make_series(series.v, dt=DT), sigma, JointConfig(steps=100)
    )
    assert equal.history[-1]["residual"] > 3 * result.history[-1]["residual"]
    first = local_polynomial(series).states
    before, after = ((x - clean).square().mean().sqrt() for x in (first, result.states))
    assert after < 0.9 * before


def _truth(field: LibraryField, matrix: torch.Tensor) -> torch.Tensor:
    """Coefficients of the linear field, whatever the order of its terms."""
    probes = normal(20, 2)
    features = field.features(probes)
    return torch.linalg.lstsq(features, probes @ matrix.T).solution


def test_entries_that_were_observed_count_where_others_are_missing() -> None:
    clean, v = noisy(200)
    turn = slice(60, 66)
    assert clean[turn, 0].abs().min() > 0.8
    v[turn, 1] = float("nan")
    field = MLPField(2, (16,), generator=torch.Generator().manual_seed(0))
    still = JointConfig(penalties=[1.0], steps=1, states_lr=0.0)
    result = train_jointly(field, make_series(v, dt=DT), torch.full((2,), SIGMA), still)
    # Were they taken for zeros, states would be eight times the noise away from them.
    assert 0.5 < result.history[0]["fidelity"] < 1.2


def test_the_field_is_given_the_times_of_the_data() -> None:
    class Clocked(MLPField):
        def forward(self, t, u):
            seen.append(t.flatten())
            return super().forward(t, u)

    seen = []
    series = make_series(noisy(100)[1], t=50 + DT * torch.arange(100.0).double())
    assert series.dt is not None and series.t0 == (50.0,)
    field = Clocked(2, (4,))
    train_jointly(
        field, series, torch.full((2,), SIGMA), JointConfig(penalties=[1.0], steps=2)
    )
    torch.testing.assert_close(seen[0], series.times)
