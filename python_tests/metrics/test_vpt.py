"""Valid prediction times and errors by lead time of constructed forecasts."""

import math

import pytest
import torch

from trajectories import normal
from wpnode_ext.metrics import (
    bootstrap_interval,
    error_by_lead_time,
    normalised_error,
    vpt,
)

SETTINGS = {"dt": 0.1, "lyapunov_exponent": 2.0, "threshold": 0.5}


def truth(n: int = 11, members: int = 3) -> torch.Tensor:
    """Two components whose standard deviations are 3 and 4: pooled variance 25."""
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(n)[:n]
    # An odd number of rows would have a mean; members of both signs take it away.
    flips = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(members)[:members]
    u = signs[:, None, None] * flips[None, :, None]
    return u * torch.tensor([3.0, 4.0], dtype=torch.float64)


def test_the_time_is_that_of_the_last_row_within_the_threshold() -> None:
    u = truth(members=2)
    u_hat = u.clone()
    # Pooled error |d| / 5: 0.4 within, 0.6 beyond, from row 4 and row 7 on.
    u_hat[:, :, 0] += 2.0
    u_hat[4:, 0, 0] += 1.0
    u_hat[7:, 1, 0] += 1.0
    result = vpt(u_hat, u, **SETTINGS)
    assert result.vpt_time.tolist() == pytest.approx([0.3, 0.6])
    assert result.vpt.tolist() == pytest.approx([0.6, 1.2])
    assert result.mean == pytest.approx(0.9) and result.std == pytest.approx(0.3)
    assert result.mean_time == pytest.approx(0.45)
    assert not result.censored.any()


def test_an_error_that_returns_below_the_threshold_does_not_count() -> None:
    u = truth(members=2)
    u_hat = u.clone()
    u_hat[3, 0] += 100.0
    assert vpt(u_hat, u, **SETTINGS).vpt_time.tolist() == pytest.approx([0.2, 1.0])


def test_forecasts_valid_to_the_end_are_marked() -> None:
    u = truth(members=2)
    result = vpt(u, u, **SETTINGS)
    assert result.censored.all()
    assert result.vpt_time.tolist() == pytest.approx([1.0, 1.0])
    assert "2 valid to the end" in str(result)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_forecasts_that_are_not_finite_have_ended(value: float) -> None:
    u = truth(members=2)
    u_hat = u.clone()
    u_hat[5:, 0, 1] = value
    assert vpt(u_hat, u, **SETTINGS).vpt_time.tolist() == pytest.approx([0.4, 1.0])


def test_a_forecast_that_is_wrong_at_once_has_time_zero() -> None:
    u = truth(members=2)
    assert vpt(u + 100, u, **SETTINGS).vpt.tolist() == [0.0, 0.0]


def test_definitions_weigh_components_differently() -> None:
    u = truth(n=10, members=4)
    u_hat = u.clone()
    u_hat[:, :, 0] += 3.0
    expected = {
        "pooled": math.sqrt(9 / 25),
        "componentwise": math.sqrt((1 + 0) / 2),
        "segment": math.sqrt((1 + 0) / 2),
    }
    for definition, value in expected.items():
        error = normalised_error(u_hat, u, definition=definition)
        torch.testing.assert_close(error, torch.full((10, 4), value).double())


def test_each_segment_has_its_own_deviations() -> None:
    u = truth(n=10, members=2)
    u[:, 1] *= 10
    error = normalised_error(u + 3.0, u, definition="segment")
    ratio = math.sqrt((1 + 9 / 16) / 2)
    assert error[0].tolist() == pytest.approx([ratio, ratio / 10])
    common = normalised_error(u + 3.0, u, definition="componentwise")
    assert common[0, 0] == common[0, 1]


def test_only_the_segment_definition_excludes_the_threshold_itself() -> None:
    u = truth(n=10, members=2)
    u_hat = u.clone()
    u_hat[5:] += torch.tensor([1.5, 2.0])
    sigma = torch.tensor([3.0, 4.0])
    for definition, expected in [("componentwise", 0.9), ("segment", 0.4)]:
        result = vpt(u_hat, u, definition=definition, sigma=sigma, **SETTINGS)
        assert result.vpt_time.tolist() == pytest.approx([expected] * 2)


def test_deviations_may_be_given() -> None:
    u = truth(n=10, members=2)
    error = normalised_error(u + 1.0, u, sigma=torch.tensor([1.0, 1.0]))
    assert error.flatten().tolist() == pytest.approx([1.0] * 20)


def test_a_single_forecast_needs_no_batch_axis() -> None:
    u = truth(n=10, members=1)[:, 0]
    assert vpt(u, u, **SETTINGS).vpt.shape == (1,)


def test_fields_on_grids_are_states_too() -> None:
    u = torch.randn(6, 2, 3, 4, dtype=torch.float64)
    assert vpt(u + 0.01, u, **SETTINGS).censored.all()


def test_bootstrap_interval_is_that_of_the_mean() -> None:
    values = torch.randn(400, dtype=torch.float64) + 5
    low, high = bootstrap_interval(values, seed=1)
    error = 1.96 * values.std().item() / 20
    assert low == pytest.approx(values.mean().item() - error, abs=0.02)
    assert high == pytest.approx(values.mean().item() + error, abs=0.02)
    assert (low, high) == bootstrap_interval(values, seed=1)
    narrow = bootstrap_interval(values, confidence=0.5, seed=1)
    assert low < narrow[0] < narrow[1] < high


def test_bad_requests_are_refused() -> None:
    u = truth()
    with pytest.raises(ValueError, match="must have one shape"):
        vpt(u[:5], u, **SETTINGS)
    with pytest.raises(ValueError, match="`definition` must be 'pooled'"):
        vpt(u, u, definition="mean", **SETTINGS)
    with pytest.raises(ValueError, match="`threshold` must be positive; got 0"):
        vpt(u, u, dt=0.1, lyapunov_exponent=1.0, threshold=0)
    with pytest.raises(ValueError, match="a component of `u` never changes"):
        vpt(u * 0, u * 0, **SETTINGS)


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


def test_members_that_are_not_finite_are_counted() -> None:
    u = normal(10, 4, 1)
    u_hat = u + 1.0
    u_hat[5:, 0] = math.nan
    u_hat[8:] = math.inf
    result = error_by_lead_time(u_hat, u, sigma=torch.ones(1))
    assert result.finite.tolist() == [1.0] * 5 + [0.75] * 3 + [0.0] * 2
    assert result.rmse[:8].tolist() == pytest.approx([1.0] * 8)
    assert result.rmse[8:].isnan().all()


def test_the_default_spread_is_that_of_the_truth() -> None:
    u = torch.tensor([3.0, -3.0], dtype=torch.float64).repeat(10)[:, None, None]
    assert error_by_lead_time(u + 6, u).rmse.tolist() == pytest.approx([2.0] * 20)


def test_bad_requests_of_errors_by_lead_time_are_refused() -> None:
    u = torch.randn(5, 3, 2)
    with pytest.raises(ValueError, match="must have one shape"):
        error_by_lead_time(u[:2], u)
    with pytest.raises(ValueError, match="a component of `u` never changes"):
        error_by_lead_time(u * 0, u * 0)
