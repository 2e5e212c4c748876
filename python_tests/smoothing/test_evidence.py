"""The precision of a prior that the data choose, against its fixed point by hand."""

import numpy as np
import torch
from scipy.stats import multivariate_normal

from trajectories import normal
from wpnode_ext.smoothing.evidence import posterior


def test_directions_without_information_are_left_to_the_prior() -> None:
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


def test_a_given_ridge_is_taken() -> None:
    info = torch.diag(torch.tensor([1.0, 3.0], dtype=torch.float64))
    right = torch.tensor([2.0, 4.0], dtype=torch.float64)
    found = posterior(info, right, torch.ones(2).double(), ridge=1.0)
    expected = torch.tensor([1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(found.mean, expected)
    torch.testing.assert_close(
        found.root @ found.root.T, torch.linalg.inv(info + torch.eye(2).double())
    )


def test_unknowns_far_smaller_than_others_keep_their_digits() -> None:
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


def test_of_several_maxima_the_largest_is_taken() -> None:
    """Two unknowns of size 1 that are seen well, and twenty of size 1e5, seen badly.

    A prior of size 1 denies the twenty, though each raises the density of the data by
    ``exp(v z^2 / 2) = exp(50)``; it is a maximum all the same, where a search from
    strong to weak rests.
    """
    values = torch.tensor([1e6] * 2 + [1e-8] * 20, dtype=torch.float64)
    wanted = torch.tensor([1.0] * 2 + [1e5] * 20, dtype=torch.float64)
    found = posterior(torch.diag(values), values * wanted, torch.ones(22).double())
    assert 0.5e-10 < found.ridge < 2e-10
    torch.testing.assert_close(found.mean, wanted, rtol=0.05, atol=0)
