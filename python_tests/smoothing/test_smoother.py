"""The smoother and draws of states against Kalman recursions and Monte Carlo."""

import numpy as np
import pytest
import torch
from torch import Tensor

from kalman import rk4_matrix, rts_smoother
from problems import lorenz63_field
from trajectories import lorenz63, normal
from wpnode_ext.data import Series, make_series
from wpnode_ext.fields import MLPField
from wpnode_ext.smoothing import likely_states, smooth_states
from wpnode_ext.smoothing.gauss_newton import Windows
from wpnode_ext.smoothing.steps import ModelStep

ROTATION = torch.tensor([[-0.1, 1.0], [-1.3, -0.05]], dtype=torch.float64)
# Interval, noise and process noise of the observations that states are drawn from.
DT, NOISE, PROCESS = 0.2, 0.3, 0.05


def linear_field(t: object, u: Tensor) -> Tensor:
    return u @ ROTATION.T


def lorenz(t: object, u: Tensor) -> Tensor:
    return lorenz63_field(u)


def model_errors(u: Tensor) -> Tensor:
    """Differences of states and the steps of 0.01 of Lorenz-63 that lead to them."""
    zeros = torch.zeros(len(u) - 1, dtype=torch.float64)
    return u[1:] - ModelStep(lorenz, torch.Size([3]))(u[:-1], zeros, zeros + 0.01)


def noisy_rotation(n: int, seed: int = 0) -> np.ndarray:
    t = np.arange(n) * 0.1
    clean = np.stack([np.cos(1.1 * t), -np.sin(1.1 * t)], 1)
    return clean + 0.2 * np.random.default_rng(seed).normal(size=(n, 2))


@pytest.mark.parametrize("substeps", [1, 3])
def test_linear_models_give_the_rauch_tung_striebel_smoother(substeps: int) -> None:
    v = noisy_rotation(120)
    seen = np.ones_like(v, dtype=bool)
    seen[30:37] = False
    seen[50, 0] = seen[51, 1] = False
    step = np.linalg.matrix_power(
        rk4_matrix(ROTATION.numpy(), 0.1 / substeps), substeps
    )
    means, covs = rts_smoother(v, seen, [step] * 119, 0.2, [0.03] * 119)
    result = smooth_states(
        linear_field,
        v,
        dt=0.1,
        mask=~seen,
        sigma=0.2,
        process_noise=0.03,
        substeps=substeps,
    )
    assert result.std is not None
    stds = np.sqrt(np.diagonal(covs, axis1=1, axis2=2))
    np.testing.assert_allclose(result.states.numpy(), means, rtol=0, atol=1e-8)
    np.testing.assert_allclose(result.std.numpy(), stds, rtol=1e-8)
    assert result.converged.all()


def test_intervals_of_irregular_times_have_their_own_steps() -> None:
    n, rng = 80, np.random.default_rng(3)
    v = noisy_rotation(n)
    steps = 0.1 * rng.uniform(0.6, 1.4, n - 1)
    t = np.concatenate([[0.0], np.cumsum(steps)])
    q = 0.03 * np.sqrt(steps / torch.tensor(steps).median().item())
    matrices = [rk4_matrix(ROTATION.numpy(), h) for h in np.diff(t)]
    seen = np.ones_like(v, dtype=bool)
    means, _ = rts_smoother(v, seen, matrices, 0.2, list(q))
    result = smooth_states(linear_field, v, t=t, sigma=0.2, process_noise=0.03)
    np.testing.assert_allclose(result.states.numpy(), means, rtol=0, atol=1e-8)


def test_concatenated_series_are_smoothed_separately() -> None:
    a, b = noisy_rotation(70, 1), noisy_rotation(55, 2)
    options = {"sigma": 0.2, "process_noise": 0.02}
    both = smooth_states(linear_field, make_series([a, b], dt=0.1), **options)
    alone = [smooth_states(linear_field, x, dt=0.1, **options) for x in (a, b)]
    expected = torch.cat([result.states for result in alone])
    torch.testing.assert_close(both.states, expected, rtol=0, atol=1e-9)
    assert both.std is not None and alone[0].std is not None
    torch.testing.assert_close(both.std[:70], alone[0].std, rtol=1e-7, atol=0)


def test_the_model_does_not_reach_across_a_long_gap() -> None:
    v = noisy_rotation(100)
    t = np.arange(100) * 0.1
    t[10] += 0.03
    t[60:] += 5.03
    options = {"sigma": 0.2, "process_noise": 0.02}
    whole = smooth_states(linear_field, v, t=t, **options)
    before = smooth_states(linear_field, v[:60], t=t[:60], **options)
    torch.testing.assert_close(whole.states[:60], before.states, rtol=0, atol=1e-9)


def test_a_large_process_noise_returns_the_data() -> None:
    v = lorenz63(300, 0.01) + 0.5 * normal(300, 3)
    result = smooth_states(lorenz, v, dt=0.01, sigma=0.5, process_noise=1e5)
    torch.testing.assert_close(result.states, v, rtol=0, atol=1e-6)


def test_a_small_process_noise_returns_a_trajectory_of_the_model() -> None:
    v = lorenz63(200, 0.01) + 0.5 * normal(200, 3)
    result = smooth_states(
        lorenz, v, dt=0.01, sigma=1.0, process_noise=1e-5, tolerance=1e-7
    )
    u = result.states
    assert model_errors(u).abs().max() < 1e-6
    # It is the trajectory nearest to the data, not just any.
    assert (u - lorenz63(200, 0.01)).square().mean().sqrt() < 0.1


def test_windows_agree_with_the_whole_record() -> None:
    v = lorenz63(2000, 0.01) + 0.8 * normal(2000, 3)
    options = {"dt": 0.01, "sigma": 0.8, "process_noise": 0.04, "tolerance": 1e-8}
    whole = smooth_states(lorenz, v, window=2000, overlap=0, **options)
    parts = smooth_states(lorenz, v, window=400, overlap=160, **options)
    assert whole.converged.all() and parts.converged.all()
    # 80 samples from an end, its influence is a small share of the error bars.
    apart = (whole.states - parts.states).abs() / whole.std
    assert apart.max() < 0.1
    assert whole.std is not None and parts.std is not None
    assert (parts.std / whole.std - 1).abs().max() < 0.02


def test_error_bars_match_the_errors_of_many_noise_draws() -> None:
    clean, draws = lorenz63(150, 0.01), 200
    v = clean + 0.3 * normal(draws, 150, 3)
    # A model without error: what is left is the noise of the observations.
    found = smooth_states(
        lorenz,
        make_series(list(v), dt=0.01),
        sigma=0.3,
        process_noise=1e-4,
        window=1500,
        overlap=0,
    )
    assert found.std is not None
    errors = found.states.reshape(draws, 150, 3) - clean
    std = found.std.reshape(draws, 150, 3).mean(0)
    spread = errors.square().mean(0).sqrt()
    # 200 draws leave 5 % of uncertainty in each ratio; errors along the record hang
    # together, so that the mean over samples has almost as much.
    ratio = (spread / std).mean(0)
    assert ((ratio > 0.85) & (ratio < 1.15)).all(), ratio
    # Half way between the ends the states are far better known than observed.
    assert std[75].max() < 0.1


def test_noise_on_lorenz63_falls_to_a_tenth_with_the_true_field() -> None:
    clean = lorenz63(3000, 0.01)
    v = clean + 0.8 * normal(3000, 3)
    v[1000:1020] = float("nan")
    result = smooth_states(lorenz, v, dt=0.01, sigma=0.8, process_noise=0.008)
    error = (result.states - clean).square().mean().sqrt() / 0.8
    assert error < 0.1
    assert result.converged.all()
    assert ((result.innovation > 0.95) & (result.innovation < 1.05)).all()


def test_a_start_far_from_the_data_is_reported_and_its_cost_never_rises() -> None:
    v = lorenz63(200, 0.01)
    start = v + 30 * normal(200, 3)
    options = {"dt": 0.01, "sigma": 0.1, "process_noise": 1e-3}
    few = smooth_states(lorenz, v, start=start, max_iterations=1, **options)
    assert not few.converged.any()

    def cost(u: Tensor) -> float:
        misfit = ((u - v) / 0.1).square().sum()
        return (misfit + (model_errors(u) / 1e-3).square().sum()).item()

    assert cost(few.states) < cost(start)


def test_the_smoother_converges_from_a_poor_start() -> None:
    v = lorenz63(200, 0.01)
    start = v + 3 * normal(200, 3)
    options = {"dt": 0.01, "sigma": 0.1, "process_noise": 1e-3}
    many = smooth_states(lorenz, v, start=start, max_iterations=60, **options)
    assert many.converged.all()
    assert (many.states - v).abs().max() < 0.1


def test_a_field_that_is_not_finite_returns_the_start() -> None:
    v = noisy_rotation(50)
    result = smooth_states(
        lambda t, u: u / 0.0, v, dt=0.1, sigma=0.2, process_noise=0.1, error_bars=False
    )
    np.testing.assert_allclose(result.states.numpy(), v, rtol=1e-12)
    assert not result.converged.any() and result.std is None


def test_states_with_several_axes_and_networks_in_float32_are_taken() -> None:
    network = MLPField(4, (8,), generator=torch.Generator().manual_seed(0))

    def field(t: object, u: Tensor) -> Tensor:
        return network(0.0, u.flatten(1).float()).double().reshape(u.shape)

    v = normal(60, 2, 2)
    square = smooth_states(field, v, dt=0.1, sigma=1.0, process_noise=0.1)
    flat = smooth_states(
        network, v.reshape(60, 4), dt=0.1, sigma=1.0, process_noise=0.1
    )
    assert square.states.shape == (60, 2, 2) and square.innovation.shape == (2, 2)
    torch.testing.assert_close(square.states.reshape(60, 4), flat.states)


def test_windows_cover_every_sample_once_and_share_enough() -> None:
    for n, length, overlap in [(1000, 300, 50), (301, 300, 200), (50, 300, 0)]:
        cut = Windows.over(n, length, overlap)
        record = torch.full((n, 1), -1.0)
        for window in range(len(cut.starts)):
            own = torch.full((cut.length, 1, 1), float(window))
            cut.take(record, own, torch.tensor([window]))
        assert record.min() == 0.0 and (record.diff(dim=0) >= 0).all()
        assert cut.starts[0] == 0 and cut.starts[-1] + cut.length == n
        assert (cut.starts.diff() <= length - overlap).all()


def test_invalid_arguments_are_refused() -> None:
    v = torch.zeros(20, 2, dtype=torch.float64)
    options = {"dt": 0.1, "sigma": 1.0, "process_noise": 0.1}
    with pytest.raises(ValueError, match="`process_noise` must be positive; got 0"):
        smooth_states(linear_field, v, **(options | {"process_noise": 0.0}))
    with pytest.raises(ValueError, match=r"`sigma` must be a number or have shape \[2"):
        smooth_states(linear_field, v, **(options | {"sigma": torch.ones(3)}))
    with pytest.raises(ValueError, match="`window` must be >= 2 and `overlap`"):
        smooth_states(linear_field, v, window=10, overlap=10, **options)
    with pytest.raises(ValueError, match="`method` must be one of"):
        smooth_states(linear_field, v, method="dopri5", **options)
    with pytest.raises(ValueError, match="`start` must be finite"):
        smooth_states(linear_field, v, start=v[:5], **options)


def test_a_series_gives_the_states_of_its_array() -> None:
    v = noisy_rotation(60)
    series: Series = make_series(v, dt=0.1)
    options = {"sigma": 0.2, "process_noise": 0.05}
    one = smooth_states(linear_field, series, **options)
    other = smooth_states(linear_field, v, dt=0.1, **options)
    torch.testing.assert_close(one.states, other.states, rtol=0, atol=0)


def test_a_series_has_its_own_times_and_gaps() -> None:
    series = make_series(normal(30, 2), dt=0.1)
    with pytest.raises(ValueError, match="`dt` must not be given"):
        smooth_states(linear_field, series, sigma=1.0, process_noise=0.1, dt=0.2)


def observations(n: int = 60) -> Tensor:
    u = [torch.tensor([1.0, 0.5], dtype=torch.float64)]
    step = torch.from_numpy(rk4_matrix(ROTATION.numpy(), DT))
    for _ in range(n - 1):
        u.append(step @ u[-1])
    noise = normal(n, 2, seed=0)
    return torch.stack(u) + NOISE * noise


def draw_states(v: Tensor, sample: int, count: int, **options) -> Tensor:
    """Draws for one field, from the same window repeated."""
    return likely_states(
        [linear_field],
        make_series(v, dt=DT),
        torch.full((count,), sample),
        sigma=NOISE,
        process_noise=PROCESS,
        start=v,
        **options,
    )[0]


@pytest.mark.parametrize("sample", [0, 5, 11])
def test_draws_have_the_mean_and_the_covariance_of_kalman(sample: int) -> None:
    v, count = observations(12), 4000
    steps = [rk4_matrix(ROTATION.numpy(), DT)] * (len(v) - 1)
    seen = np.ones(v.shape, dtype=bool)
    means, covs = rts_smoother(v.numpy(), seen, steps, NOISE, [PROCESS] * len(steps))
    found, cov = draw_states(v, sample, count).numpy(), covs[sample]
    error = np.sqrt(np.diag(cov) / count)
    assert (np.abs(found.mean(0) - means[sample]) < 5 * error).all()
    # A covariance of M draws scatters by sqrt((c_ii c_jj + c_ij^2) / M).
    scale = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / count)
    assert (np.abs(np.cov(found.T) - cov) < 5 * scale).all()


def test_each_member_draws_its_own_states() -> None:
    v = observations()

    def slower(t: object, u: Tensor) -> Tensor:
        return 0.9 * linear_field(t, u)

    series, at = make_series(v, dt=DT), torch.full((40,), 59)
    how = {"sigma": NOISE, "process_noise": 1e-3, "start": v}
    one, other = likely_states([linear_field, slower], series, at, **how)
    gap = one.mean(0) - other.mean(0)
    assert gap.norm() > 5 * one.std(0).norm() / 40**0.5


def test_the_same_seed_gives_the_same_starts() -> None:
    v = observations()
    first, again, other = (draw_states(v, 30, 2, seed=seed) for seed in (1, 1, 2))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert (first != other).all()


def test_windows_end_with_the_record() -> None:
    v = observations()
    for sample in (0, 3, 57, 59):
        whole, part = (draw_states(v, sample, 400, window=w) for w in (60, 40))
        gap = (whole.mean(0) - part.mean(0)).abs()
        assert (gap < 0.1 * whole.std(0) + 5 * whole.std(0) * (2 / 400) ** 0.5).all()


def test_samples_beyond_the_record_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`at` must lie in 0 .. 59; got 60 .. 60"):
        draw_states(observations(), 60, 1)
