"""Rounds of smoothing and fitting, and when they stop."""

import importlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from problems import lorenz63_field, noisy_lorenz63
from trajectories import add_noise, lorenz63
from wpnode_ext import ops, rollout, segment_weights, vpt
from wpnode_ext.closed_form import fit_closed_form
from wpnode_ext.common.arrays import Field
from wpnode_ext.data import make_series
from wpnode_ext.fields import LibraryField, RandomFeatureField
from wpnode_ext.fields.linear import LinearField
from wpnode_ext.smoothing import Watch, refine

DT = 0.01


def weak_least_squares(field: LinearField, u: Tensor, ridge: float) -> LinearField:
    """The head that fits the weak form of states `u`, from normal equations."""
    w_lhs, w_rhs = segment_weights(8, 50, DT)
    with torch.no_grad():
        phi = ops.corr(field.features(u)[None].contiguous(), w_rhs, q=2)[0]
        lhs = ops.corr(u[None].contiguous(), w_lhs, q=2)[0]
        size = phi.norm(dim=0)
        gram = (phi / size).T @ (phi / size)
        gram += ridge * torch.eye(len(gram)).double()
        head = torch.linalg.solve(gram, -(phi / size).T @ lhs)
        field.set_coefficients(head / size[:, None])
    return field


def quadratic(u: Tensor) -> LinearField:
    return weak_least_squares(LibraryField(3, 2).double(), u, 1e-10)


def mean_vpt(field: Field, starts: int = 12) -> float:
    """Error of forecasts from clean states after the training part."""
    n = 700
    whole = lorenz63(5000 + 150 * starts + n, DT)
    truth = torch.stack([whole[5000 + 150 * i :][:n] for i in range(starts)], 1)
    t = DT * torch.arange(n).double()
    u = rollout(field, truth[0], t, method="rk4_classic").u.nan_to_num(1e6)
    return vpt(u, truth, dt=DT, lyapunov_exponent=0.91, threshold=0.3).mean


@pytest.mark.parametrize("ratio", [0.05, 0.2])
def test_refined_states_and_forecasts_are_far_better_than_the_first(
    ratio: float,
) -> None:
    clean, v, sigma = noisy_lorenz63(4000, ratio)
    rows = []
    result = refine(
        v, quadratic, dt=DT, progress=lambda number, row: rows.append((number, row))
    )
    assert (result.sigma / sigma - 1).abs().max() < 0.05
    first = (result.first_states - clean).square().mean().sqrt() / sigma
    refined = (result.states - clean).square().mean().sqrt() / sigma
    assert first > 0.25 and refined < 0.12
    assert 0.8 < ((result.states - clean) / result.std).square().mean().sqrt() < 1.25
    assert mean_vpt(result.field) > mean_vpt(quadratic(result.first_states)) + 0.5
    assert [number for number, _ in rows] == list(range(1, len(rows) + 1))
    assert [row for _, row in rows] == result.history
    assert result.history[-1].held_out < result.history[0].held_out


def test_alternating_with_fits_alone_improves_the_states_too() -> None:
    clean, v, sigma = noisy_lorenz63(3000, 0.05)
    result = refine(v, quadratic, dt=DT, update="fit", schedule=(0.1, 0.05, 0.025))
    refined = (result.states - clean).square().mean().sqrt() / sigma
    assert refined < 0.15
    assert all(row.effective is None for row in result.history)


def test_a_field_that_is_not_linear_in_its_weights_goes_through_fit() -> None:
    clean, v, sigma = noisy_lorenz63(1000, 0.05)
    calls = []

    def fit(u: Tensor):
        calls.append(u)
        return lambda t, x: lorenz63_field(x)

    result = refine(v, fit, dt=DT, schedule=(0.1, 0.03))
    assert len(calls) == 4
    assert (result.states - clean).square().mean().sqrt() / sigma < 0.15
    with pytest.raises(ValueError, match="`update='projected'` must come with"):
        refine(v, fit, dt=DT, update="projected")


def test_rounds_stop_when_held_out_values_are_predicted_worse() -> None:
    _, v, _ = noisy_lorenz63(1000, 0.05)
    wrong = iter([1.0, 1.0, 1.5, 1.5])

    def fit(u: Tensor):
        factor = next(wrong)
        return lambda t, x: factor * lorenz63_field(x)

    result = refine(v, fit, dt=DT, schedule=(0.1, 0.05, 0.05, 0.05))
    assert result.reason == "held-out observations were predicted worse"
    # How sure the true field may be of its steps is up to the draw: one round or two.
    assert len(result.history) <= 4 and result.best <= 1
    assert result.history[result.best].held_out < 0.7 * result.history[-1].held_out
    x = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    torch.testing.assert_close(result.field(0.0, x), lorenz63_field(x))


def test_the_process_noise_of_an_inaccurate_field_rises_again() -> None:
    """An error of one per cent in the field is too much for steps of 1e-3 sigma."""

    def fit(u: Tensor):
        return lambda t, x: 1.01 * lorenz63_field(x)

    worse = 0
    for seed in range(1, 5):
        _, v, _ = noisy_lorenz63(2000, 0.02, seed=seed)
        rows = (result := refine(v, fit, dt=DT, schedule=(0.1, 0.001, 0.001))).history
        assert [row.process_noise for row in rows[:2]] == [0.1, 0.001]
        if rows[1].held_out > 1.5 * rows[0].held_out:
            worse += 1
            assert all(row.process_noise == 0.1 for row in rows[2:])
        # Whatever was tried, what is kept is no worse than the first round.
        assert result.judged.held_out < 1.05 * rows[0].held_out
    # States that cannot follow the field at all stay where the first round left them.
    assert worse > 0


@pytest.mark.parametrize("wide", [False, True])
def test_a_field_whose_steps_are_not_finite_is_reported(
    wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wide:
        rounds = importlib.import_module("wpnode_ext.smoothing.rounds")
        monkeypatch.setattr(rounds, "MATRIX_UNKNOWNS", 1)
    _, v, _ = noisy_lorenz63(300, 0.05)

    def fit(u: Tensor) -> LinearField:
        field = LibraryField(3, 2).double()
        field.set_coefficients(torch.full((10, 3), 1e200, dtype=torch.float64))
        return field

    result = refine(v, fit, dt=DT)
    assert result.reason == "steps of the field from the states are not finite"
    assert len(result.history) == 1 and result.best == 0 and result.likely is None
    assert result.failure == result.reason
    assert result.states.isfinite().all()
    torch.testing.assert_close(result.std, result.sigma.expand_as(result.std))


def test_a_field_is_judged_by_its_own_round() -> None:
    _, v, _ = noisy_lorenz63(1500, 0.05)
    fields: list[LinearField] = []

    def fit(u: Tensor) -> LinearField:
        field = quadratic(u)
        if fields:
            field.set_coefficients(0.5 * field.coefficients)
        fields.append(field)
        return field

    result = refine(v, fit, dt=DT, update="fit", schedule=(0.1, 0.05, 0.05))
    assert "predicted worse" in result.reason and result.best == 0
    assert result.judged is result.history[0] and not result.failure
    assert result.judged.held_out < 0.5 * result.history[-1].held_out


def test_errors_of_the_callback_are_raised() -> None:
    _, v, _ = noisy_lorenz63(300, 0.05)
    calls = []

    def fit(u: Tensor) -> LinearField:
        calls.append(1 / (len(calls) - 1))
        return quadratic(u)

    with pytest.raises(ZeroDivisionError):
        refine(v, fit, dt=DT, update="fit", schedule=(0.1, 0.1))


def test_held_out_errors_are_compared_value_by_value() -> None:
    watch = Watch()
    noise = torch.rand(1000)
    assert watch.judge(noise) == "better"
    assert watch.judge(noise - 0.001) == "better"
    swing = torch.linspace(-0.1, 0.1, 1000)
    assert watch.judge(noise + swing) == "same"
    assert watch.judge(noise + 0.05) == "worse"
    assert watch.judge(noise * float("nan")) == "worse"


def test_data_without_noise_are_returned_unchanged() -> None:
    clean = lorenz63(1000, DT)
    result = refine(clean, quadratic, dt=DT)
    assert result.history == [] and "no noise" in result.reason
    torch.testing.assert_close(result.states, clean)


def test_several_series_with_missing_values_are_refined_together() -> None:
    clean, v, sigma = noisy_lorenz63(3000, 0.05)
    v[700:705] = float("nan")
    series = make_series([v[:1400], v[1400:]], dt=DT)
    result = refine(series, quadratic, schedule=(0.1, 0.03, 0.01))
    assert (result.states - clean).square().mean().sqrt() / sigma < 0.15


def test_irregular_times_a_gap_and_two_lengths_are_refined_together() -> None:
    """Two orbits of ``x' = y, y' = -x`` at times of their own."""
    rng, sigma = np.random.default_rng(3), 0.1
    times, clean = [], []
    for n, size in ((400, 1.0), (250, 1.5)):
        t = 0.1 * (np.arange(n) + rng.uniform(-0.3, 0.3, n))
        t[n // 2 :] += 7.0
        times.append(t)
        clean.append(size * np.stack([np.cos(t), -np.sin(t)], 1))
    v = [u + sigma * rng.normal(size=u.shape) for u in clean]
    series = make_series(v, t=times)

    def fit(u: Tensor) -> LinearField:
        field = LibraryField(2, 1).double()
        fit_closed_form(field, replace(series, v=u), p=4, ell=20, q=2)
        return field

    result = refine(series, fit)
    truth = torch.from_numpy(np.concatenate(clean))
    assert (result.states - truth).square().mean().sqrt() < 0.15 * sigma
    assert (result.sigma / sigma - 1).abs().max() < 0.1
    slope = torch.stack([truth[:, 1], -truth[:, 0]], 1)
    assert (result.field(0.0, truth) - slope).abs().max() < 0.02


def test_arguments_of_refine_are_checked() -> None:
    _, v, _ = noisy_lorenz63(300, 0.05)
    with pytest.raises(ValueError, match="`update` must be 'auto'"):
        refine(v, quadratic, dt=DT, update="both")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`held_out` must lie between 0 and 0.5"):
        refine(v, quadratic, dt=DT, held_out=0.7)


@pytest.mark.slow
def test_a_black_box_gains_from_refinement_too() -> None:
    _, v, _ = noisy_lorenz63(5000, 0.05)

    def features(u: Tensor) -> LinearField:
        field = RandomFeatureField(
            3,
            100,
            box=(u.amin(0), u.amax(0)),
            generator=torch.Generator().manual_seed(0),
        )
        return weak_least_squares(field, u, 1e-6)

    result = refine(v, features, dt=DT)
    assert mean_vpt(result.field) > mean_vpt(features(result.first_states)) + 0.5


@pytest.mark.slow
def test_five_rounds_of_alternation_on_20_percent_noise() -> None:
    """Means over three trajectories, the noise known: forecasts and states."""
    first, fifth, errors = [], [], []
    t = DT * torch.arange(900).double()
    for draw in range(3):
        u = lorenz63(15_000, DT, seed=100 + draw)
        v, noise = add_noise(u[:10_000], 0.2, seed=200 + draw)
        sigma = noise.mean().item()
        fields = []

        def fit(x: Tensor, fields: list[LinearField] = fields) -> LinearField:
            fields.append(quadratic(x))
            return fields[-1]

        schedule = (0.1, 0.05, 0.025, 0.015, 0.01)
        options = {"sigma": sigma, "update": "fit", "schedule": schedule}
        result = refine(v, fit, dt=DT, **options)
        assert len(result.history) == 5
        truth = torch.stack([u[10_000 + 130 * i :][:900] for i in range(30)], 1)
        for field, found in ((fields[0], first), (fields[5], fifth)):
            path = rollout(field, truth[0], t, method="rk4_classic").u.nan_to_num(1e6)
            score = vpt(path, truth, dt=DT, lyapunov_exponent=0.91, threshold=0.3)
            found.append(score.mean)
        miss = (result.states - u[:10_000]).square().mean().sqrt()
        errors.append(miss.item() / sigma)
    assert np.mean(fifth) > 1.5
    assert np.mean(fifth) > np.mean(first) + 0.3
    assert np.mean(errors) < 0.12
