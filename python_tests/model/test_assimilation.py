"""States of new observations, and starts of ensembles, by a learned field."""

import pytest
import torch
from torch import Tensor

from trajectories import add_noise, lorenz63
from wpnode_ext import WPNODE, load
from wpnode_ext.model.ensemble import EnsembleForecast
from wpnode_ext.smoothing import evidence

N, DT, MEMBERS = 3000, 0.01, 30


@pytest.fixture(scope="module")
def truth() -> tuple[Tensor, Tensor]:
    """Clean states and observations, twice as many as are learned from."""
    clean = lorenz63(2 * N, DT, seed=0)
    return clean, add_noise(clean, 0.05, seed=1)[0]


@pytest.fixture(scope="module")
def model(truth: tuple[Tensor, Tensor]) -> WPNODE:
    return WPNODE(field="library", ensemble=MEMBERS).fit(truth[1][:N], DT)


def test_states_of_new_observations_have_true_error_bars(model, truth) -> None:
    clean, v = truth[0][N:], truth[1][N:]
    found = model.estimate_states(v, DT)
    error = found.states - clean
    assert error.square().mean().sqrt() < 0.2 * (v - clean).square().mean().sqrt()
    assert found.sigma.mean() == pytest.approx((v - clean).std().item(), rel=0.1)
    ratio = (error / found.std).square().mean().sqrt()
    # 1.2 to 1.4 on three draws.
    assert 0.5 < ratio < 2.0


def test_starts_are_spread_as_far_as_they_err(model, truth) -> None:
    clean, v = truth[0][N:], truth[1][N:]
    at = torch.arange(200, 2800, 100)
    starts = model.draw_starts(v, DT, at=at, seed=3)
    assert starts.shape == (MEMBERS, len(at), 3)
    error = starts.mean(0) - clean[at]
    ratio = (error.square().mean() / starts.var(0).mean()).sqrt()
    assert 0.4 < ratio < 1.6
    torch.testing.assert_close(model.draw_starts(v, DT, at=at, seed=3), starts)


def test_starts_of_members_differ_by_their_fields_not_by_process_noise(
    model, truth, monkeypatch
) -> None:
    """The data show process noise to be negligible."""
    v, at = truth[1][N:], torch.arange(300, 2800, 500)
    starts = model.draw_starts(v, DT, at=at)
    monkeypatch.setattr(evidence, "likely_process_noise", lambda problem, x: 30.0)
    as_if_they_erred = model.draw_starts(v, DT, at=at)
    assert starts.var(0).mean() < 0.5 * as_if_they_erred.var(0).mean()


def test_errors_at_the_end_lie_along_few_directions(model, truth) -> None:
    # Draws entry by entry would fill a ball: thirty of them have a ratio of 3.7.
    ratios = []
    for end in (500, 1500, 2500, 4000):
        last = model.draw_starts(truth[1][end - 500 : end], DT)[:, 0]
        size = torch.linalg.eigvalsh(torch.cov(last.T))
        ratios.append(size[-1] / size[0])
    assert torch.stack(ratios).log().mean().exp() > 7


def test_ensembles_start_from_their_own_states(model, truth) -> None:
    clean, v = truth[0], truth[1]
    at, ahead = torch.arange(400, 4400, 100), 100
    t = DT * torch.tensor([0.0, ahead])
    starts = model.draw_starts(v, DT, at=at)
    found = model.forecast_ensemble(starts, t, method="rk4_classic", step=DT)
    assert found.members.shape == (MEMBERS, 2, len(at), 3)
    low, high = EnsembleForecast(found.members[:, 1], found.t[1:]).interval(0.8)
    held = ((low <= clean[at + ahead]) & (clean[at + ahead] <= high)).double().mean()
    assert 0.65 < held <= 1.0


def test_the_end_is_where_forecasts_start(model, truth) -> None:
    v = truth[1][:N]
    last = model.draw_starts(v, DT)
    assert last.shape == (MEMBERS, 1, 3)
    torch.testing.assert_close(model.draw_starts(v, DT, at=N - 1), last)
    assert (last.mean(0) - truth[0][N - 1]).norm() < 1.0


def test_a_loaded_model_estimates_alike(model, truth, tmp_path) -> None:
    model.save(tmp_path / "model.pt")
    again = load(tmp_path / "model.pt")
    assert again.process_noise_ == model.process_noise_ is not None
    v = truth[1][-600:]
    one, two = (m.estimate_states(v, DT).states for m in (model, again))
    torch.testing.assert_close(one, two)
    starts = (m.draw_starts(v, DT, seed=1) for m in (model, again))
    torch.testing.assert_close(*starts)


def test_waves_that_are_left_out_have_no_errors() -> None:
    # Two waves on a ring of 16 sites that turn at different rates.
    x, t = torch.arange(16) / 16 * 2 * torch.pi, 0.1 * torch.arange(800)[:, None]
    clean = (torch.sin(x - t) + 0.5 * torch.cos(2 * x + 1.7 * t)).double()
    v = add_noise(clean, 0.1, seed=0)[0]
    model = WPNODE(field="library", coordinates="fourier", ensemble=8).fit(v, 0.1)
    starts = model.draw_starts(v, 0.1, at=[100, 500])
    waves = torch.fft.rfft(starts).abs()
    kept = torch.fft.rfft(clean[0]).abs() > 1
    assert waves[..., kept].min() > 1
    assert waves[..., ~kept].max() < 1e-6


def test_states_of_other_shapes_and_of_models_with_inputs_are_refused(
    model, truth
) -> None:
    with pytest.raises(ValueError, match=r"states of shape \[3\]; got \[2\]"):
        model.estimate_states(truth[1][:100, :2], DT)
    with pytest.raises(ValueError, match="`at` must lie in 0 .. 99"):
        model.draw_starts(truth[1][:100], DT, at=[5, 100])
    plain = WPNODE(field="library", refine=False).fit(truth[1][:800], DT)
    with pytest.raises(RuntimeError, match="fit it with `ensemble=30`"):
        plain.draw_starts(truth[1], DT)
    assert plain.process_noise_ is None
    assert plain.estimate_states(truth[1][:400], DT).states.isfinite().all()
