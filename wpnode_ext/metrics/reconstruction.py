"""Distances between attractors, as the literature on reconstruction measures them."""

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..common.arrays import as_float64, as_generator
from ..common.typing import Array

# Count every bin has to begin with, so that empty ones have a logarithm.
LAPLACE = 1e-6


def state_space_divergence(
    u_hat: Array,
    u: Array,
    *,
    method: Literal["binned", "gmm"] = "binned",
    n_bins: int = 30,
    width: float = 1.0,
    n_samples: int = 1000,
    seed: int | torch.Generator = 0,
) -> float:
    """``D_stsp``: divergence of the model's invariant density from the truth's.

    ``KL(truth | model)``, the reverse of :func:`~wpnode_ext.metrics.kl_divergence`, of
    the joint density of all components:

    - "binned": counts in boxes over the range of the truth; for up to five components.
    - "gmm": both densities are mixtures of Gaussians around the states of a
      trajectory, and the divergence is a mean over draws from the truth's; for more.

    Args:
        u_hat: long trajectories of the model, ``[..., D]``; states that are not finite
            are left out.
        u: of the truth, ``[..., D]``.
        method: see above.
        n_bins: boxes along each axis.
        width: standard deviation of the Gaussians in units of the truth's.
        n_samples: draws, and states a mixture is made of.
        seed: seed, or generator, of "gmm".
    """
    model, truth = _states(u_hat, "u_hat"), _states(u, "u")
    if model.shape[1] != truth.shape[1]:
        raise ValueError(
            f"`u_hat` and `u` must have as many components; got {model.shape[1]} and "
            f"{truth.shape[1]}."
        )
    model = model[np.isfinite(model).all(1)]
    if len(model) == 0:
        return float("inf")
    if method == "binned":
        return _binned(model, truth, n_bins)
    if method != "gmm":
        raise ValueError(f"`method` must be 'binned' or 'gmm'; got {method!r}.")
    return _mixtures(model, truth, width, n_samples, as_generator(seed))


def spectral_distance(u_hat: Array, u: Array, *, smoothing: float = 20.0) -> float:
    """``D_H``: Hellinger distance of power spectra, averaged over components.

    ``sqrt(1 - sum_k sqrt(p_k q_k))`` of spectra smoothed over frequency and normalised
    to sum 1: 0 for equal ones, 1 for those that do not meet. Phases play no role.

    Args:
        u_hat: a trajectory of the model, ``[T, D]`` or ``[T, B, D]`` (spectra are
            averaged over the members); those that are not finite are left out. A
            component at rest is at distance 1.
        u: of the truth, with the same T and step.
        smoothing: standard deviation of the smoothing, in bins of the spectrum.
    """
    model, truth = as_float64(u_hat, "u_hat"), as_float64(u, "u")
    spectra = []
    for name, x in (("u_hat", model), ("u", truth)):
        if x.dim() not in (2, 3) or len(x) != len(truth):
            raise ValueError(
                f"`{name}` must have shape [T, D] or [T, B, D] with T = {len(truth)}; "
                f"got {list(x.shape)}."
            )
        members = x[:, None] if x.dim() == 2 else x
        members = members[:, members.isfinite().all(0).all(-1)]
        if members.shape[1] == 0:
            return 1.0
        spectra.append(_spectrum(members, smoothing))
    p, q = spectra
    if not (q.sum(0) > 0).all():
        raise ValueError("`u` must change in every component to have a spectrum.")
    overlap = np.sqrt(p * q).sum(0).clip(0.0, 1.0)
    return float(np.sqrt(1 - overlap).mean())


def _states(u: Array, name: str) -> NDArray[Any]:
    x = as_float64(u, name)
    if x.dim() < 2:
        raise ValueError(f"`{name}` must have shape [..., D]; got {list(x.shape)}.")
    return x.reshape(-1, x.shape[-1]).numpy()


def _binned(model: NDArray[Any], truth: NDArray[Any], n_bins: int) -> float:
    low, high = truth.min(0), truth.max(0)
    if model.shape[1] * np.log(n_bins) > np.log(2.0**62):
        raise ValueError(
            f"{n_bins} bins along each of {model.shape[1]} axes are too many; "
            "use fewer, or method='gmm'."
        )

    def boxes(x: NDArray[Any]) -> NDArray[Any]:
        inside = ((x >= low) & (x <= high)).all(1)
        cells = ((x[inside] - low) / (high - low + 1e-300) * n_bins).astype(np.int64)
        places = n_bins ** np.arange(x.shape[1])
        return np.minimum(cells, n_bins - 1) @ places

    indices = [boxes(x) for x in (truth, model)]
    union = np.unique(np.concatenate(indices))
    total = float(n_bins) ** model.shape[1]
    densities = []
    for index in indices:
        counts = np.bincount(np.searchsorted(union, index), minlength=len(union))
        mass = len(index) + LAPLACE * total
        densities.append(((counts + LAPLACE) / mass, LAPLACE / mass))
    (p, p_empty), (q, q_empty) = densities
    occupied = (p * np.log(p / q)).sum()
    rest = (total - len(union)) * p_empty * np.log(p_empty / q_empty)
    return float(occupied + rest)


def _mixtures(
    model: NDArray[Any],
    truth: NDArray[Any],
    width: float,
    n_samples: int,
    generator: torch.Generator,
) -> float:
    from scipy.spatial.distance import cdist
    from scipy.special import logsumexp

    scale = truth.std(0)
    scale[scale == 0] = 1.0

    def centres(x: NDArray[Any]) -> NDArray[Any]:
        rows = torch.randperm(len(x), generator=generator)[:n_samples]
        return x[rows.numpy()] / scale

    p, q = centres(truth), centres(model)
    rows = torch.randint(len(p), (n_samples,), generator=generator)
    noise = torch.randn(n_samples, p.shape[1], generator=generator, dtype=torch.float64)
    draws = p[rows.numpy()] + width * noise.numpy()

    def log_density(x: NDArray[Any]) -> NDArray[Any]:
        squares = cdist(draws, x, "sqeuclidean")
        return logsumexp(-squares / (2 * width**2), axis=1) - np.log(len(x))

    # The Gaussians share their normalisation, which cancels.
    return float((log_density(p) - log_density(q)).mean())


def _spectrum(x: Tensor, smoothing: float) -> NDArray[Any]:
    """Power at positive frequencies, ``[F, D]``, each component summing to 1.

    That of a component at rest is 0.
    """

    from scipy.ndimage import gaussian_filter1d

    centred = (x - x.mean(0)).numpy()
    power = (np.abs(np.fft.rfft(centred, axis=0)) ** 2).mean(1)[1:]
    smooth = gaussian_filter1d(power, smoothing, axis=0, mode="nearest")
    total = smooth.sum(0)
    # What rounding leaves of a constant when its mean is taken off has no spectrum.
    eps = np.finfo(np.float64).eps
    moves = np.abs(centred).max((0, 1)) > eps * len(x) * x.abs().amax((0, 1)).numpy()
    return np.where(moves, smooth / np.where(total > 0, total, 1.0), 0.0)
