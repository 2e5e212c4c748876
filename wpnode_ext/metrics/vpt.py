"""Error of forecasts against lead time, and their valid prediction time."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..common.arrays import Array, as_float64, as_generator

Definition = Literal["pooled", "componentwise", "segment"]


@dataclass(frozen=True)
class VPTResult:
    """Valid prediction times of a set of forecasts.

    Attributes:
        vpt: in Lyapunov times, ``[B]``.
        vpt_time: in units of time, ``[B]``.
        censored: forecasts valid to the end, whose time is therefore a lower bound,
            ``[B]``.
        mean, std: over the forecasts, in Lyapunov times.
        interval: bootstrap interval of the mean.
        definition, threshold, lyapunov_exponent: what the numbers mean; name them with
            every result.
    """

    vpt: Float[Tensor, " B"]
    vpt_time: Float[Tensor, " B"]
    censored: Bool[Tensor, " B"]
    mean: float
    std: float
    interval: tuple[float, float]
    definition: Definition
    threshold: float
    lyapunov_exponent: float

    @property
    def mean_time(self) -> float:
        """Mean in units of time."""
        return self.mean / self.lyapunov_exponent

    def __str__(self) -> str:
        low, high = self.interval
        text = (
            f"VPT {self.mean:.2f} [{low:.2f}, {high:.2f}] Lyapunov times "
            f"({self.mean_time:.3g} units of time; {len(self.vpt)} starts, "
            f"{self.definition}, threshold {self.threshold:g}, "
            f"exponent {self.lyapunov_exponent:g})"
        )
        late = int(self.censored.sum())
        return f"{text}; {late} valid to the end" if late else text


def vpt(
    u_hat: Array,
    u: Array,
    *,
    dt: float,
    lyapunov_exponent: float,
    threshold: float,
    definition: Definition = "pooled",
    sigma: Array | None = None,
    confidence: float = 0.95,
    seed: int | torch.Generator = 0,
) -> VPTResult:
    """Last time up to which the normalised error stays within the threshold.

    ``VPT = exponent * dt * max {n : E_k <= threshold for all k <= n}``, with one of
    three errors that do not agree:

    - "pooled", the paper's: ``E_n^2 = sum_j (u_hat_j - u_j)^2 / sum_j sigma_j^2``;
    - "componentwise": ``E_n^2 = mean_j ((u_hat_j - u_j) / sigma_j)^2``, as in work on
      random features, which prints the threshold squared (0.09, 0.25);
    - "segment": as "componentwise" with the ``sigma_j`` of each true segment by itself,
      and ``E_n < threshold``.

    A forecast that is not finite has ended.

    Args:
        u_hat: forecasts, ``[T, B, *state]``, the first row at the common start; or
            ``[T, D]`` for a single one.
        u: truth, same shape.
        dt: time between rows.
        lyapunov_exponent: maximal exponent of the system.
        threshold: largest error that counts as valid, e.g. 0.3 (L63), 0.5 (L96, KS).
        definition: see above.
        sigma: standard deviations ``[*state]``; default those of `u` over all rows and
            forecasts. Give those of a long trajectory where `u` is short.
        confidence: level of the bootstrap interval of the mean.
        seed: seed, or generator, of the bootstrap.
    """
    if definition not in ("pooled", "componentwise", "segment"):
        raise ValueError(
            "`definition` must be 'pooled', 'componentwise' or 'segment'; "
            f"got {definition!r}."
        )
    for name, value in (
        ("dt", dt),
        ("lyapunov_exponent", lyapunov_exponent),
        ("threshold", threshold),
    ):
        if not value > 0:
            raise ValueError(f"`{name}` must be positive; got {value}.")
    forecast, truth = as_float64(u_hat, "u_hat"), as_float64(u, "u")
    if forecast.shape != truth.shape or truth.dim() < 2:
        raise ValueError(
            "`u_hat` and `u` must have one shape [T, B, *state]; "
            f"got {list(forecast.shape)} and {list(truth.shape)}."
        )
    if truth.dim() == 2:
        forecast, truth = forecast[:, None], truth[:, None]
    error = normalised_error(forecast, truth, definition=definition, sigma=sigma)
    within = error < threshold if definition == "segment" else error <= threshold
    valid = within.cummin(0).values
    # The start itself counts as valid: times are never negative.
    last = (valid.sum(0) - 1).clamp(min=0)
    times = dt * last.double()
    lyapunov_times = lyapunov_exponent * times
    return VPTResult(
        vpt=lyapunov_times,
        vpt_time=times,
        censored=valid[-1],
        mean=lyapunov_times.mean().item(),
        std=lyapunov_times.std(correction=0).item(),
        interval=bootstrap_interval(lyapunov_times, confidence=confidence, seed=seed),
        definition=definition,
        threshold=threshold,
        lyapunov_exponent=lyapunov_exponent,
    )


def normalised_error(
    u_hat: Float[Tensor, "T B ..."],
    u: Float[Tensor, "T B ..."],
    *,
    definition: Definition = "pooled",
    sigma: Array | None = None,
) -> Float[Tensor, "T B"]:
    """The error of :func:`vpt` at every time; infinity where it is not finite."""
    squares = (u_hat - u).square().flatten(2)
    flat = u.flatten(2)
    if sigma is not None:
        variance = as_float64(sigma, "sigma").square().flatten()
    elif definition == "segment":
        variance = flat.var(0, correction=0)
    else:
        variance = flat.flatten(0, 1).var(0, correction=0)
    if not (variance.sum() > 0 if definition == "pooled" else (variance > 0).all()):
        raise ValueError(
            "`sigma` must be positive: a component of `u` never changes. Give `sigma` "
            "of a longer trajectory."
        )
    if definition == "pooled":
        error = (squares.sum(-1) / variance.sum()).sqrt()
    else:
        error = (squares / variance).mean(-1).sqrt()
    return error.nan_to_num(nan=float("inf"), posinf=float("inf"))


@dataclass(frozen=True)
class LeadTimeError:
    """Error of a set of forecasts against lead time.

    Attributes:
        rmse: root mean square of the normalised error over members still finite,
            ``[T]``; NaN where no member is left.
        finite: share of the members that are finite, ``[T]``: an error that stops
            growing because members were lost is no success.
    """

    rmse: Float[Tensor, " T"]
    finite: Float[Tensor, " T"]


def error_by_lead_time(
    u_hat: Array,
    u: Array,
    *,
    definition: Definition = "pooled",
    sigma: Array | None = None,
) -> LeadTimeError:
    """Root mean square over forecasts of the error of :func:`~wpnode_ext.vpt`.

    Args:
        u_hat, u: forecasts and truth, ``[T, B, *state]``.
        definition: how components are weighted, as in :func:`~wpnode_ext.vpt`.
        sigma: standard deviations ``[*state]``; default those of `u`.
    """
    forecast, truth = _pair(u_hat, u)
    error = normalised_error(forecast, truth, definition=definition, sigma=sigma)
    there = error.isfinite()
    total = error.masked_fill(~there, 0.0).square().sum(1)
    return LeadTimeError(
        rmse=(total / there.sum(1)).sqrt(), finite=there.double().mean(1)
    )


def bootstrap_interval(
    values: Float[Tensor, " B"],
    *,
    confidence: float = 0.95,
    n_resamples: int = 2000,
    seed: int | torch.Generator = 0,
) -> tuple[float, float]:
    """Percentile interval of the mean over resampled values."""
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` must lie between 0 and 1; got {confidence}.")
    draws = torch.randint(
        len(values), (n_resamples, len(values)), generator=as_generator(seed)
    )
    means = values.double()[draws].mean(1)
    tail = (1 - confidence) / 2
    levels = torch.tensor([tail, 1 - tail], dtype=torch.float64)
    low, high = means.quantile(levels).tolist()
    return low, high


def _pair(u_hat: Array, u: Array) -> tuple[Tensor, Tensor]:
    forecast, truth = as_float64(u_hat, "u_hat"), as_float64(u, "u")
    if forecast.shape != truth.shape or truth.dim() < 3:
        raise ValueError(
            "`u_hat` and `u` must have one shape [T, B, *state]; "
            f"got {list(forecast.shape)} and {list(truth.shape)}."
        )
    return forecast, truth
