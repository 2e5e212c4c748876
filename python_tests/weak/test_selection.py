"""The choice of the weak form where the best one can be found from the truth."""

import pytest
import torch
from scipy.stats import spearmanr

from trajectories import add_noise, lorenz63, normal
from wpnode_ext.weak.filter import filter_series
from wpnode_ext.weak.selection import select_weak_form


def filter_error(v: torch.Tensor, u: torch.Tensor, p: int, ell: int, q: int) -> float:
    filtered = filter_series(v, p=p, ell=ell, q=q)
    return (filtered - u).square().mean().sqrt().item()


@pytest.mark.parametrize("ratio", [0.01, 0.2])
def test_the_chosen_filter_is_close_to_the_best_of_the_grid(ratio: float) -> None:
    u = lorenz63(10_000, 0.01)[:6000]
    v, _ = add_noise(u, ratio, seed=3)
    grid = {"p": (4, 8), "ell": (24, 50, 80)}
    choice = select_weak_form(v, dt=0.01, **grid)
    errors = [filter_error(v, u, row.p, row.ell, row.q) for row in choice.table]
    chosen = filter_error(v, u, choice.p, choice.ell, choice.q_filter)
    assert chosen < 1.1 * min(errors)
    assert chosen < 0.5 * choice.sigma.mean().item()
    risks = [row.risk for row in choice.table]
    assert spearmanr(risks, errors).statistic > 0.9


def test_the_risk_is_the_squared_error_in_units_of_the_noise() -> None:
    u = lorenz63(10_000, 0.01)
    v, sigma = add_noise(u, 0.05, seed=4)
    choice = select_weak_form(v, p=(8,), ell=(50,), q=(4, 8, 12), sigma=sigma)
    for row in choice.table:
        exact = (filter_error(v, u, row.p, row.ell, row.q) / sigma[0].item()) ** 2
        assert row.risk == pytest.approx(exact, abs=0.03)


def test_the_choice_has_its_table() -> None:
    v, _ = add_noise(lorenz63(10_000, 0.01)[:3000], 0.05, seed=5)
    choice = select_weak_form(v, dt=0.01, p=(8,), ell=(24, 50))
    assert choice.window == pytest.approx(0.01 * choice.ell)
    assert choice.q == max(1, choice.q_filter // 4)
    assert {row.ell for row in choice.table} == {24, 50}
    risks = [row.risk for row in choice.table]
    assert risks == sorted(risks) and choice.note == ""
    assert choice.rows()[0]["risk"] == risks[0]


def test_the_papers_score_can_choose_too() -> None:
    v, _ = add_noise(lorenz63(10_000, 0.01)[:3000], 0.05, seed=5)
    choice = select_weak_form(v, p=(8,), ell=(50,), q=(2, 4, 16), criterion="J")
    scores = {row.q: row.J for row in choice.table}
    assert choice.q == choice.q_filter == min(scores, key=scores.__getitem__)


def test_long_records_are_sampled_in_pieces_and_say_so() -> None:
    u = torch.stack([torch.sin(torch.arange(200_000) / 30.0)] * 20, -1).double()
    v, _ = add_noise(u, 0.1, seed=0)
    v[:, 7] = 0.0
    choice = select_weak_form(v, p=(4,), ell=(24, 50), sigma=0.1 * 0.707)
    assert "16 of 20 entries" in choice.note
    assert "10000 of 200000 samples" in choice.note


def test_series_are_not_joined() -> None:
    v, sigma = add_noise(lorenz63(10_000, 0.01)[:4000], 0.05, seed=6)
    parts = torch.cat([v[:1500], v[2500:] + 50])
    options = {"p": (8,), "ell": (24, 50), "sigma": sigma}
    apart = select_weak_form(parts, lengths=[1500, 1500], **options)
    joined = select_weak_form(parts, **options)
    assert joined.table[0].risk > 2 * apart.table[0].risk > 0


def test_missing_values_are_left_out() -> None:
    v, _ = add_noise(lorenz63(10_000, 0.01)[:3000], 0.05, seed=7)
    holes = v.clone()
    mask = torch.zeros(3000, dtype=torch.bool)
    mask[1000] = True
    holes[1000] = 1e6
    options = {"p": (8,), "ell": (24, 50)}
    choice = select_weak_form(holes, mask=mask, **options)
    expected = select_weak_form(v, **options)
    assert (choice.p, choice.ell) == (expected.p, expected.ell)
    assert choice.table[0].risk == pytest.approx(expected.table[0].risk, abs=0.02)


def test_some_segment_of_whole_samples_has_room() -> None:
    """The filter likes long windows here; an entry that is often missing has none."""
    t = torch.arange(3000, dtype=torch.float64) * 0.01
    v = torch.stack([t.sin(), t.cos()], 1) + 0.1 * normal(3000, 2)
    assert select_weak_form(v, dt=0.01).ell > 38
    v[::40, 1] = float("nan")
    assert select_weak_form(v, dt=0.01).ell <= 38
    # Whoever gives windows has them compared.
    assert select_weak_form(v, dt=0.01, ell=(50,)).ell == 50


def test_bad_requests_are_refused() -> None:
    v = torch.randn(60, 1)
    with pytest.raises(ValueError, match="`v` must have .*; the shortest has 60"):
        select_weak_form(v)
    with pytest.raises(ValueError, match="`criterion` must be 'risk' or 'J'"):
        select_weak_form(v, criterion="rmse")
    with pytest.raises(ValueError, match="no candidate among"):
        select_weak_form(v, p=(4,), ell=(20,), q=(15,))
