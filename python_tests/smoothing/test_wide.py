"""Coefficients by conjugate gradients, against the matrix they stand for."""

import importlib
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from trajectories import lorenz63, normal
from wpnode_ext.data import make_series
from wpnode_ext.fields import LibraryField, RandomFeatureField
from wpnode_ext.smoothing import is_wide, refine
from wpnode_ext.smoothing.gauss_newton import Problem, StepFailed
from wpnode_ext.smoothing.projected import Directions, projected_step
from wpnode_ext.smoothing.smoother import as_problem, smooth_states
from wpnode_ext.smoothing.steps import ExponentialStep, ModelStep
from wpnode_ext.smoothing.wide import ProjectedOperator, wide_step

SIGMA, PROCESS = 0.05, 0.005
rounds = importlib.import_module("wpnode_ext.smoothing.rounds")


def problem(
    n: int, dt: float, kind: str = "runge_kutta"
) -> tuple[LibraryField, Problem, Tensor]:
    """Scaled Lorenz-63 with noise, a field near its own, and smoothed states."""
    u = lorenz63(n, dt)
    u = (u - u.mean(0)) / u.std(0)
    v = u + SIGMA * normal(*u.shape, seed=1)
    field = LibraryField(3, 2).double()
    speed = (u[2:] - u[:-2]) / (2 * dt)
    field.set_coefficients(torch.linalg.lstsq(field.features(u[1:-1]), speed).solution)
    series = make_series(v, dt=dt)
    step = ModelStep(field, series.state_shape)
    if kind == "exponential":
        step = ExponentialStep(field, dt)
    found = smooth_states(field, series, sigma=SIGMA, process_noise=PROCESS)
    return field, as_problem(series, step, SIGMA, PROCESS), found.states / SIGMA


def matrix_of(operator: ProjectedOperator, directions: Directions) -> Tensor:
    """For the unknowns of the directions, output by output."""
    k, o = directions.basis.shape[1], len(directions.sizes)
    with torch.no_grad():
        columns = [
            operator.times(unit.reshape(o, k).T.contiguous()).T.flatten()
            for unit in torch.eye(k * o, dtype=torch.float64)
        ]
    scale = 1 / directions.spread
    return scale[:, None] * torch.stack(columns, 1) * scale


class TestOperator:
    @pytest.mark.parametrize("kind", ["runge_kutta", "exponential"])
    def test_becomes_the_matrix_of_projected_steps(self, kind: str) -> None:
        misses = []
        for dt in (0.02, 0.01, 0.005):
            field, given, x = problem(401, dt, kind)
            dense = projected_step(field, given, x, ridge=1e-6)
            info = torch.linalg.inv(dense.root @ dense.root.T)
            operator = ProjectedOperator(field, dense.directions, given, x)
            found = matrix_of(operator, dense.directions)
            torch.testing.assert_close(
                found, found.T, rtol=1e-9, atol=1e-9 * info.max().item()
            )
            misses.append(((found - info).norm() / info.norm()).item())
        assert misses[2] < 0.04
        assert misses[2] < 0.6 * misses[1] < 0.36 * misses[0]

    def test_noise_has_the_information_as_its_covariance(self) -> None:
        field, given, x = problem(41, 0.01)
        directions = projected_step(field, given, x, ridge=1e-6).directions
        operator = ProjectedOperator(field, directions, given, x)
        info = matrix_of(operator, directions)
        draw = torch.Generator().manual_seed(2)
        with torch.no_grad():
            slopes = torch.stack([operator.noise(draw) for _ in range(3000)])
        slopes = slopes.mT.flatten(1) / directions.spread
        covariance = slopes.T @ slopes / len(slopes)
        # Root mean square of the sampling error: sqrt((P + 1) / draws) = 0.10.
        assert (covariance - info).norm() / info.norm() < 0.15


@pytest.mark.parametrize("kind", ["runge_kutta", "exponential"])
def test_sources_are_integrated_exactly_for_linear_fields(kind: str) -> None:
    """u' = A u + y with y linear in time, by the exponential of the bordered matrix."""
    a = torch.tensor([[-30.0, 2.0], [-1.0, 0.5]], dtype=torch.float64)
    a = torch.zeros_like(a) if kind == "runge_kutta" else a
    field, dt = LibraryField(2, 1).double(), 0.2
    with torch.no_grad():
        field.coefficients.copy_(torch.cat([torch.zeros(1, 2).double(), a.T]))
    step: ModelStep | ExponentialStep = ModelStep(field, torch.Size([2]))
    if kind == "exponential":
        step = ExponentialStep(field, dt, substeps=2)
    first, last = normal(2, 5, 2)
    h = torch.full((5,), dt, dtype=torch.float64)
    found = step.push(first, last, h)
    for i in range(5):
        whole = torch.zeros(4, 4, dtype=torch.float64)
        whole[:2, :2], whole[2, 3] = a, 1.0
        whole[:2, 2], whole[:2, 3] = first[i], (last[i] - first[i]) / dt
        # The last two entries are 1 and the time since the start.
        swapped = whole.clone()
        swapped[2, 3], swapped[3, 2] = 0.0, 1.0
        wanted = torch.matrix_exp(dt * swapped)[:2, 2]
        torch.testing.assert_close(found[i], wanted)
    y = normal(5, 2)
    back = step.pull(y, h)
    torch.testing.assert_close(
        (found * y).sum(), (first * back[0]).sum() + (last * back[1]).sum()
    )


class TestWideStep:
    def test_coefficients_are_those_of_the_matrix(self) -> None:
        field, given, x = problem(2001, 0.005)
        dense = projected_step(field, given, x, ridge=1e-6)
        wide = wide_step(field, given, x, ridge=1e-6)
        moved = (dense.coefficients - field.coefficients).norm()
        assert (wide.coefficients - dense.coefficients).norm() < 0.25 * moved
        assert wide.products < 100 and len(wide.others) == 0

    def test_draws_have_the_covariance_of_the_coefficients(self) -> None:
        field, given, x = problem(401, 0.01)
        dense = projected_step(field, given, x, ridge=1e-6)
        draw = torch.Generator().manual_seed(3)
        wide = wide_step(field, given, x, ridge=1e-6, draws=60, generator=draw)
        apart = wide.others - wide.coefficients
        weights = torch.linalg.inv(dense.root)
        z = torch.stack([dense.directions.unknowns(head) for head in apart])
        # In units of their errors all 30 unknowns have variance one, found to 0.03.
        assert (z @ weights.T).var(0).mean() == pytest.approx(1, abs=0.1)
        assert wide.state_variance.shape == x.shape
        more = wide.draw(400, draw) - wide.coefficients
        z = torch.stack([dense.directions.unknowns(head) for head in more])
        assert (z @ weights.T).var(0).mean() == pytest.approx(1, abs=0.15)


def test_data_of_several_series_with_holes_and_unequal_noise() -> None:
    """A step from such data is that of the matrix, the prior of largest evidence."""
    u = lorenz63(1200, 0.005)
    sigma = torch.tensor([0.3, 0.5, 0.8], dtype=torch.float64)
    v = u + sigma * normal(*u.shape, seed=5)
    v[300:320, 1] = float("nan")
    series = make_series([v[:500], v[500:]], dt=0.005)
    field = LibraryField(3, 2).double()
    speed = (u[2:] - u[:-2]) / 0.01
    field.set_coefficients(torch.linalg.lstsq(field.features(u[1:-1]), speed).solution)
    noise = 0.1 * sigma
    found = smooth_states(field, series, sigma=sigma, process_noise=noise)
    step = ModelStep(field, series.state_shape)
    given, x = as_problem(series, step, sigma, noise), found.states / sigma
    dense = projected_step(field, given, x)
    wide = wide_step(field, given, x)
    z = dense.directions.unknowns(wide.coefficients - dense.coefficients)
    # In units of the errors of the unknowns.
    assert torch.linalg.solve(dense.root, z).square().mean().sqrt() < 0.3


class TestFailure:
    def test_a_component_that_never_changes_does_no_harm(self) -> None:
        u = torch.cat([lorenz63(400, 0.01), torch.zeros(400, 1).double()], 1)
        field = LibraryField(4, 2).double()
        speed = (u[2:] - u[:-2]) / 0.02
        phi = field.features(u[1:-1])
        field.set_coefficients(torch.linalg.pinv(phi, rtol=1e-10) @ speed)
        series = make_series(u, dt=0.01)
        step = ModelStep(field, series.state_shape)
        given = as_problem(series, step, SIGMA, PROCESS)
        assert wide_step(field, given, u / SIGMA).coefficients.isfinite().all()

    def test_a_field_of_zeros_is_improved(self) -> None:
        field, given, x = problem(401, 0.01)
        field.set_coefficients(torch.zeros_like(field.coefficients))
        assert wide_step(field, given, x).coefficients.isfinite().all()

    def test_windows_that_determine_nothing_are_reported(self) -> None:
        field, given, x = problem(401, 0.01)
        blind = replace(given, seen=0 * given.seen, link=1e20 * given.link)
        with pytest.raises(StepFailed, match=r"not determined|need more than"):
            wide_step(field, blind, x)


def test_fields_are_wide_by_their_independent_features() -> None:
    u = lorenz63(500, 0.01)
    u = (u - u.mean(0)) / u.std(0)
    low, high = u.amin(0), u.amax(0)
    features = RandomFeatureField(3, 400, box=(low, high))
    assert features.coefficients.numel() > rounds.MATRIX_UNKNOWNS
    assert not is_wide(features, u)
    assert is_wide(LibraryField(18, 2).double(), normal(800, 18))


def test_wide_fields_are_refined_like_narrow_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "MATRIX_UNKNOWNS", 1)
    clean, dt = lorenz63(1500, 0.01), 0.01
    sigma = 0.05 * clean.square().mean().sqrt().item()
    v = clean + sigma * normal(*clean.shape, seed=1)

    def fit(u: Tensor) -> LibraryField:
        field = LibraryField(3, 2).double()
        speed = (u[4:] - u[:-4]) / (4 * dt)
        field.set_coefficients(
            torch.linalg.lstsq(field.features(u[2:-2]), speed).solution
        )
        return field

    found = refine(v, fit, dt=dt)
    errors = (found.states - clean).square().mean().sqrt() / sigma
    first = (found.first_states - clean).square().mean().sqrt() / sigma
    assert errors < 0.15 < 0.7 * first
    assert found.likely is not None and len(found.likely.draw(3)) == 3
    # Error bars are about as large as the errors.
    bars = found.std.square().mean().sqrt() / sigma
    assert 0.5 < errors / bars < 2
