"""A verdict on a fit: whether to use its field, and why.

Forecasts start from observations as they are, noise included, so that nothing of the
future enters them. They are compared with later observations, at the lead time at which
"nothing changes" and "the mean of the data" err alike: before it the first is hard to
beat, after it the second.
"""

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..data import Series
from ..fields import as_field
from ..fields.base import attached, device_of
from ..metrics import GoodnessOfFit
from ..metrics.hidden_state import HiddenState, find_hidden_state
from ..smoothing import spread_stretches
from ..solvers.exponential import stiff_part
from ..solvers.rollouts import in_dtype, rollout
from ..training.validation import ForecastValidation
from .inputs import inputs_of, running_clocks

if TYPE_CHECKING:
    from .forecaster import Forecaster

Grade = Literal["good", "usable", "do not use"]


@dataclass(frozen=True)
class Criteria:
    """Limits of the grades, and the amount of data behind them.

    Attributes:
        of_use, good: share of the squared error of the better trivial forecast that a
            field must save to be of use, and to be good.
        lost: squared errors count up to this many variances, so that one lost forecast
            does not outweigh all others.
        bounded: share of the long forecasts that must stay in the range of the data.
        reach: half widths from its middle that this range extends.
        outside: share of held-out values beyond the range of the training data from
            which on forecasts of them are extrapolations.
        at_rest: share of the variance of the training data below which held-out data
            judge no forecast.
        noise_like: range of squared residuals, in units of those of noise, that noise
            explains.
        white: smallest p-value of residuals that count as white.
        rtol: tolerance of long forecasts, of which only the range counts.
        numbers: computed at a time; forecasts of large states are fewer and shorter.
        starts, leads: number of short forecasts and most samples of one.
        long_starts, long_steps: the same of long forecasts.
        fraction: share of the data that forecasts are compared with where the settings
            hold out none.
        residual_samples: most samples whose residuals are computed.
    """

    of_use: float = 0.1
    good: float = 0.5
    lost: float = 10.0
    bounded: float = 0.95
    reach: float = 3.0
    outside: float = 0.2
    at_rest: float = 0.01
    noise_like: tuple[float, float] = (0.5, 2.0)
    white: float = 0.01
    rtol: float = 1e-6
    numbers: int = 200_000
    starts: int = 64
    leads: int = 500
    long_starts: int = 16
    long_steps: int = 1000
    fraction: float = 0.1
    residual_samples: int = 20_000


CRITERIA = Criteria()


@dataclass(frozen=True)
class Verdict:
    """The grade of a field, from held-out data, long forecasts and residuals.

    Attributes:
        grade: "good", "usable" or "do not use".
        reason: the reason for the grade.
        lead: time after which forecasts were compared, in the units of the data.
        over_persistence, over_mean: share of the squared error of "nothing changes" and
            of the mean of the training data that forecasts save at `lead`: 1 is
            perfect, 0 or less is of no use.
        better_until: longest lead time up to which forecasts are better than both.
        horizon: longest lead time that was looked at.
        bounded: share of the long forecasts that stay in the range of the data.
        duration: of the long forecasts.
        residuals: squared weak residuals in units of those of noise alone.
        whiteness: p-value of the test that they are white.
        held_out: whether the field was fitted without the data of the forecasts.

    Numbers are None where they could not be computed.
    """

    grade: Grade
    reason: str
    lead: float | None = None
    over_persistence: float | None = None
    over_mean: float | None = None
    better_until: float | None = None
    horizon: float | None = None
    bounded: float | None = None
    duration: float | None = None
    residuals: float | None = None
    whiteness: float | None = None
    held_out: bool = False

    def lines(self) -> tuple[str, str]:
        """The grade with its reason, and the figures behind it."""
        figures = [self._forecasts(), self._bounded(), self._residuals()]
        text = "; ".join(part for part in figures if part)
        return f"{self.grade}: {self.reason}", f"{text or 'nothing was measured'}."

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def summary(self) -> dict[str, Any]:
        """The entries as builtin types; ``Verdict(**summary)`` gives it back."""
        return asdict(self)

    def _forecasts(self) -> str:
        if self.lead is None or self.over_persistence is None or self.over_mean is None:
            return ""
        data = "held-out data" if self.held_out else "data that were trained on"
        saved = (
            f"after {self.lead:.3g} units of time forecasts of {data} save "
            f"{_percent(self.over_persistence)} of the squared error of persistence "
            f"and {_percent(self.over_mean)} of that of the mean of the data"
        )
        if self.better_until is None or self.horizon is None:
            return saved
        if self.better_until >= self.horizon:
            return f"{saved}, and are better than both to the end ({self.horizon:.3g})"
        return f"{saved}, and are better than both up to {self.better_until:.3g}"

    def _bounded(self) -> str:
        if self.bounded is None:
            return ""
        share = "no" if self.bounded == 0 else _percent(self.bounded) + " of"
        return (
            f"{share} forecasts over {self.duration:.3g} units of time stay in the "
            "range of the data"
        )

    def _residuals(self) -> str:
        if self.residuals is None:
            return ""
        low, high = CRITERIA.noise_like
        if self.residuals > high:
            return f"squared residuals are {self.residuals:.3g} times those of noise"
        if self.residuals < low:
            return "residuals are smaller than noise"
        if self.whiteness is None or self.whiteness >= CRITERIA.white:
            return "residuals look like noise"
        return "residuals are as large as noise, but correlated"


def judge_fit(
    field: nn.Module,
    training: Series,
    held_out: Series,
    *,
    probe: nn.Module | None = None,
    clock: Float[Tensor, " N"] | None = None,
    goodness: Callable[[], GoodnessOfFit | None] = lambda: None,
    unseen: bool = True,
    complaint: str = "",
) -> Verdict:
    """The verdict on a field in the units of the data.

    Args:
        field: the field, called as ``field(t, u)``.
        training: observations it was fitted to.
        held_out: those its forecasts are compared with.
        probe: a field fitted without the held-out data, where `field` has seen them;
            short forecasts are made with it.
        clock: times of the held-out samples for a field with inputs, which has them
            attached; long forecasts are left out then.
        goodness: returns the goodness of fit to the observations, or None.
        unseen: whether `probe`, or else `field`, has not seen the held-out data.
        complaint: a known reason not to use the field, or "".
    """
    mean, spread = training.mean_and_spread()
    if not (spread > 0).any():
        return Verdict("do not use", "the data do not change")
    known: dict[str, Any] = {"held_out": unseen}
    fit = goodness()
    if fit is not None:
        known |= {"residuals": fit.ratio, "whiteness": fit.p_value}
    if clock is None:
        known |= _long_forecasts(field, training)
    try:
        short = _short_forecasts(probe or field, held_out, clock, mean, spread)
    except ValueError as error:
        if complaint:
            return Verdict("do not use", complaint, **known)
        return Verdict("usable", f"forecasts could not be judged: {error}", **known)
    crossing = short.pop("samples")
    known |= short
    hidden = None
    if complaint or not _saved(known) >= CRITERIA.good:
        hidden = find_hidden_state(training, lag=crossing)
    if complaint:
        reasons = [complaint, *([str(hidden)] if hidden and hidden.likely else [])]
        return Verdict("do not use", "; ".join(reasons), **known)
    grade, reason = _grade(known, training, held_out, hidden)
    return Verdict(grade, reason, **known)


class PoorFit(UserWarning):
    """A fit whose verdict is "do not use"."""


def warn_of(verdict: Verdict) -> None:
    """Warns of a field that is not to be used."""
    if verdict.grade == "do not use":
        warnings.warn(
            f"the fitted model should not be used: {verdict.reason}. See "
            "`model.verdict_`.",
            PoorFit,
            stacklevel=4,
        )


def _grade(
    known: dict[str, Any],
    training: Series,
    held_out: Series,
    hidden: HiddenState | None,
) -> tuple[Grade, str]:
    """The grade and its reasons, the gravest first."""
    saved, still = _saved(known), _at_rest(training, held_out)
    outside = _outside(training, held_out)
    partly = hidden is not None and hidden.likely
    if not still and not saved >= CRITERIA.of_use:
        shares = {
            "an unchanged state": known["over_persistence"],
            "the mean of the data": known["over_mean"],
        }
        unbeaten = [
            name for name, share in shares.items() if not share >= CRITERIA.of_use
        ]
        reason = f"forecasts are no better than {' and '.join(unbeaten)}"
        return "do not use", f"{reason}; {hidden}" if partly else reason
    if partly:
        return "do not use", str(hidden)
    reasons = []
    if still:
        reasons.append("the held-out data are at rest and judge no forecast")
    if outside > CRITERIA.outside:
        reasons.append(
            f"{_percent(outside)} of the held-out values lie beyond the range of the "
            "training data: forecasts there are extrapolations"
        )
    elif known.get("bounded") is not None and known["bounded"] < CRITERIA.bounded:
        lost = 1 - known["bounded"]
        share = "all" if lost == 1 else f"{_percent(lost)} of the"
        reasons.append(f"{share} long forecasts leave the range of the data")
    if not still and saved < CRITERIA.good:
        reasons.append(f"forecasts save only {_percent(saved)} of the error")
    ratio = known.get("residuals")
    if (
        ratio is not None
        and ratio > CRITERIA.noise_like[1]
        and saved < 1 - CRITERIA.of_use
    ):
        reasons.append("residuals are larger than the noise: the field misses dynamics")
    if reasons:
        return "usable", "; ".join(reasons)
    return "good", "forecasts are far better than persistence and the mean of the data"


def _saved(known: dict[str, Any]) -> float:
    """Share of the squared error of the better trivial forecast that is saved."""
    return min(known["over_persistence"], known["over_mean"])


def _short_forecasts(
    field: nn.Module,
    held_out: Series,
    clock: Tensor | None,
    mean: Float[Tensor, " D"],
    spread: Float[Tensor, " D"],
) -> dict[str, Any]:
    """Errors of forecasts and of the trivial ones, at the lead where those err alike.

    Besides entries of the verdict ``samples``, that lead in samples.
    """
    size = held_out.state_shape.numel()
    starts = max(4, min(CRITERIA.starts, CRITERIA.numbers // size))
    most = max(1, min(CRITERIA.leads, 100 * CRITERIA.numbers // (starts * size)))
    record = held_out.to(torch.float64)
    if clock is not None:
        record = record.at_times(clock)
    horizon = max(1, min(most, record.longest_run // 4))
    validate = ForecastValidation(record, starts=starts, horizon=horizon)
    u_hat, u, begun, lengths = (x.cpu() for x in validate.forecasts(field))
    varies = spread > 0

    def error(guess: Tensor) -> Float[Tensor, " H"]:
        squares = ((guess - u).flatten(2) / spread)[:, :, varies].square().mean(2)
        return (
            squares.nan_to_num(nan=CRITERIA.lost, posinf=CRITERIA.lost)
            .clamp(max=CRITERIA.lost)
            .mean(1)
        )

    model, still = error(u_hat), error(begun.expand_as(u))
    trivial = error(mean.reshape(u.shape[2:]).expand_as(u))
    crossed = (still >= trivial).nonzero().flatten()
    at = int(crossed[0]) if len(crossed) else len(u) - 1
    leads = lengths.mean(1).cumsum(0)
    worse = (model >= torch.minimum(still, trivial)).nonzero().flatten()
    # Noise in the start weighs as much in a forecast as in persistence: before the two
    # trivial forecasts err alike the first samples decide nothing.
    worse = worse[worse >= at]
    end = int(worse[0]) - 1 if len(worse) else len(u) - 1
    tiny = torch.finfo(torch.float64).eps
    return {
        "lead": leads[at].item(),
        "over_persistence": 1 - (model[at] / still[at].clamp(min=tiny)).item(),
        "over_mean": 1 - (model[at] / trivial[at].clamp(min=tiny)).item(),
        "better_until": leads[end].item() if end >= 0 else 0.0,
        "horizon": leads[-1].item(),
        "samples": at + 1,
    }


def _long_forecasts(field: nn.Module, training: Series) -> dict[str, float]:
    """Share of the long forecasts that stay in the range of the data."""
    size = training.state_shape.numel()
    count = max(4, min(CRITERIA.long_starts, CRITERIA.numbers // size))
    steps = max(50, min(CRITERIA.long_steps, 100 * CRITERIA.numbers // (count * size)))
    seen = (~training.missing).nonzero().flatten()
    chosen = torch.linspace(0, len(seen) - 1, min(count, len(seen))).round().long()
    start = training.v[seen[chosen]].double().to(device_of(field))
    times = training.times
    dt = training.dt or _steps(training).median().item()
    known = training.v[seen].double().flatten(1)
    low, high = known.amin(0), known.amax(0)
    middle, half = (low + high) / 2, (high - low) / 2
    reach = CRITERIA.reach * torch.where(half > 0, half, middle.abs().clamp(min=1e-12))
    t = times[0] + dt * torch.arange(steps + 1, dtype=torch.float64)
    bound = (middle.abs() + reach).max().item()
    stiff = stiff_part(field, t[0], start.mean(0), dt) is not None
    method = "etdrk4" if stiff else "rk4_classic"
    inside = torch.zeros(len(start), dtype=torch.bool)
    for solver in (method, "dopri5"):
        # Steps of the samples may be too long for a field that is sound.
        left = (~inside).nonzero().flatten()
        if len(left) == 0:
            break
        there = start[left.to(start.device)]
        found = rollout(field, there, t, method=solver, rtol=CRITERIA.rtol, bound=bound)
        path = found.u.cpu().flatten(2)
        kept = ((path - middle).abs() <= reach).all(2).all(0)
        inside[left] = kept & ~found.diverged.cpu()
    return {"bounded": inside.double().mean().item(), "duration": dt * steps}


def _at_rest(training: Series, held_out: Series) -> bool:
    """True if held-out data hardly vary where the training data do."""
    _, spread = training.mean_and_spread()
    _, left = held_out.mean_and_spread()
    varies = spread > 0
    return bool((left / spread)[varies].square().mean() < CRITERIA.at_rest)


def _outside(training: Series, held_out: Series) -> float:
    """Share of held-out values beyond the range of the training data."""
    seen = training.v[~training.missing].double().flatten(1)
    new = held_out.v[~held_out.missing].double().flatten(1)
    low, high = seen.amin(0), seen.amax(0)
    beyond = (new < low) | (new > high)
    return beyond[:, high > low].double().mean().item()


def _steps(series: Series) -> Float[Tensor, " n"]:
    steps = series.times.diff()
    return steps[steps > 0]


def _percent(share: float) -> str:
    if not share > 0:
        return "nothing"
    return f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"


def verdict_from(stored: dict[str, Any] | None) -> Verdict | None:
    """The verdict of :meth:`Verdict.summary`; None of None."""
    return None if stored is None else Verdict(**stored)


def judge_model(
    model: "Forecaster",
    series: Series,
    held_out: Series | None = None,
    *,
    probe: nn.Module | None = None,
    complaint: str = "",
) -> Verdict:
    """The verdict on a fitted model.

    Args:
        model: the model.
        series: observations it was fitted to.
        held_out: those it was not fitted to; by default the end of `series`.
        probe: its field fitted without that end, in scaled coordinates.
        complaint: a known reason not to use the model, or "".
    """
    unseen = held_out is not None or probe is not None
    training = series
    if held_out is None:
        fraction = model.config_.validation.fraction or CRITERIA.fraction
        try:
            training, held_out = series.split(fraction)
        except ValueError as error:
            return Verdict("usable", f"forecasts could not be judged: {error}")
    clock = inputs = None
    if model.forcing_scaler_ is not None:
        clock = running_clocks([held_out])[0]
        inputs = inputs_of(held_out, clock, model.forcing_scaler_)
    fields = [model.field_] if probe is None else [model.field_, probe]
    with ExitStack() as inputs_attached:
        for field in fields:
            inputs_attached.enter_context(attached(field, inputs))
        physical = [
            as_field(in_dtype(model.scaler_.to_physical(f), torch.float64))
            for f in fields
        ]
        return judge_fit(
            physical[0],
            training,
            held_out,
            probe=physical[-1],
            clock=clock,
            goodness=partial(_residuals, model, series),
            unseen=unseen,
            complaint=complaint,
        )


def _residuals(model: "Forecaster", series: Series) -> GoodnessOfFit | None:
    """Goodness of fit to part of the observations; None where it is not defined."""
    length = max(1000, 20 * (model.config_.weak.ell + 1))
    part = series.cut(spread_stretches(series, CRITERIA.residual_samples, length))
    try:
        return model.goodness_of_fit(part)
    except (NotImplementedError, RuntimeError, ValueError):
        # Irregular times, no noise, too few segments, or a field without a derivative.
        return None
