"""The noise estimate on signals whose noise is known."""

import numpy as np
import pytest
import torch

from trajectories import add_noise, lorenz63, normal
from wpnode_ext.weak.noise import estimate_noise


@pytest.mark.parametrize("ratio", [0.05, 0.1, 0.2])
def test_noise_on_lorenz63_is_found_within_2_percent(ratio: float) -> None:
    clean, errors = lorenz63(10_000, 0.01), []
    for seed in range(1, 6):
        v, sigma = add_noise(clean, ratio, seed=seed)
        estimate = estimate_noise(v)
        assert estimate.reliable.all()
        assert estimate.n_windows == 10_000 - 16
        errors.append(estimate.sigma / sigma - 1)
    # Residuals of neighbouring windows have correlations r_k: the relative standard
    # error of one sigma is sqrt(sum_k r_k^2 / (2 N)), here 0.016, of their mean 0.004.
    assert torch.stack(errors).mean().abs() < 0.02
    assert torch.stack(errors).abs().max() < 0.08


def test_polynomials_below_the_order_of_the_difference_carry_no_noise() -> None:
    s = torch.linspace(-1, 1, 200, dtype=torch.float64)
    v = torch.stack([1 - 3 * s + s**3, 2 * s**5 - s**2], -1)
    # Rounding passes as noise of its own size.
    assert estimate_noise(v).sigma.max() < 1e-14


def test_white_noise_is_all_noise() -> None:
    v = normal(50_000, 2, 2) * torch.tensor([1.0, 7.0])
    estimate = estimate_noise(v)
    assert estimate.sigma.shape == (2, 2)
    expected = torch.tensor([[1.0, 7.0], [1.0, 7.0]], dtype=torch.float64)
    torch.testing.assert_close(estimate.sigma, expected, rtol=0.03, atol=0)


def test_signals_that_are_not_smooth_over_17_samples_are_reported() -> None:
    t = torch.arange(2000, dtype=torch.float64)
    # A period of six samples: difference filters cannot tell it from noise.
    v = torch.sin(2 * np.pi * t / 6)[:, None]
    assert not estimate_noise(v).reliable.any()


def test_gaps_and_borders_are_not_noise() -> None:
    u = lorenz63(4000, 0.01)
    v, sigma = add_noise(u, 0.05, seed=2)
    broken = torch.cat([v[:1000], 1e3 + v[2000:]])
    broken[500] = float("nan")
    broken[2000] = 1e6
    mask = torch.zeros(len(broken), dtype=torch.bool)
    mask[2000] = True
    estimate = estimate_noise(broken, mask=mask, lengths=[1000, 2000])
    assert ((estimate.sigma / sigma - 1).abs() < 0.06).all()
    assert estimate.n_windows == (1000 - 16 - 17) + (2000 - 16 - 17)
    assert (estimate_noise(torch.nan_to_num(broken)).sigma > 10 * sigma).all()


def test_too_short_series_are_refused() -> None:
    with pytest.raises(ValueError, match="`v` must have 17 .*; got 16"):
        estimate_noise(torch.randn(16, 2))
    holes = torch.randn(40, 2)
    holes[::10, 1] = float("nan")
    with pytest.raises(ValueError, match="got none for 1 of 2"):
        estimate_noise(holes)
