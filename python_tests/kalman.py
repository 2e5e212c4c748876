"""The textbook Kalman smoother of linear systems, to compare with."""

import numpy as np


def rk4_matrix(matrix: np.ndarray, h: float) -> np.ndarray:
    """The classical step of a linear field: the exponential to fourth order."""
    a = h * matrix
    eye = np.eye(len(a))
    return eye + a @ (eye + a / 2 @ (eye + a / 3 @ (eye + a / 4)))


def rts_smoother(
    v: np.ndarray, seen: np.ndarray, steps: list[np.ndarray], r: float, q: list[float]
) -> tuple[np.ndarray, np.ndarray]:
    """Rauch-Tung-Striebel means and covariances with a flat prior on the start.

    The first observation must be complete and determines the first state. The
    observation matrix omits missing values.
    """
    n, d = v.shape
    means, covs = np.zeros((n, d)), np.zeros((n, d, d))
    ahead_means, ahead_covs = np.zeros((n, d)), np.zeros((n, d, d))
    assert seen[0].all()
    means[0], covs[0] = v[0], r**2 * np.eye(d)
    for k in range(1, n):
        ahead_means[k] = steps[k - 1] @ means[k - 1]
        ahead_covs[k] = steps[k - 1] @ covs[k - 1] @ steps[k - 1].T
        ahead_covs[k] += q[k - 1] ** 2 * np.eye(d)
        h = np.eye(d)[seen[k]]
        gain = ahead_covs[k] @ h.T
        gain = gain @ np.linalg.inv(h @ ahead_covs[k] @ h.T + r**2 * np.eye(len(h)))
        means[k] = ahead_means[k] + gain @ (v[k][seen[k]] - h @ ahead_means[k])
        covs[k] = ahead_covs[k] - gain @ h @ ahead_covs[k]
    for k in range(n - 2, -1, -1):
        back = covs[k] @ steps[k].T @ np.linalg.inv(ahead_covs[k + 1])
        means[k] += back @ (means[k + 1] - ahead_means[k + 1])
        covs[k] += back @ (covs[k + 1] - ahead_covs[k + 1]) @ back.T
    return means, covs
