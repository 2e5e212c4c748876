"""Models with inputs: which ones a forecast or a judgement sees."""

import pytest
import torch

from training_cases import DT
from trajectories import normal
from wpnode_ext import WPNODE, make_series
from wpnode_ext.data import Series
from wpnode_ext.fields import Forcing
from wpnode_ext.weak.noise import estimate_noise

N = 400


def driven(phase: float, noise: float = 0.0) -> Series:
    """``x' = -x + w(t)`` with ``w = sin(t + phase)``, on its way to the cycle."""
    t = DT * torch.arange(N, dtype=torch.float64)
    cycle = (torch.sin(t + phase) - torch.cos(t + phase)) / 2
    x = cycle + (2.0 - cycle[0]) * torch.exp(-t) + noise * normal(N)
    return make_series(x, dt=DT, forcing=torch.sin(t + phase))


@pytest.fixture(scope="module")
def model() -> WPNODE:
    return WPNODE(field="library", method="closed_form", refine=False).fit(driven(0.0))


def test_the_score_takes_the_inputs_of_the_series_it_judges(model) -> None:
    before = model.field_.forcing
    assert model.score(driven(2.0)) > 0.99
    assert model.field_.forcing is before
    wrong = driven(2.0)
    other = make_series(wrong.v, dt=DT, forcing=-wrong.forcing)
    assert model.score(other) < 0.9
    with pytest.raises(ValueError, match="a Series with inputs"):
        model.score(wrong.v, DT)
    plain = WPNODE(field="library", refine=False).fit(wrong.v, DT)
    with pytest.raises(ValueError, match="the model was trained without"):
        plain.score(wrong)


def test_several_series_are_scored_under_inputs_of_their_own(model) -> None:
    parts = [driven(1.0), driven(2.0)]
    v, inputs = ([getattr(p, k) for p in parts] for k in ("v", "forcing"))
    assert model.score(make_series(v, dt=DT, forcing=inputs)) > 0.99


def test_a_forecast_leaves_the_inputs_as_they_were(model) -> None:
    before, series = model.field_.forcing, driven(2.0)
    t = DT * torch.arange(50, dtype=torch.float64)
    model.forecast(series.v[0], t, forcing=series.forcing[:50])
    assert model.field_.forcing is before


def test_a_table_of_inputs_must_cover_the_forecast(model) -> None:
    series = driven(2.0)
    table = Forcing(series.times, series.forcing.flatten(1))
    t = DT * torch.arange(60, 110, dtype=torch.float64)
    found = model.forecast(series.v[60], t, forcing=table)
    assert (found - series.v[60:110]).abs().max() < 1e-2
    with pytest.raises(ValueError, match="`forcing` must cover the times 3 .. 22.95"):
        model.forecast(series.v[60], DT * torch.arange(60, 460), forcing=table)
    with pytest.raises(ValueError, match="the 1 inputs the model was trained with"):
        model.forecast(series.v[60], t, forcing=torch.zeros(50, 2))


def test_the_fit_is_judged_under_the_inputs_of_the_observations(model) -> None:
    series = driven(2.0, noise=0.01)
    sigma = estimate_noise(series.v).sigma
    assert 0.5 < model.goodness_of_fit(series, sigma=sigma, ell=20).ratio < 2.0
    other = make_series(series.v, dt=DT, forcing=-series.forcing)
    assert model.goodness_of_fit(other, sigma=sigma, ell=20).ratio > 10.0


def test_judgements_from_many_starts_are_refused(model) -> None:
    for name in ("evaluate", "climate"):
        with pytest.raises(ValueError, match=f"`{name}` is not offered for"):
            getattr(model, name)(driven(0.0).v, DT)
