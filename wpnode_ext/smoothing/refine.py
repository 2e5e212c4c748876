"""Field and states refined together: fit, smooth, fit again.

The first states come from local polynomials and the data, the first field from the
caller's `fit`. Then the states are smoothed with the field, and the field is improved:
by the step of :mod:`.projected` where it is linear in what is learned, else by `fit` on
the states. A share of the observations is kept from both; they decide when to stop, and
how far the model is believed.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..common.typing import Array, Field
from ..data import Series, as_series
from ..fields.linear import LinearField
from .first_states import NEGLIGIBLE_NOISE, first_states, is_negligible
from .gaps import ended_at, long_gaps, smooth_around_gaps, without
from .gauss_newton import StepFailed
from .held_out import Watch, hide_values, spread_stretches
from .projected import ProjectedStep
from .rounds import TOLERANCE, Fit, Round, Rounds, is_wide, record
from .wide import WideStep

Update = Literal["auto", "projected", "fit"]

# Process noise of the rounds, in units of the noise. Fits to smoothed states approach
# their limit slowly and need many more rounds than the projected steps do.
PROJECTED_SCHEDULE = (0.1, 0.03, 0.01, 0.01, 0.01)
# The less process noise, the more products conjugate gradients take.
WIDE_SCHEDULE = (0.1, *[0.03] * 6)
FIT_SCHEDULE = (0.1, 0.05, 0.025, 0.015, *[0.01] * 16)


@dataclass(frozen=True)
class Refinement:
    """Field and states after the rounds.

    Attributes:
        field: the field of the best round.
        states: states smoothed with it from all observations, ``[N, *state]``.
        std: their error bars, ``[N, *state]``; where rounds were projected, errors of
            the field are in them. The noise where the field has no finite steps, and
            the states remain what they were.
        sigma: noise per component, ``[*state]``.
        process_noise: error of the field's steps that the states were smoothed with,
            in units of `sigma`.
        first_states: what the rounds began with, ``[N, *state]``.
        history: one entry a round.
        best: entry of `history` that judged the field, the first fit being judged by
            entry 0; their number for a field that came after all of them.
        reason: why the rounds ended.
        failure: what makes the field useless, "" if nothing does.
        likely: where rounds were projected, what the data say about the coefficients;
            ``likely.draw(n)`` gives others that suit them as well.
        evidence: logarithm of the density of the observations the rounds worked on, in
            units of their noise and up to a constant, states and coefficients being
            integrated out; fields are compared by it. None where it was not asked for
            or is not known: rounds must be projected, on at most a thousand unknowns,
            and there must be noise.
        again: where rounds were projected, ``again(series, states)`` improves the field
            once more, from another part of the observations and the states there;
            StepFailed where it cannot.
    """

    field: Field
    states: Float[Tensor, "N ..."]
    std: Float[Tensor, "N ..."]
    sigma: Float[Tensor, "..."]
    process_noise: float
    first_states: Float[Tensor, "N ..."]
    history: list[Round]
    best: int
    reason: str
    failure: str = ""
    likely: ProjectedStep | WideStep | None = None
    evidence: float | None = None
    again: Callable[[Series, Tensor], Field] | None = None

    @property
    def judged(self) -> Round:
        """The round that tells most about the field."""
        return self.history[min(self.best, len(self.history) - 1)]


def refine(
    v: Array | Series,
    fit: Fit,
    *,
    dt: float | None = None,
    t: Array | None = None,
    mask: Array | None = None,
    sigma: Array | float | None = None,
    update: Update = "auto",
    schedule: Sequence[float] | None = None,
    held_out: float = 0.05,
    max_iterations: int = 3,
    substeps: int = 1,
    window: int = 1000,
    overlap: int = 200,
    samples: int | None = None,
    evidence: bool = False,
    seed: int | torch.Generator = 0,
    progress: Callable[[int, Round], None] | None = None,
) -> Refinement:
    """Learns a field and the states it passes through, from noisy observations.

    Args:
        v: observations, ``[N, *state]`` with NaN where missing, or a
            :class:`~wpnode_ext.data.Series`.
        fit: the field that suits given states ``[N, *state]``, which include values
            for missing samples; for instance a closed-form weak fit.
        dt, t, mask: as in :func:`~wpnode_ext.data.make_series`.
        sigma: noise per component; estimated by default.
        update: how rounds improve the field. "projected": maximum likelihood with the
            states eliminated, for a :class:`~wpnode_ext.fields.LinearField`; "fit": the
            callback again; "auto": the first where it applies.

    Other Args:
        schedule: process noise of each round, in units of sigma.
        held_out: share of the values kept from smoother and field. When their error
            rises by two standard errors above its least, the model is believed less
            again; when it still does, the rounds end.
        max_iterations: Gauss-Newton steps of the smoother in a round.
        substeps, window, overlap: as in :func:`smooth_states`.
        samples: most samples that projected rounds work on, in stretches spread over
            the record; all by default. States are found for all of them in the end.
        evidence: whether that of the field is computed.
        seed: of the choice of held-out values.
        progress: called with the number and the record of every round.
    """
    series = as_series(v, dt=dt, t=t, mask=mask)
    if update not in ("auto", "projected", "fit"):
        raise ValueError(
            f"`update` must be 'auto', 'projected' or 'fit'; got {update!r}."
        )
    start = first_states(series, sigma)
    noise, field = start.sigma, fit(start.states)
    projected = update != "fit" and isinstance(field, LinearField)
    projected = projected and getattr(field, "forcing_dim", 0) == 0
    if update == "projected" and not projected:
        raise ValueError(
            "`update='projected'` must come with a `fit` that returns a LinearField "
            f"without forcing; got {type(field).__name__}."
        )
    wide = False
    if projected:
        assert isinstance(field, LinearField)
        wide = is_wide(field, start.states)
    if schedule is None:
        schedule = WIDE_SCHEDULE if wide else PROJECTED_SCHEDULE
        schedule = schedule if projected else FIT_SCHEDULE
    size = series.v.double().reshape(series.n_samples, -1).std(0)
    # Components that never change, or have no noise, are still measured in some unit.
    unit = torch.where(size > 0, size, 1.0).reshape(noise.shape)
    least = torch.maximum(noise, NEGLIGIBLE_NOISE * unit)
    options = {"sigma": least, "substeps": substeps}
    options |= {"window": window, "overlap": overlap}
    if is_negligible(noise, series):
        states, std = series.v.double(), noise.expand(series.v.shape).clone()
        if series.mask is not None:
            # What is missing is what the field says.
            error = schedule[-1] * least
            seen = smooth_around_gaps(
                field, series, start, process_noise=error, **options
            )
            assert seen.std is not None
            states = torch.where(series.mask, seen.states, states)
            std = torch.where(series.mask, seen.std, std)
        return Refinement(
            field=field,
            states=states,
            std=std,
            sigma=noise,
            process_noise=schedule[-1],
            first_states=start.states,
            history=[],
            best=0,
            reason="the data have no noise to remove",
        )
    noise = least
    rounds = Rounds(fit, projected, wide, options)
    cut = partial(_parts, width=start.width, samples=samples, projected=projected)
    whole, series, states = cut(series, start.states)
    hidden = hide_values(series, held_out, seed)
    kept = replace(series, mask=hidden if series.mask is None else series.mask | hidden)
    history, watch = [], Watch()
    best_field, best, best_level, best_states = deepcopy(field), 0, schedule[0], states
    reason, level, levels = "the schedule ended", schedule[0], list(schedule)
    while levels:
        level = levels.pop(0)
        found = rounds.smooth(field, kept, level, states, max_iterations)
        errors = ((series.v.double() - found.states) / noise)[hidden].square()
        row = record(level, found, states, noise, errors)
        verdict, states = watch.judge(errors), found.states
        if verdict == "better":
            best_field, best_level, best_states = deepcopy(field), level, states
            best = len(history)
        failure = ""
        if verdict != "worse":
            try:
                field, effective = rounds.improve(field, kept, level, states)
                row = replace(row, effective=effective)
            except StepFailed as error:
                failure = str(error)
        history.append(row)
        if progress is not None:
            progress(len(history), row)
        if failure:
            reason = failure
            break
        if verdict == "worse":
            states = best_states
            if level >= best_level:
                reason = "held-out observations were predicted worse"
                break
            # The field may be better all the same, and only not as good as that.
            levels = [best_level] * max(2, len(levels))
    else:
        # Nothing speaks against the last field; all observations improve it once more.
        best, best_level = len(history), level
        states = rounds.smooth(field, series, best_level, states, max_iterations).states
        best_field = field
        try:
            best_field, _ = rounds.improve(field, series, best_level, states)
        except StepFailed as error:
            reason += f"; the last step failed: {error}"
    likely, variance, parted = None, torch.zeros(()), states
    if whole is not series:
        # What the coefficients' errors do to states is much the same all over.
        likely, variance = rounds.doubt(best_field, series, best_level, states)
        variance, states = variance.mean(0), start.states
    final = smooth_around_gaps(
        best_field,
        whole,
        replace(start, states=states),
        process_noise=best_level * noise,
        tolerance=TOLERANCE,
        **options,
    )
    assert final.std is not None
    if projected and whole is series:
        parted = final.states
        likely, variance = rounds.doubt(best_field, series, best_level, parted)

    def again(part: Series, states: Tensor) -> Field:
        _, part, states = cut(part, states)
        return rounds.improve(deepcopy(best_field), part, best_level, states)[0]

    known = None
    if evidence:
        known = rounds.evidence(best_field, series, best_level, parted)
    std = (final.std.square() + variance).sqrt()
    lost = ~std.isfinite()
    return Refinement(
        field=best_field,
        states=final.states,
        std=torch.where(lost, noise, std),
        sigma=noise,
        process_noise=best_level,
        first_states=start.states,
        history=history,
        best=best,
        reason=reason,
        failure="steps of the field from the states are not finite"
        if lost.any()
        else "",
        likely=likely,
        evidence=known,
        again=again if projected else None,
    )


def _parts(
    series: Series,
    states: Float[Tensor, "N ..."],
    *,
    width: int,
    samples: int | None,
    projected: bool,
) -> tuple[Series, Series, Float[Tensor, "N ..."]]:
    """The record ended at its long gaps, the part rounds work on, and states there."""
    gaps = long_gaps(series, width)
    whole = series = ended_at(series, gaps)
    if projected and gaps:
        pieces = without(series, gaps)
        series, states = series.cut(pieces), replace(series, v=states).cut(pieces).v
    if projected and samples is not None and samples < series.n_samples:
        pieces = spread_stretches(series, samples)
        series, states = series.cut(pieces), replace(series, v=states).cut(pieces).v
    return whole, series, states
