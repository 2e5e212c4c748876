"""The process noise of largest evidence, against densities of the data themselves."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from kalman import rk4_matrix
from problems import lorenz63_field
from trajectories import lorenz63, normal
from wpnode_ext.data import make_series
from wpnode_ext.smoothing.evidence import evidence_of_windows, likely_process_noise
from wpnode_ext.smoothing.gauss_newton import Problem
from wpnode_ext.smoothing.smoother import as_problem
from wpnode_ext.smoothing.steps import ModelStep

ROTATION = torch.tensor([[-0.1, 1.0], [-1.3, -0.05]], dtype=torch.float64)
STEP = rk4_matrix(ROTATION.numpy(), 0.1)
SIGMA, SEEN = 0.2, 0.03


def rotation(t: object, u: Tensor) -> Tensor:
    return u @ ROTATION.T


def noisy(n: int, error: float, seed: int) -> np.ndarray:
    """A rotation whose steps err by `error`, seen with noise SIGMA."""
    rng = np.random.default_rng(seed)
    u = [np.array([1.0, 0.0])]
    for _ in range(n - 1):
        u.append(STEP @ u[-1] + error * rng.normal(size=2))
    return np.array(u) + SIGMA * rng.normal(size=(n, 2))


def problem_of(v: np.ndarray, mask: np.ndarray | None = None) -> tuple[Problem, Tensor]:
    """With a process noise of SEEN, and the data as first states."""
    series = make_series(v, dt=0.1, mask=mask)
    problem = as_problem(series, ModelStep(rotation, torch.Size([2])), SIGMA, SEEN)
    return problem, problem.data.clone()


def log_density(v: np.ndarray, error: float, kept: np.ndarray) -> float:
    """Of the data, their first state being anywhere within a thousand."""
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
    v = noisy(40, 0.1, 0)
    mask = np.zeros_like(v, dtype=bool)
    mask[10:13] = mask[20, 0] = True
    problem, x = problem_of(v, mask)
    cut = problem.cut(torch.arange(40)[:, None])
    found, expected = [], []
    for factor in (1.0, 3.0, 0.1):
        part = cut.with_process_noise(factor)
        found.append(evidence_of_windows(part, x[:, None], 20, 1e-10))
        expected.append(log_density(v, factor * SEEN, ~mask))
    # Constants that no process noise changes are left out.
    np.testing.assert_allclose(np.diff(found), np.diff(expected), atol=1e-5)


@pytest.mark.parametrize("factor", [10.0, 3.0, 1.0, 0.1])
def test_the_process_noise_of_the_data_is_found(factor: float) -> None:
    problem, x = problem_of(noisy(4000, factor * SEEN, 1))
    assert likely_process_noise(problem, x) == factor


def test_an_exact_field_is_told_to_err_by_next_to_nothing() -> None:
    clean = lorenz63(6000, 0.01)
    noise = normal(*clean.shape, seed=0)
    step = ModelStep(lambda t, u: lorenz63_field(u), torch.Size([3]))
    series = make_series(clean + 0.5 * noise, dt=0.01)
    problem = as_problem(series, step, 0.5, 0.5 * 0.01)
    # 0.1 on nine of ten draws, 0.03 on one.
    assert likely_process_noise(problem, clean / problem.scale) <= 0.3


def test_a_field_that_leaves_everything_keeps_its_process_noise() -> None:
    series = make_series(np.ones((50, 1)), dt=1.0)
    step = ModelStep(lambda t, u: u**9 * 1e200, torch.Size([1]))
    problem = as_problem(series, step, 0.1, 0.1)
    assert likely_process_noise(problem, problem.data) == 1.0
