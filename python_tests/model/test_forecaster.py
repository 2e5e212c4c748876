"""What a fitted model does besides learning: bounds of forecasts, equations."""

import torch

from trajectories import lorenz63
from wpnode_ext import WPNODE
from wpnode_ext.settings.config import TrainConfig

DT = 0.1


def growth(n: int) -> torch.Tensor:
    """Logistic growth from 1 to 1000, exactly."""
    t = DT * torch.arange(n, dtype=torch.float64)
    return (1000 / (1 + 999 * torch.exp(-t)))[:, None]


def test_a_state_that_grows_from_a_small_start_has_not_diverged() -> None:
    u = growth(150)
    model = WPNODE(field="library", method="closed_form", refine=False).fit(u, DT)
    forecast = model.forecast(u[0], DT * torch.arange(150))
    assert forecast.isfinite().all()
    torch.testing.assert_close(forecast, u, rtol=1e-2, atol=1.0)
    assert model.evaluate(u, DT, horizon=10.0, starts=4).diverged == 0.0
    # A bound that is asked for is kept.
    assert model.forecast(u[0], DT * torch.arange(150), bound=100.0)[-1].isnan().all()


def test_a_bound_follows_data_and_starts() -> None:
    model = WPNODE(field="library", method="closed_form", refine=False)
    model.fit(growth(150), DT)
    size = (model.scaler_.shift.abs() + model.scaler_.scale).item()
    assert model._bound(torch.zeros(1, 1)) == 100 * size > 1e4
    assert model._bound(torch.tensor([[-1e6, float("nan")]])) == 1e8


def test_equations_are_read_off_a_polynomial_with_a_symmetry() -> None:
    u = lorenz63(2000, 0.01)
    model = WPNODE(field="library", method="closed_form", symmetry="-,-,+")
    lines = model.fit(u, 0.01).equations(["x", "y", "z"], digits=3)
    assert lines[0] == "dx/dt = -10 x + 10 y"
    assert lines[1] == "dy/dt = 28 x - 1 y - 1 x z"


def test_equations_of_states_that_share_a_scale() -> None:
    u = lorenz63(2000, 0.01)
    config = TrainConfig(scaler_per="whole")
    model = WPNODE(field="library", method="closed_form", refine=False, config=config)
    assert model.fit(u, 0.01).equations(digits=3)[0] == "du0/dt = -10 u0 + 10 u1"
