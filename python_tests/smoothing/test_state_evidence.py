"""How likely a field makes noisy data, against densities and against what is true."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from problems import noisy_lorenz63
from wpnode_ext.closed_form import fit_closed_form
from wpnode_ext.data import make_series
from wpnode_ext.fields import LibraryField
from wpnode_ext.smoothing import Refinement, refine
from wpnode_ext.smoothing.evidence import state_evidence
from wpnode_ext.smoothing.projected import projected_step
from wpnode_ext.smoothing.smoother import as_problem
from wpnode_ext.smoothing.steps import ModelStep

N, H, SIGMA, ERROR = 30, 0.5, 0.2, 0.1


def drift(seed: int) -> np.ndarray:
    """``u' = c`` with steps that err, seen with noise."""
    rng = np.random.default_rng(seed)
    u = np.cumsum(0.7 * H + ERROR * rng.normal(size=N))
    return u + SIGMA * rng.normal(size=N)


def log_density(v: np.ndarray, size: float) -> float:
    """Of the data, the speed c being normal of this size, the start anywhere."""
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
            expected.append(log_density(v, abs(one.item()) / ridge**0.5))
    # Constants that neither the data nor the prior change are left out.
    np.testing.assert_allclose(np.diff(found), np.diff(expected), atol=1e-4)


@pytest.mark.parametrize("n", [30, 29, 21])
def test_windows_are_added_up(n: int) -> None:
    """Each sample in one of them, whatever their number."""
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


def test_evidence_is_told_where_it_is_asked_for() -> None:
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


def test_evidence_does_not_depend_on_how_far_rounds_believed_the_field() -> None:
    """Rounds with 0.1 or 0.01 sigma end at much the same field."""
    believing, doubting = (
        library(2, 0.05, schedule=[0.1, 0.03, level, level]) for level in (0.01, 0.1)
    )
    assert believing.process_noise != doubting.process_noise
    assert believing.evidence is not None and doubting.evidence is not None
    assert abs(believing.evidence - doubting.evidence) < 10


def test_of_long_records_stretches_tell() -> None:
    """A third of the samples have about a third of the evidence."""
    whole, third = (library(2, 0.05, samples=n).evidence for n in (3000, 1000))
    assert whole is not None and third is not None
    assert abs(third / whole - 1 / 3) < 0.05
