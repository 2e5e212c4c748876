"""Distances of attractors: zero for equal ones, the formula where there is one."""

import math

import numpy as np
import pytest
import torch

from trajectories import normal
from wpnode_ext.metrics import spectral_distance, state_space_divergence


def cloud(n: int, mean: float, seed: int, d: int = 2) -> torch.Tensor:
    return mean + normal(n, d, seed=seed)


@pytest.mark.parametrize("method", ["binned", "gmm"])
def test_equal_clouds_have_no_divergence_and_others_more(method: str) -> None:
    u = cloud(20_000, 0.0, 0)
    same = state_space_divergence(u, u, method=method)
    near = state_space_divergence(u + 0.3, u, method=method)
    far = state_space_divergence(u + 1.5, u, method=method)
    assert abs(same) < 0.02
    assert same < near < far and far > 0.4


def test_counts_worked_out_by_hand() -> None:
    # Two boxes along one axis: truth 3 to 1, model 1 to 1.
    u = torch.tensor([[0.0], [0.1], [0.2], [1.0]])
    u_hat = torch.tensor([[0.0], [1.0]])
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    value = state_space_divergence(u_hat, u, n_bins=2)
    assert value == pytest.approx(expected, abs=1e-4)


def test_smoothing_counts_every_box_that_there_is() -> None:
    rng = np.random.default_rng(0)
    u, u_hat = rng.normal(size=(500, 2)), 0.7 * rng.normal(size=(300, 2))
    low, high = u.min(0), u.max(0)
    grids = []
    for x in (u, u_hat):
        bounds = list(zip(low, high, strict=True))
        counts = np.histogramdd(x, bins=8, range=bounds)[0] + 1e-6
        grids.append(counts / counts.sum())
    expected = (grids[0] * np.log(grids[0] / grids[1])).sum()
    value = state_space_divergence(u_hat, u, n_bins=8)
    assert value == pytest.approx(expected, rel=1e-9)


def test_mixtures_of_two_gaussians_have_the_closed_form() -> None:
    # One centre each, a distance of 2 apart along an axis of unit deviation: d^2 / 2.
    spread = torch.tensor([[-1.0, 0.0], [1.0, 0.0]] * 500, dtype=torch.float64)
    assert spread.std(0, correction=0)[0] == 1.0
    value = state_space_divergence(
        spread + torch.tensor([0.0, 2.0]), spread, method="gmm", n_samples=1000
    )
    # The model is the truth moved by 2 along an axis all states agree on.
    assert value == pytest.approx(2.0, abs=0.2)


def test_a_model_that_is_nowhere_finite_is_infinitely_far() -> None:
    u = cloud(100, 0.0, 0)
    assert state_space_divergence(u * math.nan, u) == math.inf


def signal(n: int, frequency: float, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    phase = 2 * math.pi * torch.rand(1, generator=generator, dtype=torch.float64)
    t = torch.arange(n, dtype=torch.float64)
    noise = 0.1 * normal(n, seed=seed)
    return (torch.sin(2 * math.pi * frequency * t + phase) + noise)[:, None]


def test_spectra_that_do_not_meet_are_at_distance_one() -> None:
    t = torch.arange(20_000, dtype=torch.float64)
    slow = torch.sin(2 * math.pi * 0.01 * t)[:, None]
    fast = torch.sin(2 * math.pi * 0.3 * t)[:, None]
    assert spectral_distance(fast, slow) == pytest.approx(1.0, abs=1e-3)
    assert spectral_distance(slow, slow) == pytest.approx(0.0, abs=1e-7)


def test_phases_play_no_role_and_frequencies_do() -> None:
    u = signal(20_000, 0.05, 0)
    same = spectral_distance(signal(20_000, 0.05, 1), u)
    near = spectral_distance(signal(20_000, 0.051, 1), u)
    far = spectral_distance(signal(20_000, 0.1, 1), u)
    assert same < 0.05 < near < far


def test_scale_plays_no_role() -> None:
    u = signal(5000, 0.05, 0)
    assert spectral_distance(1000 * u, u) == pytest.approx(0.0, abs=1e-7)


def test_members_are_averaged_and_broken_ones_left_out() -> None:
    u = torch.stack([signal(5000, 0.05, seed) for seed in range(3)], 1)
    broken = torch.cat([u, u[:, :1] * math.nan], 1)
    assert spectral_distance(broken, u) == pytest.approx(0.0, abs=1e-7)
    assert spectral_distance(u * math.nan, u) == 1.0


def test_bad_requests_are_refused() -> None:
    u = cloud(100, 0.0, 0)
    with pytest.raises(ValueError, match="as many components; got 1 and 2"):
        state_space_divergence(u[:, :1], u)
    with pytest.raises(ValueError, match="`method` must be 'binned' or 'gmm'"):
        state_space_divergence(u, u, method="kde")
    wide = torch.zeros(10, 40)
    with pytest.raises(ValueError, match="use fewer, or method='gmm'"):
        state_space_divergence(wide, wide)
    with pytest.raises(ValueError, match="with T = 100; got .50, 2."):
        spectral_distance(u[:50], u)
