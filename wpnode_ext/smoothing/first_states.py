"""First states: local polynomials at any times (Savitzky-Golay on uniform ones)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..common.arrays import Array
from ..data import Series
from ..weak.noise import estimate_noise
from ..weak.segments import gap_free_runs

WIDTHS = (7, 9, 13, 17, 25, 35, 51)
# Ridge on the normalised polynomial that keeps fits of few samples defined.
RIDGE = 1e-12
# Largest error of a polynomial for constants; beyond it the ridge decides its value.
KEPT = 1e-3
# Numbers the design matrices of a slice of samples may hold.
SLICE = 1 << 22
# Noise below this share of a component's size needs no refinement, and cannot be
# distinguished from the curvature of fast components between samples.
NEGLIGIBLE_NOISE = 1e-4


@dataclass(frozen=True)
class LocalFit:
    """States fitted around every sample.

    Attributes:
        states: ``[N, *state]``, float64, including missing samples.
        sigma: noise per component, ``[*state]``: the residual of the fit, which may
            include curvature; from :func:`first_states` the noise alone.
        width: samples in a window, the widest of all components.
    """

    states: Float[Tensor, "N ..."]
    sigma: Float[Tensor, "..."]
    width: int


def local_polynomial(
    series: Series, *, degree: int = 4, widths: Sequence[int] = WIDTHS
) -> LocalFit:
    """Values at every sample of polynomials fitted to its neighbours.

    On uniform times without gaps this is the Savitzky-Golay filter. A degree of 4 keeps
    the peaks that a positive kernel would flatten. Windows end at gaps and borders,
    and missing values have no weight. Where no polynomial is defined, a monotone curve
    connects the states on both sides. Each component takes the width with the least
    error in predicting samples from their neighbours alone.

    Args:
        series: the observations.
        degree: of the polynomials.
        widths: odd numbers of samples to choose from, of which those above `degree` + 2
            are used.
    """
    usable = [width for width in widths if width > degree + 2]
    if not usable:
        raise ValueError(
            f"`widths` must have one above degree + 2 = {degree + 2}; "
            f"got {list(widths)}."
        )
    states, sound, sigma, least = _fitted(series, degree, usable[0])
    chosen = torch.full(least.shape, usable[0])
    for width in usable[1:]:
        other, firm, noise, error = _fitted(series, degree, width)
        better = error < least
        states[:, better], sound[:, better] = other[:, better], firm[:, better]
        sigma[better], least[better], chosen[better] = (
            noise[better],
            error[better],
            width,
        )
    shape, states = series.v.shape, _bridged(series, states, sound)
    return LocalFit(
        states.reshape(shape), sigma.reshape(shape[1:]), int(chosen.max().item())
    )


def first_states(series: Series, sigma: Array | float | None = None) -> LocalFit:
    """Weighted means of the local polynomials and the data, as first states.

    The data are better where the narrowest polynomial is too stiff for the signal or
    the noise is negligible. The best weight of the polynomial is the share of the noise
    in the variance of its residual.

    Args:
        series: the observations.
        sigma: noise per component; estimated by default.
    """
    fit = local_polynomial(series)
    noise = _noise(series, fit.sigma, sigma)
    share = (noise / fit.sigma.clamp(min=torch.finfo(torch.float64).tiny)).square()
    v = series.v.double()
    states = v + share.clamp(max=1.0) * (fit.states - v)
    if series.mask is not None:
        states = torch.where(series.mask, fit.states, states)
    return LocalFit(states, noise, fit.width)


def is_negligible(noise: Float[Tensor, "..."], series: Series) -> bool:
    """Whether no component has noise worth removing."""
    size = series.v.double().reshape(series.n_samples, -1).std(0)
    return bool((noise.flatten() <= NEGLIGIBLE_NOISE * size).all())


def least_noise(series: Series, noise: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Noise per component, at least the negligible share of its size.

    Components that never change, or have no noise, need a unit all the same.
    """
    size = series.v.double().reshape(series.n_samples, -1).std(0)
    unit = torch.where(size > 0, size, 1.0).reshape(noise.shape)
    return torch.maximum(noise, NEGLIGIBLE_NOISE * unit)


def _noise(
    series: Series, fallback: Tensor, given: Array | float | None
) -> Float[Tensor, "..."]:
    """Noise per component: given, from differences, or from a local fit's residual."""
    state = series.state_shape
    if given is not None:
        value = torch.as_tensor(given, dtype=torch.float64, device="cpu")
        return value.expand(state).clone()
    if series.dt is None:
        return fallback
    lengths = list(series.lengths)
    try:
        found = estimate_noise(series.v, mask=series.mask, lengths=lengths)
    except ValueError:
        # Gaps too frequent for seventeen samples in a row.
        return fallback
    return torch.where(
        found.reliable, found.sigma, torch.minimum(found.sigma, fallback)
    )


def _fitted(
    series: Series, degree: int, width: int
) -> tuple[
    Float[Tensor, "N D"],
    Bool[Tensor, "N D"],
    Float[Tensor, " D"],
    Float[Tensor, " D"],
]:
    """States, mask of the sound ones, noise, and squared errors of prediction.

    A sound polynomial keeps constants and does not amplify noise; far from all samples
    no polynomial is sound. The errors are those of predicting each sample from the
    others.
    """
    n = series.n_samples
    data = series.v.double().reshape(n, -1)
    seen = torch.ones_like(data)
    if series.mask is not None:
        seen = (~series.mask.reshape(n, -1)).double()
    rows, inside = _windows(series, width)
    size = max(1, SLICE // (width * (degree + 1)))
    states, leverage = torch.empty_like(data), torch.empty_like(data)
    sound = torch.ones_like(data, dtype=torch.bool)
    shared, half, rest = bool(seen.all()), width // 2, torch.arange(n)
    regular = inside.all(1) & (rows[:, half] == rest)
    if shared and series.dt is not None and regular.any():
        # One kernel for all samples with equal neighbourhoods: shifted sums.
        one = regular.nonzero()[0]
        kernel = _kernels(series.times, one, rows[one], inside[one][:, None], degree)
        middle = states[half : n - width + 1 + half].zero_()
        for number, weight in enumerate(kernel.flatten().tolist()):
            middle.add_(data[number : n - width + 1 + number], alpha=weight)
        leverage.fill_(kernel[0, 0, half])
        rest = rest[~regular]
    for part in rest.split(size):
        picked = rows[part]
        # One set of weights for all components where nothing is missing.
        weights = inside[part][:, None] * (
            1.0 if shared else seen[picked].transpose(1, 2)
        )
        kernel = _kernels(series.times, part, picked, weights, degree)
        own = (picked == part[:, None]).double()
        leverage[part] = (kernel * own[:, None]).sum(-1)
        kept = (kernel.sum(-1) - 1).abs() < KEPT
        sound[part] = kept & (kernel.square().sum(-1) <= 1)
        states[part] = (kernel * data[picked].transpose(1, 2)).sum(-1)
    share = 1 - leverage.clamp(max=0.99)
    left = (data - states) * seen
    counts = seen.sum(0).clamp(min=1)
    variance = (left.square() / share).sum(0) / counts
    error = (left / share).square().sum(0) / counts
    # Observed values always count as sound.
    return states, sound | (seen > 0), variance.sqrt(), error


def _bridged(
    series: Series, states: Float[Tensor, "N D"], sound: Bool[Tensor, "N D"]
) -> Float[Tensor, "N D"]:
    """The states, with those that are not sound interpolated from the others.

    The interpolant is a monotone cubic, which does not overshoot. Before the first and
    after the last sound state of a stretch it is constant.
    """
    if sound.all():
        return states
    from scipy.interpolate import PchipInterpolator

    states, times = states.clone(), series.times
    for begin, end in gap_free_runs(len(states), lengths=series.lengths, t=series.t):
        for entry in (~sound[begin:end].all(0)).nonzero().flatten().tolist():
            known = sound[begin:end, entry]
            t, own = times[begin:end], states[begin:end, entry]
            if not known.any():
                own.zero_()
                continue
            lost = t[~known].clamp(t[known][0], t[known][-1])
            own[~known] = own[known][0]
            if known.sum() > 1:
                curve = PchipInterpolator(t[known].numpy(), own[known].numpy())
                own[~known] = torch.from_numpy(curve(lost.numpy()))
    return states


def _windows(series: Series, width: int) -> tuple[Int[Tensor, "N w"], Tensor]:
    """Samples around each sample, and 1.0 for those in its own stretch of the record.

    Near an end the window is moved inwards, not cut.
    """
    n = series.n_samples
    first = torch.zeros(n, dtype=torch.int64)
    stop = torch.zeros(n, dtype=torch.int64)
    for begin, end in gap_free_runs(n, lengths=series.lengths, t=series.t):
        first[begin:end], stop[begin:end] = begin, end
    middle = torch.arange(n)
    start = torch.minimum(middle - width // 2, stop - width).maximum(first)
    rows = start[:, None] + torch.arange(width)
    return rows.clamp(max=n - 1), (rows < stop[:, None]).double()


def _kernels(
    times: Tensor,
    part: Int[Tensor, " n"],
    picked: Int[Tensor, "n w"],
    weights: Float[Tensor, "n c w"],
    degree: int,
) -> Float[Tensor, "n c w"]:
    """Weights of the neighbours in the polynomial's value at the sample itself.

    That value is the constant term.
    """
    design = _design(times, part, picked, degree)
    gram = torch.einsum("ncw,nwi,nwj->ncij", weights, design, design)
    gram.diagonal(dim1=-2, dim2=-1).add_(RIDGE * picked.shape[1])
    first = torch.linalg.inv(gram)[..., 0, :]
    return torch.einsum("nci,nwi,ncw->ncw", first, design, weights)


def _design(
    times: Tensor, part: Tensor, picked: Tensor, degree: int
) -> Float[Tensor, "n w p"]:
    """Powers of the distance in time, in units of the farthest neighbour."""
    distance = times[picked] - times[part][:, None]
    reach = distance.abs().amax(1, keepdim=True).clamp(min=1e-300)
    return (distance / reach)[..., None] ** torch.arange(degree + 1)
