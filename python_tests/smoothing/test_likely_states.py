"""Starts of ensembles against the exact distribution, and against the truth."""

import numpy as np
import pytest
import torch
from torch import Tensor

from kalman import rk4_matrix, rts_smoother
from trajectories import normal
from wpnode_ext.data import make_series
from wpnode_ext.smoothing import likely_states

MATRIX = np.array([[-0.1, 1.0], [-1.3, -0.05]])
DT, SIGMA, PROCESS = 0.2, 0.3, 0.05


def rotation(t: object, u: Tensor) -> Tensor:
    return u @ torch.from_numpy(MATRIX).T


def observations(n: int = 60) -> Tensor:
    u = [torch.tensor([1.0, 0.5], dtype=torch.float64)]
    step = torch.from_numpy(rk4_matrix(MATRIX, DT))
    for _ in range(n - 1):
        u.append(step @ u[-1])
    noise = normal(n, 2, seed=0)
    return torch.stack(u) + SIGMA * noise


def draws(v: Tensor, sample: int, count: int, **options) -> Tensor:
    """Of one field, from windows side by side."""
    return likely_states(
        [rotation],
        make_series(v, dt=DT),
        torch.full((count,), sample),
        sigma=SIGMA,
        process_noise=PROCESS,
        start=v,
        **options,
    )[0]


@pytest.mark.parametrize("sample", [0, 5, 11])
def test_draws_have_the_mean_and_the_covariance_of_kalman(sample: int) -> None:
    v, count = observations(12), 4000
    steps = [rk4_matrix(MATRIX, DT)] * (len(v) - 1)
    seen = np.ones(v.shape, dtype=bool)
    means, covs = rts_smoother(v.numpy(), seen, steps, SIGMA, [PROCESS] * len(steps))
    found, cov = draws(v, sample, count).numpy(), covs[sample]
    error = np.sqrt(np.diag(cov) / count)
    assert (np.abs(found.mean(0) - means[sample]) < 5 * error).all()
    # A covariance of M draws scatters by sqrt((c_ii c_jj + c_ij^2) / M).
    scale = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / count)
    assert (np.abs(np.cov(found.T) - cov) < 5 * scale).all()


def test_members_have_states_of_their_own() -> None:
    v = observations()

    def slower(t: object, u: Tensor) -> Tensor:
        return 0.9 * rotation(t, u)

    series, at = make_series(v, dt=DT), torch.full((40,), 59)
    how = {"sigma": SIGMA, "process_noise": 1e-3, "start": v}
    one, other = likely_states([rotation, slower], series, at, **how)
    gap = one.mean(0) - other.mean(0)
    assert gap.norm() > 5 * one.std(0).norm() / 40**0.5


def test_the_same_seed_gives_the_same_starts() -> None:
    v = observations()
    first, again, other = (draws(v, 30, 2, seed=seed) for seed in (1, 1, 2))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert (first != other).all()


def test_windows_end_with_the_record() -> None:
    v = observations()
    for sample in (0, 3, 57, 59):
        whole, part = (draws(v, sample, 400, window=w) for w in (60, 40))
        gap = (whole.mean(0) - part.mean(0)).abs()
        assert (gap < 0.1 * whole.std(0) + 5 * whole.std(0) * (2 / 400) ** 0.5).all()


def test_samples_beyond_the_record_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`at` must lie in 0 .. 59; got 60 .. 60"):
        draws(observations(), 60, 1)
