"""The filter as a projection, and as the paper's figure 2 describes it."""

from math import factorial

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import spearmanr

from trajectories import add_noise, lorenz63, normal
from wpnode_ext.weak import filter as filtering
from wpnode_ext.weak.filter import _Bump, filter_series, noise_share, score_filter
from wpnode_ext.weak.test_functions import PolynomialBump


def noisy(n: int, ratio: float = 0.05) -> tuple[torch.Tensor, torch.Tensor, float]:
    u = lorenz63(10_000, 0.01)[:n]
    v, sigma = add_noise(u, ratio, seed=1)
    return u, v, sigma[0].item()


def rmse(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a - b).square().mean().sqrt().item()


def dense_filter(v: np.ndarray, p: int, ell: int, centres: np.ndarray) -> np.ndarray:
    """Least squares on bumps and a constant by dense linear algebra."""
    s = 2 * (np.arange(len(v))[:, None] - centres) / ell
    basis = PolynomialBump(p).phi(np.clip(s, -1, 1))
    basis = np.concatenate([basis, np.ones((len(v), 1))], axis=1)
    return basis @ np.linalg.lstsq(basis, v, rcond=1e-12)[0]


@pytest.mark.parametrize(
    ("p", "ell", "q"),
    [
        (2, 10, 3),
        (8, 50, 8),
        # What the authors of weak kernel regression tuned, at 1 and at 5 to 20 % noise.
        (12, 60, 6),
        (5, 40, 8),
        (5, 50, 10),
        (6, 116, 23),
    ],
)
def test_filtering_twice_changes_nothing(p: int, ell: int, q: int) -> None:
    _, v, _ = noisy(1500)
    once = filter_series(v, p=p, ell=ell, q=q)
    twice = filter_series(once, p=p, ell=ell, q=q)
    assert (twice - once).abs().max() < 1e-10 * once.abs().max()
    assert (once - v).abs().max() > 0.1


@pytest.mark.parametrize(("p", "ell", "q"), [(2, 10, 3), (8, 50, 8), (3, 30, 10)])
def test_the_misfit_is_orthogonal_to_the_filtered_series(
    p: int, ell: int, q: int
) -> None:
    _, v, _ = noisy(800)
    u = filter_series(v, p=p, ell=ell, q=q)
    # Orthogonal projection: |v|^2 = |u|^2 + |v - u|^2, Pythagoras.
    excess = v.square().sum() - u.square().sum() - (v - u).square().sum()
    assert excess.abs() < 1e-9 * v.square().sum()


def test_far_from_the_ends_it_is_the_dense_least_squares_fit() -> None:
    _, v, _ = noisy(1000)
    p, ell, q = 8, 50, 10
    ours = filter_series(v, p=p, ell=ell, q=q).numpy()
    errors = []
    for first in range(-ell // 2, -ell // 2 + q):
        dense = dense_filter(v.numpy(), p, ell, np.arange(first, 1000 + ell // 2, q))
        errors.append(np.abs(dense - ours)[200:800].max())
    # One set of centres is ours, up to the ends; with another the fit is another.
    errors.sort()
    assert errors[0] < 1e-3
    assert errors[1] > 1e-2


def test_bumps_themselves_are_kept() -> None:
    p, ell, q = 8, 50, 10
    bump = _Bump.of(p, ell, q)
    room = 600 + 2 * bump.overhang - (ell + 1)
    start = 20 * q - bump.overhang + (room % q) // 2
    v = torch.zeros(600, 1, dtype=torch.float64)
    v[start : start + ell + 1, 0] = bump.phi
    assert (filter_series(v, p=p, ell=ell, q=q) - v).abs().max() < 1e-10


@pytest.mark.parametrize(("p", "ell", "q"), [(2, 40, 4), (8, 50, 5), (13, 60, 7)])
def test_inner_products_of_bumps_are_their_integrals(p: int, ell: int, q: int) -> None:
    bump = _Bump.of(p, ell, q)
    phi = PolynomialBump(p).phi
    for m, value in enumerate(bump.gram):
        shift = 2 * m * q / ell
        exact = quad(lambda s, d=shift: phi(s) * phi(s - d), shift - 1, 1, epsrel=1e-12)
        # The trapezoidal sum in samples: ell / 2 of them to a unit of s.
        assert abs(value - ell / 2 * exact[0]) < 2e-6 * bump.gram[0]
    norm = 2 ** (4 * p + 1) * factorial(2 * p) ** 2 / factorial(4 * p + 1)
    assert bump.gram[0] == pytest.approx(ell / 2 * norm, rel=1e-4)


def test_slow_signals_pass_and_components_do_not_mix() -> None:
    t = torch.arange(1000, dtype=torch.float64)
    v = torch.stack([torch.sin(t / 60), torch.cos(t / 90), 0.01 * t], -1)
    together = filter_series(v, p=8, ell=50, q=5)
    assert (together - v).abs().max() < 1e-3
    alone = filter_series(v[:, 1], p=8, ell=50, q=5)
    assert (together[:, 1] - alone).abs().max() < 1e-12


@pytest.mark.parametrize(("p", "ell", "q"), [(8, 50, 4), (4, 50, 12), (2, 20, 8)])
def test_constants_pass_however_coarse_the_bumps(p: int, ell: int, q: int) -> None:
    v = torch.full((500, 1), 1e5, dtype=torch.float64)
    assert (filter_series(v, p=p, ell=ell, q=q) - v).abs().max() < 1e-4
    holes = v.clone()
    holes[200:204] = float("nan")
    filtered = filter_series(holes, p=p, ell=ell, q=q)
    assert (filtered - holes).nan_to_num().abs().max() < 1e-4


def test_white_noise_is_reduced_to_its_share() -> None:
    v = normal(20_000, 2)
    for p, ell, q in [(8, 50, 8), (8, 50, 4), (4, 30, 3)]:
        kept = filter_series(v, p=p, ell=ell, q=q).square().mean().item()
        assert kept == pytest.approx(1 / q, rel=0.05)
        assert noise_share(p, ell, q) == pytest.approx(1 / q, rel=1e-3)
    dependent = filter_series(v, p=8, ell=50, q=1).square().mean().item()
    assert noise_share(8, 50, 1) == pytest.approx(dependent, rel=0.1)


def test_filtered_lorenz63_is_closer_to_the_truth_than_the_data() -> None:
    u, v, sigma = noisy(10_000)
    for p, ell, q in [(8, 50, 2), (8, 50, 5), (8, 50, 8)]:
        assert rmse(filter_series(v, p=p, ell=ell, q=q), u) < 0.75 * sigma
    assert rmse(filter_series(v, p=8, ell=50, q=8), u) < 0.4 * sigma


def test_ends_are_filtered_too() -> None:
    u, v, sigma = noisy(10_000)
    pieces = [slice(i, i + 200) for i in range(0, 10_000, 200)]
    errors = torch.stack(
        [(filter_series(v[s], p=8, ell=50, q=8) - u[s])[[0, -1]] for s in pieces]
    )
    assert errors.square().mean().sqrt() < sigma


def test_p_32_is_worse_than_p_8() -> None:
    u, v, _ = noisy(5000)
    spacings = (2, 4, 6, 8, 10, 12)
    best = {
        p: min(rmse(filter_series(v, p=p, ell=50, q=q), u) for q in spacings)
        for p in (8, 32)
    }
    assert best[32] > 1.1 * best[8]


def test_the_score_ranks_as_the_error_does_at_5_percent_noise() -> None:
    u, v, _ = noisy(5000)
    rows = []
    for p in (2, 8, 32):
        for ell in (20, 50):
            for q in (2, 4, 6, 8, 10):
                filtered = filter_series(v, p=p, ell=ell, q=q)
                score = score_filter(v, p=p, ell=ell, q=q, u_filtered=filtered)
                rows.append((rmse(filtered, u), score.J))
    assert spearmanr(*zip(*rows, strict=True)).statistic > 0.7


def test_scores_of_series_worked_out_by_hand() -> None:
    v = torch.tensor([0.0, 2.0, 0.0, 2.0, 0.0, 2.0])[:, None]
    filtered = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 1.5])[:, None]
    score = score_filter(v, p=1, ell=2, q=1, u_filtered=filtered)
    # Steps of v: +-2 with variance 4 - 0.4^2; of the filtered: 0, 0, 0, 0, 0.5.
    smooth = (0.25 / 5 - 0.1**2) / (4 - 0.4**2) / 0.2
    assert score.J_smooth == pytest.approx(abs(np.log(smooth)))
    assert score.J_pred == pytest.approx(5 / 20)
    assert score.J == pytest.approx((score.J_smooth + score.J_pred) / 2)


def test_missing_values_do_not_reach_their_neighbours() -> None:
    u, v, sigma = noisy(1000)
    holes = v.clone()
    holes[300:306, 0] = float("nan")
    holes[500] = 1e9
    mask = torch.zeros(1000, dtype=torch.bool)
    mask[500] = True
    filtered = filter_series(holes, p=8, ell=50, q=8, mask=mask)
    assert filtered[300:306, 0].isnan().all() and filtered[500].isnan().all()
    assert filtered[300:306, 1].isfinite().all()
    there = filtered.isfinite()
    assert there.sum() == 3000 - 6 - 3
    assert rmse(filtered[there], u[there]) < 0.5 * sigma


def test_series_laid_end_to_end_are_filtered_one_by_one() -> None:
    _, v, _ = noisy(700)
    joined = filter_series(v, p=4, ell=30, q=5, lengths=[300, 400])
    first = filter_series(v[:300], p=4, ell=30, q=5)
    second = filter_series(v[300:], p=4, ell=30, q=5)
    assert torch.equal(joined, torch.cat([first, second]))


def test_however_the_work_is_divided_the_result_is_the_same(monkeypatch) -> None:
    _, v, _ = noisy(900)
    v = v.clone()
    v[450:455, 1] = float("nan")
    options = {"p": 4, "ell": 30, "q": 5, "lengths": [300, 300, 300]}
    together = filter_series(v, **options)
    # One column of one series at a time.
    monkeypatch.setattr(filtering, "ENTRIES", 300)
    alone = filter_series(v, **options)
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-10, equal_nan=True)


def test_shape_and_dtype_are_those_of_the_data() -> None:
    v = torch.randn(100, 2, 3)
    filtered = filter_series(v, p=4, ell=20, q=4)
    assert filtered.shape == v.shape and filtered.dtype == torch.float32
    assert filter_series(v.numpy(), p=4, ell=20, q=4).dtype == torch.float64


def test_memory_of_the_result_is_its_own() -> None:
    v = normal(100, 1)
    before = v.clone()
    filter_series(v, p=4, ell=20, q=4)
    assert torch.equal(v, before)


def test_bad_requests_are_refused() -> None:
    v = torch.randn(100, 2)
    with pytest.raises(ValueError, match="`q` must be at most ell / 2 = 10.*got 11"):
        filter_series(v, p=4, ell=20, q=11)
    with pytest.raises(ValueError, match="`ell` must be an even integer >= 2; got 21"):
        filter_series(v, p=4, ell=21, q=2)
    with pytest.raises(
        ValueError, match="has 100 samples, fewer than the ell . 1 = 121"
    ):
        filter_series(v, p=4, ell=120, q=2)
    with pytest.raises(ValueError, match="`lengths` must be at least ell . 1 = 21"):
        filter_series(v, p=4, ell=20, q=2, lengths=[90, 10])
