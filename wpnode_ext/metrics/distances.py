"""Densities and spectra of long trajectories, and distances between those of two."""

from math import pi
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ..common.arrays import Array, as_float64, as_generator

# Densities below this share of their largest value are rounding of the transform.
FLOOR = 1e-10
# The grid reaches this many bandwidths beyond the samples.
MARGIN = 4.0
# Count every bin has to begin with, so that empty ones have a logarithm.
LAPLACE = 1e-6


def kl_divergence(
    u_hat: Array,
    u: Array,
    *,
    kind: Literal["marginal", "joint"] = "marginal",
    length: float | None = None,
    n_grid: int | None = None,
) -> float:
    """Kullback-Leibler divergence ``int P log(P / Q)`` of model P from truth Q.

    Densities are Gaussian kernel estimates with Scott's bandwidth on a common grid.

    - "marginal": of every component by itself, averaged; the paper's for L63 and L96.
    - "joint": of the pairs (u_x, u_xx) at all points of a periodic line of length
      `length`, derivatives by Fourier transform; the paper's for KS.

    Where the truth has no sample its density is taken as 1e-10 of its peak, so that the
    result is finite. States of the model that are not finite are left out.

    Args:
        u_hat: long trajectories of the model, ``[..., D]``.
        u: of the truth, ``[..., D]``; the number of samples may differ.
        kind: see above.
        length: length of the line, for "joint".
        n_grid: points of the grid (a side); default 1024, and 200 for "joint".
    """
    if kind == "marginal":
        return marginal_kl(u_hat, u, n_grid=n_grid or 1024).mean().item()
    if kind != "joint":
        raise ValueError(f"`kind` must be 'marginal' or 'joint'; got {kind!r}.")
    if length is None or not length > 0:
        raise ValueError(f"`length` must be positive for 'joint'; got {length}.")
    model, truth = _samples(u_hat, u)
    pairs = [_derivatives(x, length) for x in (model, truth)]
    edges = [_range(pairs[0][:, j], pairs[1][:, j], 6) for j in range(2)]
    p, q = (kernel_density(x, edges, n_grid or 200) for x in pairs)
    return _divergence(p, q)


def marginal_kl(u_hat: Array, u: Array, *, n_grid: int = 1024) -> Float[Tensor, " D"]:
    """Divergence of every component's density; see :func:`kl_divergence`."""
    model, truth = _samples(u_hat, u)
    values = []
    for j in range(truth.shape[1]):
        edges = [_range(model[:, j], truth[:, j], 5)]
        p = kernel_density(model[:, j : j + 1], edges, n_grid)
        q = kernel_density(truth[:, j : j + 1], edges, n_grid)
        values.append(_divergence(p, q))
    return torch.tensor(values, dtype=torch.float64)


def pdf(
    u: Array, *, n_grid: int = 256
) -> tuple[Float[Tensor, "D G"], Float[Tensor, "D G"]]:
    """Density of every component, a Gaussian kernel estimate of Scott's bandwidth.

    Args:
        u: trajectories, ``[..., D]``; states that are not finite are left out.
        n_grid: points of the grid.

    Returns:
        The grid and the densities on it, whose integral is 1.
    """
    x = _finite(as_float64(u, "u"), "u")
    grids, values = [], []
    for column in x.T:
        low, high = _range(column, column, 5)
        density = kernel_density(column[:, None], [(low, high)], n_grid)
        grids.append(np.linspace(low, high, n_grid))
        values.append(density * (n_grid - 1) / (high - low))
    return torch.from_numpy(np.stack(grids)), torch.from_numpy(np.stack(values))


def joint_pdf(
    u: Array, *, length: float, n_grid: int = 200
) -> tuple[Float[Tensor, "2 G"], Float[Tensor, "G G"]]:
    """Joint density of (u_x, u_xx) at all points of a periodic line.

    Args:
        u: states ``[..., points]``; those that are not finite are left out.
        length: of the line.
        n_grid: points of the grid along each axis.

    Returns:
        The grids of u_x and u_xx, and the density with the axes in this order.
    """
    pairs = _derivatives(_finite(as_float64(u, "u"), "u"), length)
    edges = [_range(pairs[:, j], pairs[:, j], 6) for j in range(2)]
    density = kernel_density(pairs, edges, n_grid)
    for low, high in edges:
        density = density * (n_grid - 1) / (high - low)
    grids = np.stack([np.linspace(low, high, n_grid) for low, high in edges])
    return torch.from_numpy(grids), torch.from_numpy(density)


def kernel_density(
    x: NDArray[Any], edges: list[tuple[float, float]], n_grid: int
) -> NDArray[Any]:
    """Gaussian kernel estimate on a regular grid, normalised to sum 1.

    Samples are shared out to the grid points next to them (linear binning) and the
    counts smoothed, so the cost is linear in the samples. Bandwidths are Scott's,
    ``n^(-1 / (d + 4))`` standard deviations along each axis.

    Args:
        x: samples, ``[n, d]`` with d = 1 or 2.
        edges: ends of the grid along each axis.
        n_grid: points along each axis.
    """

    from scipy.ndimage import gaussian_filter

    n, d = x.shape
    counts = np.zeros((n_grid,) * d)
    places, sigmas = [], []
    for j, (low, high) in enumerate(edges):
        spacing = (high - low) / (n_grid - 1)
        places.append(np.clip((x[:, j] - low) / spacing, 0, n_grid - 1 - 1e-9))
        sigmas.append(_scott(x[:, j], d) / spacing)
    base = [place.astype(np.int64) for place in places]
    rest = [place - cell for place, cell in zip(places, base, strict=True)]
    for corner in np.ndindex(*(2,) * d):
        weight = np.ones(n)
        index = np.zeros(n, dtype=np.int64)
        for cell, share, side in zip(base, rest, corner, strict=True):
            weight *= share if side else 1 - share
            index = index * n_grid + cell + side
        counts += np.bincount(index, weight, n_grid**d).reshape(counts.shape)
    smooth = gaussian_filter(counts, sigmas, mode="constant", truncate=6.0)
    return smooth / smooth.sum()


def _divergence(p: NDArray[Any], q: NDArray[Any]) -> float:
    p, q = (np.maximum(x, FLOOR * x.max()) for x in (p, q))
    p, q = p / p.sum(), q / q.sum()
    return float((p * np.log(p / q)).sum())


def _samples(u_hat: Array, u: Array) -> tuple[NDArray[Any], NDArray[Any]]:
    model, truth = as_float64(u_hat, "u_hat"), as_float64(u, "u")
    if model.dim() < 2 or truth.dim() < 2 or model.shape[-1] != truth.shape[-1]:
        raise ValueError(
            "`u_hat` and `u` must have shapes [..., D] with one D; "
            f"got {list(model.shape)} and {list(truth.shape)}."
        )
    # A model may have come to rest: its density is then a peak.
    return _finite(model, "u_hat", at_rest=True), _finite(truth, "u")


def _finite(u: Tensor, name: str, *, at_rest: bool = False) -> NDArray[Any]:
    """States that are finite, ``[n, D]``; they must differ unless `at_rest`."""
    if u.dim() < 2:
        raise ValueError(f"`{name}` must have shape [..., D]; got {list(u.shape)}.")
    x = u.reshape(-1, u.shape[-1])
    x = x[x.isfinite().all(1)]
    if len(x) < 10 or not (at_rest or (x.std(0) > 0).all()):
        raise ValueError(
            f"`{name}` must have at least 10 finite states that differ; got {len(x)}."
        )
    return x.numpy()


def _scott(x: NDArray[Any], d: int) -> float:
    return float(x.std() * len(x) ** (-1 / (d + 4)))


def _range(a: NDArray[Any], b: NDArray[Any], power: int) -> tuple[float, float]:
    """Ends of a grid that holds both samples and the tails of their kernels."""
    margin = MARGIN * max(x.std() * len(x) ** (-1 / power) for x in (a, b))
    return float(min(a.min(), b.min()) - margin), float(max(a.max(), b.max()) + margin)


def _derivatives(u: NDArray[Any], length: float) -> NDArray[Any]:
    """Pairs (u_x, u_xx) at all points of all states, ``[n, 2]``."""
    points = u.shape[1]
    k = 2 * pi / length * np.arange(points // 2 + 1)
    odd = 1j * k
    if points % 2 == 0:
        odd[-1] = 0.0
    spectrum = np.fft.rfft(u, axis=1)
    first = np.fft.irfft(odd * spectrum, n=points, axis=1)
    second = np.fft.irfft(-(k**2) * spectrum, n=points, axis=1)
    return np.stack([first.reshape(-1), second.reshape(-1)], axis=1)


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
