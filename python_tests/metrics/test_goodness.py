"""Reference-free goodness of fit on fields that are right, wrong and overfitted."""

import pytest
import torch
from scipy.stats import chi2, shapiro

from problems import lorenz63_field
from trajectories import add_noise, lorenz63, normal
from wpnode_ext.metrics import goodness_of_fit, ljung_box, shapiro_wilk

SETTINGS = {"dt": 0.01, "p": 8, "ell": 50}


def true_field(t, u):
    return lorenz63_field(u)


def noisy(ratio: float = 0.05, n: int = 10_000) -> tuple[torch.Tensor, torch.Tensor]:
    return add_noise(lorenz63(10_000, 0.01)[:n], ratio, seed=1)


def test_the_true_field_leaves_residuals_of_the_noise() -> None:
    v, sigma = noisy(0.02)
    result = goodness_of_fit(true_field, v, sigma=sigma, **SETTINGS)
    # 199 segments of three components: a scatter of about 8 %.
    assert result.n_segments == 199
    assert result.ratio == pytest.approx(1.0, abs=0.25)
    assert result.p_value > 0.01
    assert result.normality > 0.01


def test_noise_is_estimated_where_it_is_not_given() -> None:
    v, sigma = noisy(0.02)
    given = goodness_of_fit(true_field, v, sigma=sigma, **SETTINGS)
    found = goodness_of_fit(true_field, v, **SETTINGS)
    # Five standard errors of 0.016, see test_noise.py; the ratio has their squares.
    assert ((found.sigma / sigma - 1).abs() < 0.08).all()
    assert found.ratio == pytest.approx(given.ratio, rel=0.2)


def test_a_wrong_field_leaves_larger_residuals() -> None:
    v, sigma = noisy(0.02)

    def wrong(t, u):
        return lorenz63_field(u) * 0.8

    assert goodness_of_fit(wrong, v, sigma=sigma, **SETTINGS).ratio > 3


def test_slow_errors_show_as_correlated_residuals() -> None:
    t = torch.arange(20_000, dtype=torch.float64) * 0.01
    slow = torch.sin(t / 20)[:, None]
    v, sigma = add_noise(slow, 0.02, seed=3)
    result = goodness_of_fit(lambda t, u: 0.0 * u, v, sigma=sigma, **SETTINGS)
    assert result.p_value < 1e-3
    assert result.autocorrelation[0] > 0.3


def test_expected_residuals_are_those_of_many_noise_draws() -> None:
    u = lorenz63(10_000, 0.01)[:251]
    sigma = torch.tensor([0.1, 0.3, 0.2], dtype=torch.float64)
    ratios = []
    for seed in range(300):
        noise = normal(*u.shape, seed=seed)
        result = goodness_of_fit(
            true_field, u + sigma * noise, sigma=sigma, n_probes=4, n_lags=1, **SETTINGS
        )
        ratios.append(result.ratio)
    # 300 draws of 5 segments of 3 components, correlated: about 4 % scatter.
    assert sum(ratios) / 300 == pytest.approx(1.0, abs=0.1)


def test_states_with_axes_and_times_reach_the_field() -> None:
    t = torch.arange(400, dtype=torch.float64) * 0.01
    u = torch.stack([torch.sin(t), torch.cos(t)], -1).reshape(400, 2, 1)
    v, sigma = add_noise(u, 0.01, seed=0)

    def forced(t, u):
        t = torch.as_tensor(t).reshape(-1, 1, 1).expand(len(u), 1, 1)
        return torch.cat([torch.cos(t), -torch.sin(t)], 1)

    result = goodness_of_fit(forced, v, sigma=sigma, n_lags=1, **SETTINGS)
    assert 0.2 < result.ratio < 3


def test_ljung_box_is_its_formula_for_one_lag() -> None:
    x = normal(200, 1)
    p_value, rho = ljung_box(x, n_lags=1)
    c = x[:, 0] - x.mean()
    r = ((c[1:] * c[:-1]).sum() / c.square().sum()).item()
    assert rho.tolist() == pytest.approx([r])
    assert p_value == pytest.approx(chi2.sf(200 * 202 * r**2 / 199, 1))


def test_ljung_box_accepts_only_white_noise() -> None:
    white = normal(2000, 3)
    assert ljung_box(white)[0] > 1e-3
    walk = white.clone()
    for n in range(1, len(walk)):
        walk[n] = 0.3 * walk[n - 1] + white[n]
    assert ljung_box(walk)[0] < 1e-6


def test_p_values_are_corrected_for_the_number_of_columns() -> None:
    x = normal(100, 1)
    one, _ = ljung_box(x)
    many, _ = ljung_box(x.expand(-1, 3))
    assert many == pytest.approx(min(1.0, 3 * one))


def test_single_events_show_as_residuals_that_are_not_gaussian() -> None:
    v, sigma = add_noise(torch.zeros(20_000, 1, dtype=torch.float64) + 1, 0.02, seed=3)
    v[8025:] += 1.0
    result = goodness_of_fit(lambda t, u: 0.0 * u, v, sigma=sigma, **SETTINGS)
    assert result.normality < 1e-6


@pytest.mark.parametrize("n", [3, 4, 5, 6, 11, 12, 50, 3000])
def test_normality_is_that_of_scipy(n: int) -> None:
    for power in (1, 3):
        x = normal(n, 1, seed=n) ** power
        assert shapiro_wilk(x) == pytest.approx(shapiro(x[:, 0].numpy()).pvalue)


def test_normality_is_the_smallest_corrected_p_value() -> None:
    x = normal(100, 2)
    x[:, 1] = x[:, 1] ** 3
    p = min(shapiro(x[:, j].numpy()).pvalue for j in range(2))
    assert shapiro_wilk(x) == pytest.approx(2 * p)
    # 20 000 rows are more than the test is made for.
    assert shapiro_wilk(normal(20_000, 1)) > 1e-3


def test_bad_requests_are_refused() -> None:
    v, _ = noisy(n=200)
    with pytest.raises(ValueError, match="`sigma` must be positive"):
        goodness_of_fit(true_field, v, sigma=0.0, **SETTINGS)
    with pytest.raises(ValueError, match="at least 4 rows"):
        ljung_box(torch.zeros(3, 1))
    with pytest.raises(ValueError, match="at least 3 rows"):
        shapiro_wilk(torch.zeros(2, 1))
