"""Stretches without any value: forecast, and harmless to what lies around them."""

import numpy as np
import pytest
import torch
from torch import Tensor

from problems import lorenz63_field, noisy_lorenz63
from trajectories import lorenz63
from wpnode_ext import WPNODE
from wpnode_ext.data import Series, make_series
from wpnode_ext.settings.config import FieldConfig, TrainConfig
from wpnode_ext.smoothing import first_states
from wpnode_ext.smoothing.gaps import (
    ended_at,
    forecast_gaps,
    long_gaps,
    smooth_around_gaps,
    without,
)
from wpnode_ext.smoothing.steps import ModelStep

DT = 0.01


def field(t: object, u: Tensor) -> Tensor:
    return lorenz63_field(u)


def with_gaps(n: int, gaps: list[tuple[int, int]], **options) -> Series:
    v = torch.arange(2.0 * n).reshape(n, 2).double()
    for first, stop in gaps:
        v[first:stop] = float("nan")
    return make_series(v, dt=1.0, **options)


def test_gaps_are_runs_of_samples_without_any_value() -> None:
    series = with_gaps(60, [(0, 8), (20, 26), (40, 49), (55, 60)])
    assert long_gaps(series, 5) == [(0, 8), (20, 26), (40, 49)]
    v = series.with_nan()
    v[22, 1] = 0.0
    assert long_gaps(make_series(v, dt=1.0), 5) == [(0, 8), (40, 49)]
    assert long_gaps(with_gaps(60, []), 5) == []
    # A border of two series ends a gap.
    both = make_series([v[:44], v[44:]], dt=1.0)
    assert long_gaps(both, 4) == [(0, 8), (44, 49), (55, 60)]


def test_a_record_is_cut_at_its_gaps() -> None:
    series = with_gaps(60, [(0, 8), (20, 26), (40, 60)])
    gaps = long_gaps(series, 5)
    ended = ended_at(series, gaps)
    assert ended.lengths == (8, 18, 34)
    torch.testing.assert_close(ended.times, series.times)
    seen = series.cut(without(series, gaps))
    assert seen.lengths == (12, 14)
    assert seen.mask is None or not seen.mask.any()
    rows = [*range(8, 20), *range(26, 40)]
    torch.testing.assert_close(seen.v, series.v[rows])
    torch.testing.assert_close(seen.times, series.times[rows])
    assert ended_at(series, []) is series


@pytest.mark.parametrize("times", ["dt", "t"])
def test_states_in_gaps_follow_the_model(times: str) -> None:
    clean = lorenz63(300, DT)
    v = clean.clone()
    v[:20] = v[100:180] = v[290:] = float("nan")
    t = {"dt": DT} if times == "dt" else {"t": DT * np.arange(300)}
    series = make_series(v, **t)
    step = ModelStep(field, torch.Size([3]))
    states = torch.where(v.isnan(), 0.0, clean)
    found = forecast_gaps(states, series, long_gaps(series, 5), step)
    torch.testing.assert_close(found[20:], clean[20:], rtol=1e-4, atol=1e-3)
    assert (found[:20] == 0).all()


def test_forecasts_end_where_they_leave_the_range_of_the_data() -> None:
    series = with_gaps(40, [(20, 38)])
    step = ModelStep(lambda t, u: u**3, torch.Size([2]))
    states = series.v.double()
    found = forecast_gaps(states, series, [(20, 38)], step)
    assert found.isfinite().all() and found.abs().max() < 10 * states.abs().max()


def test_a_gap_of_two_time_units_does_not_worsen_the_fit() -> None:
    clean, v, sigma = noisy_lorenz63(3000, 0.05)
    v[1000:1200] = v[:60] = float("nan")
    v[::40, 1] = float("nan")
    model = WPNODE(field="library").fit(v, DT)
    assert model.config_.method == "closed_form"
    error = (model.states_ - clean) / sigma
    # On nine draws 0.07 to 0.20 before the gap, and 0.06 to 0.09 after it.
    assert error[60:1000].square().mean().sqrt() < 0.35
    assert error[1200:].square().mean().sqrt() < 0.2
    # Forecasts in the gap may take the other wing, and stay on the attractor.
    centre = clean.mean(0)
    inside = (model.states_[1000:1200] - centre).abs().max()
    assert inside < 2 * (clean - centre).abs().max()
    # Doubt grows in it, by 4 to 120 times on nine draws.
    doubt = model.states_std_ / sigma
    assert doubt[1000:1200].mean(1).max() > 2 * doubt[1000:1010].mean()
    # Of what came before the first sample nothing is known but the range.
    assert (doubt[:50] > 5).all() and (doubt[:50] < 20).all()


def test_states_of_later_observations_have_gaps_too() -> None:
    clean, v, sigma = noisy_lorenz63(4000, 0.05)
    model = WPNODE(field="library").fit(v[:2000], DT)
    later = v[2000:].clone()
    later[500:540] = float("nan")
    found = model.estimate_states(later, DT)
    error = (found.states - clean[2000:]) / sigma
    # On five draws at most 0.11 around the gap, and 0.3 to 1.9 in it.
    assert error[:500].square().mean().sqrt() < 0.2
    assert error[540:].square().mean().sqrt() < 0.2
    assert error[500:540].abs().max() < 5.0


def test_without_noise_missing_values_follow_the_field() -> None:
    clean = lorenz63(2000, DT)
    v = clean.clone()
    v[700:800] = float("nan")
    model = WPNODE(field="library").fit(v, DT)
    assert (model.states_ - clean).abs().max() < 1e-2


def test_error_bars_are_at_most_the_spread_of_the_data() -> None:
    clean, v, sigma = noisy_lorenz63(1500, 0.05)
    v[300:1300] = float("nan")
    series = make_series(v, dt=DT)
    found = smooth_around_gaps(
        field,
        series,
        first_states(series),
        sigma=sigma,
        process_noise=0.03 * sigma,
    )
    assert found.std is not None
    assert (found.std <= first_states(series).states.std(0) + 1e-9).all()
    assert (found.states - clean)[1300:].square().mean().sqrt() < 0.3 * sigma


def test_a_gap_does_not_worsen_fits_to_smoothed_states() -> None:
    """Features that do not commute with the maps; all images of the data are used."""
    clean, v, sigma = noisy_lorenz63(3000, 0.05)
    v[1000:1200] = float("nan")
    features = FieldConfig(kind="features", features=101, steepness=0.3)
    config = TrainConfig(method="closed_form", field=features)
    model = WPNODE(config=config, symmetry="-,-,+").fit(v, DT)
    assert model.solved_.refinement.likely is None
    error = (model.states_ - clean) / sigma
    assert error[:1000].square().mean().sqrt() < 0.25
    assert error[1200:].square().mean().sqrt() < 0.25
