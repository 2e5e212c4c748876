"""Evaluation of fields whose errors are known in advance."""

import math

import pytest
import torch

from wpnode_ext.metrics.evaluation import evaluate_field

DT = 0.1


def circle(n: int) -> torch.Tensor:
    t = DT * torch.arange(n, dtype=torch.float64)
    return torch.stack([torch.cos(t), torch.sin(t)], dim=-1)


def rotation(speed: float):
    def field(t, u):
        x, y = u.unbind(-1)
        return speed * torch.stack([-y, x], dim=-1)

    return field


def test_the_true_field_is_valid_to_the_end() -> None:
    result = evaluate_field(rotation(1.0), circle(200), DT, starts=5)
    assert result.vpt.censored.all()
    assert result.vpt.mean == pytest.approx(50 * DT)
    assert result.rmse.max() < 1e-6
    assert result.diverged == 0.0


def test_a_field_that_turns_too_fast_is_valid_up_to_a_known_angle() -> None:
    # Two points of the unit circle an angle a apart are 2 sin(a/2) from one another;
    # the spread of the circle is 1.
    result = evaluate_field(rotation(1.1), circle(400), DT, horizon=15, threshold=0.3)
    lost = 2 * math.asin(0.15) / 0.1
    assert result.vpt.mean_time == pytest.approx(lost, abs=2 * DT)
    torch.testing.assert_close(
        result.rmse[1:], 2 * torch.sin(0.05 * result.t[1:]), rtol=0.02, atol=0
    )
    quarter = round(math.pi / 2 / DT)
    assert result.rmse_persistence[quarter].item() == pytest.approx(2**0.5, rel=0.05)


def test_times_are_scaled_by_the_exponent() -> None:
    plain = evaluate_field(rotation(1.1), circle(400), DT, horizon=15)
    scaled = evaluate_field(
        rotation(1.1), circle(400), DT, horizon=15, lyapunov_exponent=2.0
    )
    assert scaled.vpt.mean == pytest.approx(2 * plain.vpt.mean)
    assert scaled.vpt.mean_time == pytest.approx(plain.vpt.mean)
    assert (plain.unit, scaled.unit) == ("units of time", "Lyapunov times")


def test_forecasts_that_diverge_are_counted() -> None:
    result = evaluate_field(lambda t, u: 9 * u, circle(200), DT, starts=4)
    assert result.diverged == 1.0
    assert result.summary()["diverged"] == 1.0
    assert "100 %" in str(result)


def test_starts_are_drawn_with_the_seed_and_fit_into_the_reference() -> None:
    one, two, other = (
        evaluate_field(rotation(1.0), circle(100), DT, starts=7, seed=seed)
        for seed in (1, 1, 2)
    )
    assert torch.equal(one.starts, two.starts)
    assert not torch.equal(one.starts, other.starts)
    assert one.starts.max() + len(one.t) - 1 < 100
    assert len(one.starts.unique()) == 7


def test_no_forecast_is_compared_across_a_border_or_a_gap() -> None:
    u = circle(300)
    # The second series begins elsewhere, and a sample of it is nonsense.
    u[100:] = u[100:].flip(-1)
    u[200] = 1e6
    mask = torch.zeros(300, dtype=torch.bool)
    mask[200] = True
    result = evaluate_field(
        rotation(1.0), u, DT, lengths=[100, 200], mask=mask, starts=300, horizon=5
    )
    ends = result.starts + len(result.t) - 1
    inside = (ends < 100) | ((result.starts >= 100) & (ends < 200))
    assert (inside | (result.starts > 200)).all()
    # Only the first series turns this way; its forecasts are exact.
    first = result.starts < 100
    assert first.sum() == 50
    assert result.vpt.censored.equal(first)
    assert result.rmse.max() < 3


def test_a_reference_shorter_than_the_horizon_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than the horizon of 100 samples"):
        evaluate_field(rotation(1.0), circle(50), DT, horizon=10.0)
