"""First states of noisy series, before any model."""

import numpy as np
import pytest
import torch
from scipy.signal import savgol_filter

from problems import noisy_lorenz63
from trajectories import normal
from wpnode_ext.data import make_series
from wpnode_ext.smoothing import local_polynomial

DT = 0.01


def test_local_polynomials_are_savitzky_golay_on_uniform_times() -> None:
    _, v, _ = noisy_lorenz63(300, 0.05)
    fit = local_polynomial(make_series(v, dt=DT), widths=[25])
    expected = np.asarray(savgol_filter(v.numpy(), 25, 4, axis=0))
    np.testing.assert_allclose(fit.states.numpy(), expected, rtol=0, atol=1e-4)


def test_local_polynomials_choose_a_width_and_estimate_the_noise() -> None:
    clean, v, sigma = noisy_lorenz63(2000, 0.05)
    fit = local_polynomial(make_series(v, dt=DT))
    assert (fit.sigma / sigma - 1).abs().max() < 0.05
    errors = {
        width: (local_polynomial(make_series(v, dt=DT), widths=[width]).states - clean)
        .square()
        .mean()
        .sqrt()
        .item()
        for width in (7, 13, 25, 51)
    }
    chosen = (fit.states - clean).square().mean().sqrt().item()
    assert chosen <= 1.1 * min(errors.values())


def test_local_polynomials_take_irregular_times_gaps_and_missing_values() -> None:
    rng = np.random.default_rng(0)
    t = 0.025 * (np.arange(400) + rng.uniform(-0.4, 0.4, 400))
    t[200:] += 50
    signal = np.stack([np.sin(t), np.cos(2 * t)], 1)
    v = signal + 0.01 * rng.normal(size=signal.shape)
    v[50:53, 0] = np.nan
    fit = local_polynomial(make_series(v, t=t), widths=[25])
    assert np.abs(fit.states.numpy() - signal).max() < 0.03
    assert (fit.sigma - 0.01).abs().max() < 0.003


def test_no_width_above_the_degree_is_refused() -> None:
    series = make_series(torch.randn(30, 1), dt=1.0)
    with pytest.raises(ValueError, match=r"`widths` must have one above degree \+ 2"):
        local_polynomial(series, widths=[5])


@pytest.mark.parametrize("irregular", [False, True])
def test_states_in_long_gaps_stay_between_those_on_both_sides(irregular: bool) -> None:
    """Polynomials without a sample on the other side would diverge."""
    rng = np.random.default_rng(1)
    t = 0.05 * (np.arange(400) + irregular * rng.uniform(-0.4, 0.4, 400))
    clean = np.stack([np.sin(3 * t), np.cos(2 * t)], 1)
    v = clean + 0.05 * rng.normal(size=clean.shape)
    # All of both, of one alone, and at both ends.
    v[100:160] = v[:30] = v[390:, 1] = np.nan
    v[200:260, 0] = np.nan
    times = {"t": t} if irregular else {"dt": 0.05}
    states = local_polynomial(make_series(v, **times)).states.numpy()
    assert np.abs(states).max() < 1.3
    kept = ~np.isnan(v)
    assert np.abs(states - clean)[kept].max() < 0.2
    for entry, (first, last) in ((0, (99, 160)), (1, (99, 160)), (0, (199, 260))):
        inside = states[first : last + 1, entry]
        assert (np.diff(inside) * (inside[-1] - inside[0]) > -1e-2).all()


def test_a_component_that_was_never_observed_is_zero() -> None:
    v = normal(40, 2).float()
    v[:20, 1] = float("nan")
    series = make_series([v[:20], v[20:]], dt=1.0)
    states = local_polynomial(series).states
    assert states.isfinite().all() and (states[:20, 1] == 0).all()
