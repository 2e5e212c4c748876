"""Densities, divergences and distances of attractors against formulas."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import gaussian_kde

from trajectories import normal
from wpnode_ext.metrics import (
    joint_pdf,
    kernel_density,
    kl_divergence,
    marginal_kl,
    pdf,
    spectral_distance,
    state_space_divergence,
)


def gaussian(n: int, mean: float = 0.0, std: float = 1.0, d: int = 1) -> torch.Tensor:
    return mean + std * normal(n, d)


def test_divergence_of_two_gaussians_is_the_closed_form() -> None:
    mean, std = 0.5, 1.3
    expected = math.log(std) + (1 + mean**2) / (2 * std**2) - 0.5
    value = kl_divergence(gaussian(200_000), gaussian(200_000, mean, std))
    assert value == pytest.approx(expected, abs=0.005)


def test_the_first_argument_is_the_model() -> None:
    narrow, wide = gaussian(100_000), gaussian(100_000, std=2.0)
    expected = math.log(2) + 1 / 8 - 0.5
    assert kl_divergence(narrow, wide) == pytest.approx(expected, abs=0.01)
    assert kl_divergence(wide, narrow) > 2 * expected


def test_marginals_are_averaged_over_components() -> None:
    u = gaussian(50_000, d=2)
    u_hat = gaussian(50_000, d=2)
    u_hat[:, 1] += 1.0
    values = marginal_kl(u_hat, u)
    assert values[0] < 0.002
    assert values[1].item() == pytest.approx(0.5, abs=0.02)
    assert kl_divergence(u_hat, u) == pytest.approx(values.mean().item())


def test_equal_samples_have_no_divergence() -> None:
    u = gaussian(1000, d=3)
    assert kl_divergence(u, u) == pytest.approx(0.0, abs=1e-12)


def test_disjoint_supports_have_a_large_but_finite_divergence() -> None:
    value = kl_divergence(gaussian(1000, mean=100.0), gaussian(1000))
    assert 10 < value < 50


@pytest.mark.parametrize("d", [1, 2])
def test_kernel_densities_are_those_of_scipy(d: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, d)) * np.arange(1, d + 1)
    # The estimate of scipy has full covariance; ours is along the axes.
    if d == 2:
        x = np.concatenate([x, x * [1, -1], -x, x * [-1, 1]])
    edges, n_grid = [(-8.0, 8.0)] * d, 200
    ours = kernel_density(x, edges, n_grid)
    points = np.meshgrid(*[np.linspace(-8, 8, n_grid)] * d, indexing="ij")
    exact = gaussian_kde(x.T)(np.stack([p.reshape(-1) for p in points]))
    exact = exact.reshape(ours.shape) / exact.sum()
    assert np.abs(ours - exact).max() < 0.02 * exact.max()


def test_pdfs_of_gaussian_samples_are_the_bell_curve() -> None:
    u = torch.cat([gaussian(100_000), gaussian(100_000, 2.0, 3.0)], 1)
    u[0] = math.nan
    grid, density = pdf(u)
    for j, (mean, std) in enumerate(((0.0, 1.0), (2.0, 3.0))):
        z = (grid[j] - mean) / std
        bell = torch.exp(-(z**2) / 2) / (std * math.sqrt(2 * math.pi))
        assert (density[j] - bell).abs().max() < 0.03 * bell.max()
        assert torch.trapezoid(density[j], grid[j]).item() == pytest.approx(1, abs=1e-6)


def waves(n: int, k: int, seed: int) -> torch.Tensor:
    """Single sine waves of random phase on 64 points of a line of length 10."""
    x = 10 * torch.arange(64, dtype=torch.float64) / 64
    generator = torch.Generator().manual_seed(seed)
    phase = 2 * math.pi * torch.rand(n, 1, generator=generator, dtype=torch.float64)
    noise = normal(n, 1, seed=seed)
    return (1 + 0.1 * noise) * torch.sin(2 * math.pi * k / 10 * x + phase)


def test_joint_divergence_sees_derivatives() -> None:
    u = waves(2000, 2, seed=0)
    assert kl_divergence(waves(2000, 2, seed=1), u, kind="joint", length=10.0) < 0.01
    assert kl_divergence(waves(2000, 3, seed=1), u, kind="joint", length=10.0) > 0.5
    # Values alone have the same density whatever the wave number.
    assert kl_divergence(waves(2000, 3, seed=1), u) < 0.01


def test_joint_divergence_does_not_depend_on_the_unit_of_length() -> None:
    a, b = waves(500, 2, seed=0), waves(500, 3, seed=1)
    one, other = (kl_divergence(a, b, kind="joint", length=x) for x in (10.0, 5.0))
    assert one == pytest.approx(other, rel=1e-6)


def test_joint_pdf_of_a_wave_lies_on_its_ellipse() -> None:
    grids, density = joint_pdf(waves(2000, 2, seed=0), length=10.0)
    cell = (grids[:, 1] - grids[:, 0]).prod()
    assert (density.sum() * cell).item() == pytest.approx(1.0, abs=1e-6)
    # u_x = a k cos, u_xx = -a k^2 sin with a near 1 and k = 2 pi 2 / 10.
    k = 0.4 * math.pi
    radius = ((grids[0] / k) ** 2)[:, None] + ((grids[1] / k**2) ** 2)[None]
    mean = (density * radius).sum() * cell
    assert mean.item() == pytest.approx(1.01, abs=0.05)
    assert density[radius < 0.2].max() < 0.1 * density.max()


def test_states_that_are_not_finite_are_left_out() -> None:
    u = gaussian(1000)
    u_hat = torch.cat([u, torch.full((5, 1), math.nan)])
    assert kl_divergence(u_hat, u) == pytest.approx(0.0, abs=1e-12)


def test_a_model_at_rest_has_a_large_but_finite_divergence() -> None:
    assert 1 < kl_divergence(torch.zeros(1000, 1), gaussian(1000)) < 50


def test_bad_requests_are_refused() -> None:
    u = gaussian(100, d=2)
    with pytest.raises(ValueError, match="`kind` must be 'marginal' or 'joint'"):
        kl_divergence(u, u, kind="pair")
    with pytest.raises(ValueError, match="`length` must be positive for 'joint'"):
        kl_divergence(u, u, kind="joint")
    with pytest.raises(ValueError, match="with one D"):
        kl_divergence(u[:, :1], u)
    with pytest.raises(ValueError, match="at least 10 finite states"):
        kl_divergence(u * math.nan, u)


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


def test_binned_divergence_of_counts_by_hand() -> None:
    # Two boxes along one axis: truth 3 to 1, model 1 to 1.
    u = torch.tensor([[0.0], [0.1], [0.2], [1.0]])
    u_hat = torch.tensor([[0.0], [1.0]])
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    value = state_space_divergence(u_hat, u, n_bins=2)
    assert value == pytest.approx(expected, abs=1e-4)


def test_smoothing_counts_every_box() -> None:
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


def test_a_model_without_finite_states_has_infinite_distance() -> None:
    u = cloud(100, 0.0, 0)
    assert state_space_divergence(u * math.nan, u) == math.inf


def signal(n: int, frequency: float, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    phase = 2 * math.pi * torch.rand(1, generator=generator, dtype=torch.float64)
    t = torch.arange(n, dtype=torch.float64)
    noise = 0.1 * normal(n, seed=seed)
    return (torch.sin(2 * math.pi * frequency * t + phase) + noise)[:, None]


def test_disjoint_spectra_have_distance_one() -> None:
    t = torch.arange(20_000, dtype=torch.float64)
    slow = torch.sin(2 * math.pi * 0.01 * t)[:, None]
    fast = torch.sin(2 * math.pi * 0.3 * t)[:, None]
    assert spectral_distance(fast, slow) == pytest.approx(1.0, abs=1e-3)
    assert spectral_distance(slow, slow) == pytest.approx(0.0, abs=1e-7)


def test_the_distance_ignores_phases_but_not_frequencies() -> None:
    u = signal(20_000, 0.05, 0)
    same = spectral_distance(signal(20_000, 0.05, 1), u)
    near = spectral_distance(signal(20_000, 0.051, 1), u)
    far = spectral_distance(signal(20_000, 0.1, 1), u)
    assert same < 0.05 < near < far


def test_the_distance_ignores_the_scale() -> None:
    u = signal(5000, 0.05, 0)
    assert spectral_distance(1000 * u, u) == pytest.approx(0.0, abs=1e-7)


def test_the_distance_averages_finite_members() -> None:
    u = torch.stack([signal(5000, 0.05, seed) for seed in range(3)], 1)
    broken = torch.cat([u, u[:, :1] * math.nan], 1)
    assert spectral_distance(broken, u) == pytest.approx(0.0, abs=1e-7)
    assert spectral_distance(u * math.nan, u) == 1.0


def test_bad_requests_of_attractor_distances_are_refused() -> None:
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
