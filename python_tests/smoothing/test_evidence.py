"""Evidence and posteriors against densities of the data themselves."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from kalman import rk4_matrix
from problems import lorenz63_field, noisy_lorenz63
from trajectories import lorenz63, normal
from wpnode_ext.closed_form import fit_closed_form
from wpnode_ext.data import make_series
from wpnode_ext.fields import LibraryField
from wpnode_ext.smoothing import Refinement, refine
from wpnode_ext.smoothing.evidence import (
    evidence_of_windows,
    likely_process_noise,
    posterior,
    state_evidence,
)
from wpnode_ext.smoothing.gauss_newton import Problem
from wpnode_ext.smoothing.projected import projected_step
from wpnode_ext.smoothing.smoother import as_problem
from wpnode_ext.smoothing.steps import ModelStep

# Noise of the observations of all linear systems here.
SIGMA = 0.2
# `u' = c`: samples, interval and error of a step.
N, H, ERROR = 30, 0.5, 0.1
# A rotation: its matrix, one step of it, and the process noise a problem begins with.
ROTATION = torch.tensor([[-0.1, 1.0], [-1.3, -0.05]], dtype=torch.float64)
STEP = rk4_matrix(ROTATION.numpy(), 0.1)
SEEN = 0.03


def test_the_prior_alone_determines_directions_without_information() -> None:
    # With r the ridge: effective = mean = 100 / (100 + r), so r = effective / mean^2
    # is 100 / 99. What rounding leaves of the other direction must not move it.
    info = torch.diag(torch.tensor([0.0, 100.0], dtype=torch.float64))
    right = torch.tensor([1e-2, 100.0], dtype=torch.float64)
    found = posterior(info, right, torch.ones(2).double())
    assert abs(found.ridge - 100 / 99) < 1e-2
    assert abs(found.effective - 0.99) < 1e-3
    torch.testing.assert_close(
        found.mean, torch.tensor([0.0, 0.99], dtype=torch.float64), atol=1e-3, rtol=0
    )


def test_a_given_ridge_is_used() -> None:
    info = torch.diag(torch.tensor([1.0, 3.0], dtype=torch.float64))
    right = torch.tensor([2.0, 4.0], dtype=torch.float64)
    found = posterior(info, right, torch.ones(2).double(), ridge=1.0)
    expected = torch.tensor([1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(found.mean, expected)
    torch.testing.assert_close(
        found.root @ found.root.T, torch.linalg.inv(info + torch.eye(2).double())
    )


def test_unknowns_far_smaller_than_others_are_accurate() -> None:
    """Features of size 1e-9: their information is 1e-18 of the others'."""
    a = normal(40, 6)
    spread = 10.0 ** -torch.arange(0, 12, 2).double()
    wanted = spread * torch.tensor([1.0, -2.0, 1.0, 3.0, -1.0, 2.0]).double()
    info = a.T @ a
    found = posterior(info, info @ wanted, spread, ridge=1e-24)
    torch.testing.assert_close(found.mean, wanted, rtol=1e-4, atol=0)
    assert abs(found.effective - 6) < 1e-2
    exact = torch.linalg.inv(info + 1e-24 * torch.diag(spread**-2))
    torch.testing.assert_close(found.root @ found.root.T, exact, rtol=1e-6, atol=1e-12)


def test_the_weight_completes_the_density_of_the_data() -> None:
    """``log p(y) = log p(y | mean) + log_weight`` for ``y = A z`` and noise."""
    rng = np.random.default_rng(0)
    a, y = rng.normal(size=(30, 5)), 3 * rng.normal(size=30)
    spread, ridge = np.array([1.0, 0.5, 2.0, 1e-3, 1.0]), 0.3
    found = posterior(
        torch.from_numpy(a.T @ a),
        torch.from_numpy(a.T @ y),
        torch.from_numpy(spread),
        ridge=ridge,
    )
    given = multivariate_normal.logpdf(y, a @ found.mean.numpy(), np.eye(30))
    covariance = np.eye(30) + (a * spread**2 / ridge) @ a.T
    whole = multivariate_normal.logpdf(y, np.zeros(30), covariance)
    np.testing.assert_allclose(given + found.log_weight, whole, atol=1e-10)


def test_the_largest_of_several_maxima_is_found() -> None:
    """The data determine two unknowns of size 1 well, twenty of size 1e5 badly.

    A prior of size 1 excludes the twenty, though each raises the density of the data by
    ``exp(v z^2 / 2) = exp(50)``. It is a local maximum of the evidence, where a search
    from strong to weak priors ends.
    """
    values = torch.tensor([1e6] * 2 + [1e-8] * 20, dtype=torch.float64)
    wanted = torch.tensor([1.0] * 2 + [1e5] * 20, dtype=torch.float64)
    found = posterior(torch.diag(values), values * wanted, torch.ones(22).double())
    assert 0.5e-10 < found.ridge < 2e-10
    torch.testing.assert_close(found.mean, wanted, rtol=0.05, atol=0)


def drift(seed: int) -> np.ndarray:
    """``u' = c`` with errors of the steps, observed with noise."""
    rng = np.random.default_rng(seed)
    u = np.cumsum(0.7 * H + ERROR * rng.normal(size=N))
    return u + SIGMA * rng.normal(size=N)


def drift_log_density(v: np.ndarray, size: float) -> float:
    """Log density of the data for a normal speed c of this size and any start."""
    n = np.arange(N)
    walk = ERROR**2 * np.minimum(n[:, None], n)
    covariance = 1e6 + size**2 * H**2 * np.outer(n, n) + walk + SIGMA**2 * np.eye(N)
    return float(multivariate_normal.logpdf(v, np.zeros(N), covariance))


def test_states_and_coefficients_integrated_out_leave_the_density() -> None:
    found, expected = [], []
    for seed in (0, 1):
        v = drift(seed)
        for ridge in (0.1, 10.0):
            field = LibraryField(1, 0, dtype=torch.float64)
            step = ModelStep(field, torch.Size([1]))
            series = make_series(v[:, None], dt=H)
            problem = as_problem(series, step, SIGMA, ERROR)
            best = projected_step(field, problem, problem.data, window=N, ridge=ridge)
            field.set_coefficients(best.coefficients)
            states = state_evidence(problem, problem.data, window=N, tolerance=1e-12)
            found.append(states + best.log_weight)
            one = best.directions.coefficients(torch.ones(1, dtype=torch.float64))
            expected.append(drift_log_density(v, abs(one.item()) / ridge**0.5))
    # Constants that neither the data nor the prior change are left out.
    np.testing.assert_allclose(np.diff(found), np.diff(expected), atol=1e-4)


@pytest.mark.parametrize("n", [30, 29, 21])
def test_evidence_is_the_sum_over_windows(n: int) -> None:
    """Each sample is in one window, for any number of samples."""
    v = drift(2)[:n]
    field = LibraryField(1, 0, dtype=torch.float64)
    field.set_coefficients(torch.tensor([[0.7]]))
    step = ModelStep(field, torch.Size([1]))

    def evidence(part: np.ndarray) -> float:
        problem = as_problem(make_series(part[:, None], dt=H), step, SIGMA, ERROR)
        return state_evidence(problem, problem.data, window=N // 3)

    thirds = [evidence(part) for part in np.array_split(v, 3)]
    np.testing.assert_allclose(evidence(v), sum(thirds), rtol=1e-10)


def library(degree: int, ratio: float, **options) -> Refinement:
    series = make_series(noisy_lorenz63(3000, ratio)[1] / 10, dt=0.01)
    field = LibraryField(3, degree, dtype=torch.float64)

    def fit(states: torch.Tensor) -> LibraryField:
        fit_closed_form(field, series, states=states, p=8, ell=50, q=2)
        return field

    return refine(series, fit, evidence=True, **options)


@pytest.mark.parametrize("ratio", [0.02, 0.2])
def test_the_true_degree_has_the_largest_evidence(ratio: float) -> None:
    few, right, many = (library(degree, ratio).evidence for degree in (1, 2, 3))
    assert few is not None and right is not None and many is not None
    assert right > few + 100 and right > many + 10


def test_evidence_is_computed_only_on_request() -> None:
    series = make_series(noisy_lorenz63(500, 0.1)[1] / 10, dt=0.01)

    def fit(states: torch.Tensor) -> LibraryField:
        field = LibraryField(3, 2, dtype=torch.float64)
        fit_closed_form(field, series, states=states, p=8, ell=50, q=2)
        return field

    assert refine(series, fit, schedule=[0.1]).evidence is None
    told = refine(series, fit, schedule=[0.1], evidence=True).evidence
    assert told is not None and math.isfinite(told)
    unknown = refine(series, fit, schedule=[0.1], update="fit", evidence=True)
    assert unknown.evidence is None


def test_evidence_does_not_depend_on_the_process_noise_of_the_rounds() -> None:
    """Rounds with 0.1 or 0.01 sigma end at much the same field."""
    believing, doubting = (
        library(2, 0.05, schedule=[0.1, 0.03, level, level]) for level in (0.01, 0.1)
    )
    assert believing.process_noise != doubting.process_noise
    assert believing.evidence is not None and doubting.evidence is not None
    assert abs(believing.evidence - doubting.evidence) < 10


def test_evidence_of_stretches_is_in_proportion_to_their_samples() -> None:
    """A third of the samples have about a third of the evidence."""
    whole, third = (library(2, 0.05, samples=n).evidence for n in (3000, 1000))
    assert whole is not None and third is not None
    assert abs(third / whole - 1 / 3) < 0.05


def rotation(t: object, u: Tensor) -> Tensor:
    return u @ ROTATION.T


def noisy_rotation(n: int, error: float, seed: int) -> np.ndarray:
    """A rotation whose steps err by `error`, observed with noise SIGMA."""
    rng = np.random.default_rng(seed)
    u = [np.array([1.0, 0.0])]
    for _ in range(n - 1):
        u.append(STEP @ u[-1] + error * rng.normal(size=2))
    return np.array(u) + SIGMA * rng.normal(size=(n, 2))


def problem_of(v: np.ndarray, mask: np.ndarray | None = None) -> tuple[Problem, Tensor]:
    """A problem with a process noise of SEEN, and the data as first states."""
    series = make_series(v, dt=0.1, mask=mask)
    problem = as_problem(series, ModelStep(rotation, torch.Size([2])), SIGMA, SEEN)
    return problem, problem.data.clone()


def rotation_log_density(v: np.ndarray, error: float, kept: np.ndarray) -> float:
    """Log density of the data; the first state has a normal prior of size 1000."""
    n = len(v)
    powers = [np.linalg.matrix_power(STEP, k) for k in range(n)]
    # Every state as a sum of the first one and all errors of steps since.
    table = np.block(
        [
            [powers[i - j] if j <= i else np.zeros((2, 2)) for j in range(n)]
            for i in range(n)
        ]
    )
    sizes = np.repeat([1e3, *[error] * (n - 1)], 2)
    covariance = (table * sizes**2) @ table.T + SIGMA**2 * np.eye(2 * n)
    rows = kept.flatten()
    found = multivariate_normal(cov=covariance[rows][:, rows])
    return float(found.logpdf(v.flatten()[rows]))


def test_evidence_is_the_density_of_the_data_for_linear_models() -> None:
    v = noisy_rotation(40, 0.1, 0)
    mask = np.zeros_like(v, dtype=bool)
    mask[10:13] = mask[20, 0] = True
    problem, x = problem_of(v, mask)
    cut = problem.cut(torch.arange(40)[:, None])
    found, expected = [], []
    for factor in (1.0, 3.0, 0.1):
        part = cut.with_process_noise(factor)
        found.append(evidence_of_windows(part, x[:, None], 20, 1e-10))
        expected.append(rotation_log_density(v, factor * SEEN, ~mask))
    # Constants that no process noise changes are left out.
    np.testing.assert_allclose(np.diff(found), np.diff(expected), atol=1e-5)


@pytest.mark.parametrize("factor", [10.0, 3.0, 1.0, 0.1])
def test_the_process_noise_of_the_data_is_found(factor: float) -> None:
    problem, x = problem_of(noisy_rotation(4000, factor * SEEN, 1))
    assert likely_process_noise(problem, x) == factor


def test_the_process_noise_of_an_exact_field_is_small() -> None:
    clean = lorenz63(6000, 0.01)
    noise = normal(*clean.shape, seed=0)
    step = ModelStep(lambda t, u: lorenz63_field(u), torch.Size([3]))
    series = make_series(clean + 0.5 * noise, dt=0.01)
    problem = as_problem(series, step, 0.5, 0.5 * 0.01)
    # 0.1 on nine of ten draws, 0.03 on one.
    assert likely_process_noise(problem, clean / problem.scale) <= 0.3


def test_a_field_without_finite_steps_keeps_its_process_noise() -> None:
    series = make_series(np.ones((50, 1)), dt=1.0)
    step = ModelStep(lambda t, u: u**9 * 1e200, torch.Size([1]))
    problem = as_problem(series, step, 0.1, 0.1)
    assert likely_process_noise(problem, problem.data) == 1.0
