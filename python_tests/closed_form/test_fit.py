"""The closed-form fit against explicit matrices, known systems and exact statistics."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from trajectories import lorenz63, normal
from wpnode_ext import WeakPlan, segment_weights
from wpnode_ext.closed_form import fit_closed_form
from wpnode_ext.closed_form.ridge import choose_ridge, ridge_solution
from wpnode_ext.closed_form.rows import Gram, Triangle
from wpnode_ext.data import Series, make_series
from wpnode_ext.fields import LibraryField, RandomFeatureField, RingField
from wpnode_ext.weak.segments import gap_free_runs

WEAK: dict[str, Any] = {"p": 4, "ell": 20, "q": 3}


def explicit_problem(
    features: Tensor, series: Series, p: int, ell: int, q: int
) -> tuple[np.ndarray, np.ndarray]:
    """Matrix and right-hand side, one segment after another."""
    runs = gap_free_runs(
        series.n_samples, lengths=series.lengths, missing=series.missing, t=series.t
    )
    rows, targets = [], []
    for start in (s for first, stop in runs for s in range(first, stop - ell, q)):
        inside = slice(start, start + ell + 1)
        if series.dt is not None:
            left, right = segment_weights(p, ell, series.dt)
        else:
            left, right = (
                w[0] for w in segment_weights(p, ell, t=series.times[inside])
            )
        rows.append(torch.einsum("i,i...->...", right, features[inside]))
        targets.append(-torch.einsum("i,i...->...", left, series.v[inside]))
    return torch.stack(rows).numpy(), torch.stack(targets).numpy()


def noisy_lorenz(n: int = 400, seed: int = 0) -> Tensor:
    return lorenz63(n, 0.02) + normal(n, 3, seed=seed)


def broken_series() -> Series:
    """Two series, one with a hole, at irregular times."""
    generator = torch.Generator().manual_seed(1)
    v, t = noisy_lorenz(260), torch.arange(260, dtype=torch.float64) * 0.02
    t += 0.004 * torch.rand(260, generator=generator).double()
    v[70:73, 1] = math.nan
    return make_series([v[:150], v[150:]], t=[t[:150], t[150:]])


@pytest.mark.parametrize(
    "series", [make_series(noisy_lorenz(), dt=0.02), broken_series()]
)
@pytest.mark.parametrize("ridge", [0.0, 1e-3])
def test_the_fit_is_the_least_squares_solution_of_the_explicit_matrix(
    series: Series, ridge: float
) -> None:
    field = LibraryField(3, 2, dtype=torch.float64)
    fit = fit_closed_form(field, series, ridge=ridge, **WEAK)
    a, y = explicit_problem(field.features(series.v), series, **WEAK)
    rms = np.sqrt((a**2).mean(0))
    penalty = math.sqrt(ridge * len(a)) * np.diag(rms)
    expected = np.linalg.lstsq(
        np.vstack([a, penalty]) / rms, np.vstack([y, np.zeros((10, 3))]), rcond=None
    )[0]
    actual = field.coefficients.detach().numpy()
    np.testing.assert_allclose(actual, expected / rms[:, None], rtol=1e-8, atol=1e-10)
    assert fit.n_rows == len(a)
    error = np.sqrt(((a @ actual - y) ** 2).mean(0))
    np.testing.assert_allclose(fit.residual.numpy(), error, rtol=1e-9)
    np.testing.assert_allclose(
        fit.relative.numpy(), error / np.sqrt((y**2).mean(0)), rtol=1e-9
    )


def test_features_are_evaluated_at_the_states_and_the_left_side_is_observed() -> None:
    series, states = make_series(noisy_lorenz(), dt=0.02), lorenz63(400, 0.02)
    field = LibraryField(3, 2, dtype=torch.float64)
    fit_closed_form(field, series, states=states, ridge=0.0, **WEAK)
    a, y = explicit_problem(field.features(states), series, **WEAK)
    expected = np.linalg.lstsq(a, y, rcond=None)[0]
    np.testing.assert_allclose(field.coefficients.detach(), expected, rtol=1e-7)


@pytest.mark.parametrize("accumulate", ["qr", "gram"])
def test_many_small_blocks_give_what_one_block_gives(accumulate) -> None:
    series = broken_series()
    found = []
    for block in (1, 500, 1 << 30):
        field = LibraryField(3, 2, dtype=torch.float64)
        fit = fit_closed_form(
            field, series, ridge=1e-6, accumulate=accumulate, block=block, **WEAK
        )
        found.append((fit.n_rows, fit.coefficients))
    assert len({n for n, _ in found}) == 1
    for _, coefficients in found[:-1]:
        torch.testing.assert_close(coefficients, found[-1][1], rtol=1e-8, atol=1e-10)


def test_features_are_evaluated_once_a_sample_whatever_the_blocks() -> None:
    class Counting(LibraryField):
        seen = 0

        def features(self, u: Tensor, x: Tensor | None = None) -> Tensor:
            Counting.seen += len(u)
            return super().features(u, x)

    series = make_series(noisy_lorenz(321), dt=0.02)
    fit_closed_form(Counting(3, 2), series, block=400, p=4, ell=20, q=3)
    assert Counting.seen == 321


def test_normal_equations_give_the_same_where_they_keep_enough_digits() -> None:
    series = make_series(noisy_lorenz(), dt=0.02)
    rows = []
    modes: tuple[Any, ...] = ("qr", "gram")
    for accumulate in modes:
        field = LibraryField(3, 2, dtype=torch.float64)
        fit_closed_form(field, series, accumulate=accumulate, **WEAK)
        rows.append(field.coefficients.detach())
    torch.testing.assert_close(rows[0], rows[1], rtol=1e-6, atol=1e-8)


def test_a_triangle_keeps_digits_that_normal_equations_lose() -> None:
    # Columns 1 and 1 + 1e-9 x: the second direction has the share 1e-9 of the first.
    x = torch.linspace(-1, 1, 500, dtype=torch.float64)[:, None]
    a = torch.cat([torch.ones_like(x), 1 + 1e-9 * x], 1)
    y = a @ torch.tensor([[2.0], [3.0]], dtype=torch.float64)
    errors = []
    for rows in (Triangle(), Gram()):
        for part in range(0, 500, 100):
            rows.add(a[part : part + 100], y[part : part + 100])
        solution = ridge_solution(rows.spectrum(), 0.0)
        errors.append((solution - torch.tensor([[2.0], [3.0]])).abs().max().item())
    assert errors[0] < 1e-5 < 1e-2 < errors[1]


def test_the_score_of_a_ridge_is_generalised_cross_validation() -> None:
    a, y = normal(40, 6), normal(40, 1)
    rows = Triangle()
    rows.add(a, y)
    choice = choose_ridge(rows.spectrum(), [1e-3, 0.1, 10.0])
    scaled = a / a.square().mean(0).sqrt()
    scores = []
    for ridge in choice.grid:
        inverse = torch.linalg.inv(scaled.T @ scaled + 40 * ridge * torch.eye(6))
        left = torch.eye(40) - scaled @ inverse @ scaled.T
        error = (left @ y).square().mean() / y.square().mean()
        scores.append((error / (left.trace() / 40) ** 2).item())
    np.testing.assert_allclose(choice.scores, scores, rtol=1e-10)
    assert choice.ridge == choice.grid[int(np.argmin(scores))]


def test_clean_data_give_the_coefficients_of_lorenz_63() -> None:
    field = LibraryField(3, 2, dtype=torch.float64)
    fit_closed_form(field, make_series(lorenz63(3000, 0.01), dt=0.01))
    table = dict(zip(field.exponents, field.coefficients.tolist(), strict=True))
    expected: dict[tuple[int, ...], tuple[float, ...]] = {
        (1, 0, 0): (-10.0, 28.0, 0.0),
        (0, 1, 0): (10.0, -1.0, 0.0),
        (0, 0, 1): (0.0, 0.0, -8 / 3),
        (1, 0, 1): (0.0, -1.0, 0.0),
        (1, 1, 0): (0.0, 0.0, 1.0),
    }
    for exponents, row in table.items():
        assert row == pytest.approx(expected.get(exponents, (0, 0, 0)), abs=1e-5)


def test_noise_attenuates_a_linear_system_as_statistics_say() -> None:
    # v = u + noise: the slope shrinks by S / (S + sigma^2 |w_rhs|^2), S the mean square
    # of the clean feature. Noise in both sides is uncorrelated: w_lhs is odd, w_rhs
    # is even.
    n, dt, sigma = 200_000, 0.05, 0.7
    t = torch.arange(n, dtype=torch.float64) * dt
    u = torch.stack([torch.cos(t), torch.sin(t)], 1)
    v = u + sigma * normal(n, 2, seed=3)
    field = LibraryField(2, 1, dtype=torch.float64)
    fit_closed_form(field, make_series(v, dt=dt), p=4, ell=20, q=5, ridge=0.0)
    w = segment_weights(4, 20, dt)[1]
    clean = explicit_mean_square(u[:1000, 0], w)
    expected = clean / (clean + sigma**2 * w.square().sum().item())
    slopes = field.coefficients.detach()[1:]
    assert expected < 0.97
    assert slopes[0, 1].item() == pytest.approx(expected, abs=5e-3)
    assert slopes[1, 0].item() == pytest.approx(-expected, abs=5e-3)


def explicit_mean_square(u: Tensor, w: Tensor) -> float:
    return u.unfold(0, len(w), 1).matmul(w).square().mean().item()


def test_inputs_are_features_like_the_state() -> None:
    t = torch.arange(600, dtype=torch.float64) * 0.02
    # u' = -2 u + 3 x for x = cos t: u = (6 cos t + 3 sin t) / 5 + c exp(-2 t).
    u = (6 * torch.cos(t) + 3 * torch.sin(t)) / 5 + torch.exp(-2 * t)
    series = make_series(u[:, None], dt=0.02, forcing=torch.cos(t)[:, None])
    field = LibraryField(1, 1, forcing_dim=1, dtype=torch.float64)
    fit_closed_form(field, series, **WEAK)
    expected = torch.tensor([[0.0], [-2.0], [3.0]], dtype=torch.float64)
    torch.testing.assert_close(field.coefficients.detach(), expected, atol=1e-6, rtol=0)


def test_a_ring_is_fitted_from_all_of_its_sites() -> None:
    t = torch.arange(400, dtype=torch.float64) * 0.02
    # Advection u_s' = u_{s-1} - u_s on 5 sites, solved exactly.
    generator = np.eye(5)[[4, 0, 1, 2, 3]] - np.eye(5)
    flow = torch.linalg.matrix_exp(t[:, None, None] * torch.from_numpy(generator))
    u = flow @ torch.tensor([1.0, 0.0, 2.0, -1.0, 0.5], dtype=torch.float64)
    field = RingField(LibraryField(3, 1, outputs=1, dtype=torch.float64), 5)
    fit = fit_closed_form(field, make_series(u, dt=0.02), ridge=0.0, **WEAK)
    assert fit.n_rows == 5 * WeakPlan(u, dt=0.02, **WEAK).n_segments
    expected = torch.tensor([[0.0], [1.0], [-1.0], [0.0]], dtype=torch.float64)
    torch.testing.assert_close(field.coefficients.detach(), expected, atol=1e-6, rtol=0)


def test_random_features_learn_the_lorenz_field_from_clean_data() -> None:
    v = lorenz63(6000, 0.01)
    field = RandomFeatureField(
        3,
        300,
        box=(v.amin(0), v.amax(0)),
        generator=torch.Generator().manual_seed(0),
    )
    fit = fit_closed_form(field, make_series(v[:4000], dt=0.01), ridge=0.0)
    assert fit.relative.max() < 1e-8
    x, y, z = v[4000:].unbind(1)
    truth = torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], 1)
    error = (field(0.0, v[4000:]) - truth).norm() / truth.norm()
    assert error.item() < 1e-5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ridge": "auto"}, "'gcv'"),
        ({"ridge": -1.0}, ">= 0"),
        ({"accumulate": "svd"}, "'gram'"),
        ({"states": torch.zeros(3, 3)}, "shape"),
        ({"ell": 500}, "smaller `ell`"),
    ],
)
def test_invalid_arguments_are_refused_by_name(options, message: str) -> None:
    series = make_series(noisy_lorenz(), dt=0.02)
    with pytest.raises(ValueError, match=message):
        fit_closed_form(LibraryField(3, 2), series, **{**WEAK, **options})
    with pytest.raises(ValueError, match="size 2"):
        fit_closed_form(LibraryField(2, 2), series)
