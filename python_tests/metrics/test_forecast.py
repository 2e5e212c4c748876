"""Errors against lead time, bounds and solvers on forecasts made to order."""

import math

import pytest
import torch

from trajectories import normal
from wpnode_ext.metrics import boundedness, error_by_lead_time, solver_robustness
from wpnode_ext.systems import Lorenz63


def test_error_is_in_units_of_the_spread() -> None:
    u = normal(50, 4, 2) * torch.tensor([1.0, 10.0])
    sigma = torch.tensor([1.0, 10.0])
    growth = torch.linspace(0, 2, 50, dtype=torch.float64)[:, None, None]
    result = error_by_lead_time(u + growth * sigma, u, sigma=sigma)
    torch.testing.assert_close(result.rmse, growth[:, 0, 0])
    assert result.finite.tolist() == [1.0] * 50


def test_components_are_weighted_as_the_definition_says() -> None:
    u = torch.zeros(1, 1, 2, dtype=torch.float64)
    u_hat = torch.tensor([[[1.0, 0.0]]])
    sigma = torch.tensor([1.0, 7.0])
    pooled = error_by_lead_time(u_hat, u, sigma=sigma)
    each = error_by_lead_time(u_hat, u, definition="componentwise", sigma=sigma)
    assert pooled.rmse.item() == pytest.approx((1 / 50) ** 0.5)
    assert each.rmse.item() == pytest.approx((1 / 2) ** 0.5)


def test_lost_members_are_counted() -> None:
    u = normal(10, 4, 1)
    u_hat = u + 1.0
    u_hat[5:, 0] = math.nan
    u_hat[8:] = math.inf
    result = error_by_lead_time(u_hat, u, sigma=torch.ones(1))
    assert result.finite.tolist() == [1.0] * 5 + [0.75] * 3 + [0.0] * 2
    assert result.rmse[:8].tolist() == pytest.approx([1.0] * 8)
    assert result.rmse[8:].isnan().all()


def test_spread_is_that_of_the_truth_unless_given() -> None:
    u = torch.tensor([3.0, -3.0], dtype=torch.float64).repeat(10)[:, None, None]
    assert error_by_lead_time(u + 6, u).rmse.tolist() == pytest.approx([2.0] * 20)


def test_members_are_bounded_by_the_box_of_the_truth_and_a_margin() -> None:
    u = torch.tensor([[0.0, 0.0], [2.0, 4.0]])
    u_hat = torch.ones(6, 4, 2)
    u_hat[3, 1, 0] = 2.9
    u_hat[3:, 2, 0] = 3.1
    u_hat[2:, 3, 1] = math.nan
    result = boundedness(u_hat, u, margin=0.5)
    assert result.bounded.tolist() == [True, True, False, False]
    assert result.leaves_at.tolist() == [6, 6, 3, 2]
    assert result.share == 0.5


def test_returning_does_not_help() -> None:
    u_hat = torch.zeros(5, 1, 1)
    u_hat[2] = 100.0
    result = boundedness(u_hat, torch.tensor([[-1.0], [1.0]]))
    assert result.leaves_at.tolist() == [2] and result.share == 0.0


def test_accurate_solvers_agree_on_the_climate_and_coarse_ones_do_not() -> None:
    system = Lorenz63()
    starts = system.simulate(20, 1.0)
    t = torch.arange(300, dtype=torch.float64) * 0.05
    rows = solver_robustness(
        system.field, starts, t, methods=("dopri5", "rk4", "euler"), tolerance=1e-5
    )
    assert [row.method for row in rows] == ["dopri5", "rk4", "euler"]
    first, second, coarse = rows
    assert first.diverged == second.diverged == 0.0
    assert first.distance == pytest.approx(0.0, abs=1e-12)
    assert second.distance < 0.1
    # Euler steps of 0.05 leave the attractor.
    assert coarse.diverged == 1.0 and coarse.distance == math.inf


def test_the_distance_may_be_chosen() -> None:
    starts = torch.ones(2, 1, dtype=torch.float64)
    rows = solver_robustness(
        lambda t, u: -u,
        starts,
        [0.0, 1.0],
        reference=starts,
        methods=("euler",),
        distance=lambda u_hat, u: (u_hat[-1] - u).abs().max().item(),
    )
    assert rows[0].distance == 1.0


def test_bad_requests_are_refused() -> None:
    u = torch.randn(5, 3, 2)
    with pytest.raises(ValueError, match="must have one shape"):
        error_by_lead_time(u[:2], u)
    with pytest.raises(ValueError, match="a component of `u` never changes"):
        error_by_lead_time(u * 0, u * 0)
    with pytest.raises(ValueError, match="end in the same state"):
        boundedness(u, u[..., :1])
