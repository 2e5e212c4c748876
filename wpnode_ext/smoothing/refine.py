"""Field and states refined together: fit, smooth, fit again.

The first states come from local polynomials and the data, the first field from the
caller's `fit`. Each round smooths the states with the field, then improves the field:
by the step of :mod:`.projected` if it is linear in its coefficients, else by `fit` on
the states. Neither sees a held-out share of the observations, which decides when to
stop and how much process noise the model has.
"""

import dataclasses
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..common.arrays import Array, Field
from ..data import Series, as_series
from ..fields.linear import LinearField
from .first_states import LocalFit, first_states, is_negligible, least_noise
from .gaps import ended_at, long_gaps, smooth_around_gaps, without
from .gauss_newton import StepFailed
from .projected import ProjectedStep
from .rounds import TOLERANCE, Fit, Round, Rounds, Watch, hide_values, is_wide
from .smoother import SmoothedStates
from .wide import WideStep

Update = Literal["auto", "projected", "fit"]
Progress = Callable[[int, Round], None]

# Process noise of the rounds, in units of the noise. Fits to smoothed states converge
# slowly and need many more rounds than projected steps.
PROJECTED_SCHEDULE = (0.1, 0.03, 0.01, 0.01, 0.01)
# Conjugate gradients take more products the smaller the process noise is.
WIDE_SCHEDULE = (0.1, *[0.03] * 6)
FIT_SCHEDULE = (0.1, 0.05, 0.025, 0.015, *[0.01] * 16)
NOT_FINITE = "steps of the field from the states are not finite"


@dataclass(frozen=True)
class RefineSettings:
    """Settings of :func:`refine`.

    Attributes:
        update: how rounds improve the field. "projected": maximum likelihood with the
            states eliminated, for a :class:`~wpnode_ext.fields.LinearField` without
            inputs; "fit": the callback again; "auto": the first where it applies.
        schedule: process noise of each round, in units of sigma; by default at most
            five rounds for projected steps (seven for fields of more than a thousand
            unknowns), else twenty.
        settled: change of the states, in units of sigma, below which projected steps
            leave out further rounds with the same process noise. The default is a tenth
            of the least error of states; each step changes them far less than the one
            before.
        held_out: share of the values that smoother and field do not see. When their
            error rises by two standard errors above its least, the process noise
            returns to that of the best round; when it rises there too, the rounds end.
        max_iterations: Gauss-Newton steps of the smoother in a round.
        substeps, window, overlap: as in :class:`.smoother.Smoothing`.
        samples: most samples that projected rounds use, in stretches spread over the
            record; all by default. The final states cover the whole record.
        error_bars: whether error bars and the distribution of the coefficients are
            computed; :meth:`Refinement.with_error_bars` adds them later.
        evidence: whether the evidence of the field is computed.
        seed: seed of the choice of held-out values.
    """

    update: Update = "auto"
    schedule: Sequence[float] | None = None
    settled: float = 1e-2
    held_out: float = 0.05
    max_iterations: int = 3
    substeps: int = 1
    window: int = 1000
    overlap: int = 200
    samples: int | None = None
    error_bars: bool = True
    evidence: bool = False
    seed: int | torch.Generator = 0

    def __post_init__(self) -> None:
        if self.update not in ("auto", "projected", "fit"):
            raise ValueError(
                f"`update` must be 'auto', 'projected' or 'fit'; got {self.update!r}."
            )


@dataclass(frozen=True)
class Refinement:
    """Field and states after the rounds.

    Attributes:
        field: the field of the best round.
        states: states smoothed with it from all observations, ``[N, *state]``.
        std: their error bars, ``[N, *state]``, or None. If rounds were projected, they
            include errors of the field. They equal the noise where the field has no
            finite steps and the states remain unchanged.
        sigma: noise per component, ``[*state]``.
        process_noise: error of the field's steps that the states were smoothed with,
            in units of `sigma`.
        first_states: the states before the first round, ``[N, *state]``.
        history: one entry for each round.
        best: index of the entry of `history` that judged the field (entry 0 judged the
            first fit); ``len(history)`` if the field came after all rounds.
        reason: why the rounds ended.
        failure: why the field is useless, or "".
        likely: distribution of the coefficients if rounds were projected and error bars
            requested, else None; ``likely.draw(n)`` draws from it.
        evidence: logarithm of the density of the observations that the rounds used, in
            units of their noise and up to a constant, with states and coefficients
            integrated out. It compares fields. None if it was not requested, if rounds
            were not projected, for more than a thousand unknowns, or without noise.
    """

    field: Field
    states: Float[Tensor, "N ..."]
    std: Float[Tensor, "N ..."] | None
    sigma: Float[Tensor, "..."]
    process_noise: float
    first_states: Float[Tensor, "N ..."]
    history: list[Round]
    best: int
    reason: str
    failure: str = ""
    likely: ProjectedStep | WideStep | None = None
    evidence: float | None = None
    _task: "_Task | None" = dataclasses.field(default=None, repr=False)

    @property
    def judged(self) -> Round:
        """The round whose figures describe the field best."""
        return self.history[min(self.best, len(self.history) - 1)]

    @property
    def projected(self) -> bool:
        """Whether rounds improved the field by projected steps."""
        return self._task is not None and self._task.rounds.update != "fit"

    def again(self, series: Series, states: Tensor) -> Field:
        """The field after one more projected step, from other observations.

        Args:
            series: a part of the observations.
            states: states at their samples.

        Raises:
            StepFailed: the step cannot be made.
        """
        if self._task is None or not self.projected:
            raise StepFailed("the field was not improved by projected steps")
        part, states = self._task.part_of(series, states)
        rounds, found = self._task.rounds, deepcopy(self.field)
        return rounds.improve(found, part, self.process_noise, states)[0]

    def with_error_bars(self) -> "Refinement":
        """This refinement with `std` and `likely`."""
        if self._task is None or self.std is not None:
            return self
        found = self._task.smooth_all(
            self.field, self.process_noise, self.states, error_bars=True, steps=0
        )
        assert found.std is not None
        return self._with(found.std)

    def _with(self, std: Float[Tensor, "N ..."]) -> "Refinement":
        """This refinement with error bars, given those of states for a fixed field."""
        task, likely, variance = self._task, None, torch.zeros(())
        assert task is not None
        if self.projected:
            likely, variance = task.rounds.likely(
                self.field, task.part, self.process_noise, task.states
            )
            if task.part is not task.whole:
                # Errors of the coefficients have similar effects on all states.
                variance = variance.mean(0)
        std = (std.square() + variance).sqrt()
        lost = ~std.isfinite()
        failure = NOT_FINITE if lost.any() else self.failure
        std = torch.where(lost, self.sigma, std)
        return replace(self, std=std, likely=likely, failure=failure)


def refine(
    v: Array | Series,
    fit: Fit,
    *,
    dt: float | None = None,
    t: Array | None = None,
    mask: Array | None = None,
    sigma: Array | float | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Refinement:
    """Learns a field and its states from noisy observations.

    Args:
        v: observations, ``[N, *state]`` with NaN where missing, or a
            :class:`~wpnode_ext.data.Series`.
        fit: function that fits a field to states ``[N, *state]``, which include values
            for missing samples; for instance a closed-form weak fit.
        dt, t, mask: as in :func:`~wpnode_ext.data.make_series`.
        sigma: noise per component; estimated by default.
        progress: called with the number and the record of every round.
        **settings: the fields of :class:`RefineSettings`: `update`, `schedule`,
            `settled`, `held_out`, `max_iterations`, `substeps`, `window`, `overlap`,
            `samples`, `error_bars`, `evidence`, `seed`.
    """
    how = RefineSettings(**settings)
    series = as_series(v, dt=dt, t=t, mask=mask)
    return refine_series(series, fit, first_states(series, sigma), how, progress)


def refine_series(
    series: Series,
    fit: Fit,
    first: LocalFit,
    settings: RefineSettings,
    progress: Progress | None = None,
) -> Refinement:
    """:func:`refine` from given first states.

    Args:
        series: the observations.
        fit: as in :func:`refine`.
        first: first states and noise, see :func:`.first_states.first_states`.
        settings: see :class:`RefineSettings`.
        progress: as in :func:`refine`.
    """
    found = fit(first.states)
    update = _update_of(found, first.states, settings.update)
    noise = least_noise(series, first.sigma)
    rounds = Rounds(
        fit, update, noise, settings.substeps, settings.window, settings.overlap
    )
    task = _Task.of(rounds, series, first, settings)
    schedule = settings.schedule
    if schedule is None:
        named = {"projected": PROJECTED_SCHEDULE, "wide": WIDE_SCHEDULE}
        schedule = named.get(update, FIT_SCHEDULE)
    if is_negligible(first.sigma, series):
        return _without_noise(task, found, schedule[-1])
    return _concluded(task, _run(task, found, list(schedule), progress))


def _update_of(
    field: Field, states: Tensor, asked: Update
) -> Literal["fit", "projected", "wide"]:
    """The kind of step that improves a field."""
    linear = isinstance(field, LinearField) and field.forcing_dim == 0
    if asked == "projected" and not linear:
        raise ValueError(
            "`update='projected'` must come with a `fit` that returns a LinearField "
            f"without forcing; got {type(field).__name__}."
        )
    if asked == "fit" or not linear:
        return "fit"
    assert isinstance(field, LinearField)
    return "wide" if is_wide(field, states) else "projected"


@dataclass(frozen=True)
class _Task:
    """Data of a refinement: the whole record and the part that rounds use.

    Attributes:
        rounds: both halves of a round.
        whole: the record, ended at its long gaps.
        first: first states and noise.
        settings: settings of the refinement.
        part, states: the part of the record that the rounds use, and its states.
    """

    rounds: Rounds
    whole: Series
    first: LocalFit
    settings: RefineSettings
    part: Series
    states: Float[Tensor, "M ..."]

    @classmethod
    def of(
        cls, rounds: Rounds, series: Series, first: LocalFit, settings: RefineSettings
    ) -> "_Task":
        whole = ended_at(series, long_gaps(series, first.width))
        task = cls(rounds, whole, first, settings, whole, first.states)
        part, states = task.part_of(whole, first.states)
        return replace(task, part=part, states=states)

    def part_of(
        self, series: Series, states: Float[Tensor, "N ..."]
    ) -> tuple[Series, Float[Tensor, "M ..."]]:
        """The part of some observations that rounds use, and its states."""
        gaps = long_gaps(series, self.first.width)
        samples = self.settings.samples
        if self.rounds.update == "fit":
            return ended_at(series, gaps), states
        if gaps:
            series, states = _cut(series, states, without(series, gaps))
        if samples is not None and samples < series.n_samples:
            series, states = _cut(series, states, spread_stretches(series, samples))
        return series, states

    def smooth_all(
        self,
        field: Field,
        level: float,
        start: Float[Tensor, "N ..."],
        *,
        error_bars: bool,
        steps: int = 10,
    ) -> SmoothedStates:
        """States of the whole record."""
        rounds = self.rounds
        return smooth_around_gaps(
            field,
            self.whole,
            replace(self.first, states=start),
            sigma=rounds.sigma,
            process_noise=level * rounds.sigma,
            error_bars=error_bars,
            max_iterations=steps,
            tolerance=TOLERANCE,
            substeps=rounds.substeps,
            window=rounds.window,
            overlap=rounds.overlap,
        )


@dataclass
class _Course:
    """The best round so far and the figures of all rounds.

    Attributes:
        field, level, states: of the best round: field, process noise, and the states
            of the part that rounds use.
        best: its number.
        history: one entry for each round.
        reason: why the rounds ended.
    """

    field: Field
    level: float
    states: Float[Tensor, "M ..."]
    best: int = 0
    history: list[Round] = dataclasses.field(default_factory=list)
    reason: str = "the schedule ended"


def _run(
    task: _Task, field: Field, levels: list[float], progress: Progress | None
) -> _Course:
    """The rounds: smooth, compare held-out values, improve."""
    rounds, how, part = task.rounds, task.settings, task.part
    hidden = hide_values(part, how.held_out, how.seed)
    kept = replace(part, mask=hidden if part.mask is None else part.mask | hidden)
    states, level, watch = task.states, levels[0], Watch()
    course = _Course(deepcopy(field), level, states)
    while levels:
        level, before = levels.pop(0), states
        found = rounds.smooth(field, kept, level, states, how.max_iterations)
        states = found.states
        errors = ((part.v.double() - states) / rounds.sigma)[hidden].square()
        verdict = watch.judge(errors)
        if verdict == "better":
            course.field, course.level, course.states = deepcopy(field), level, states
            course.best = len(course.history)
        effective, failure = None, ""
        if verdict != "worse":
            try:
                field, effective = rounds.improve(field, kept, level, states)
            except StepFailed as error:
                failure = str(error)
        row = _figures(level, found, (states - before) / rounds.sigma, errors)
        course.history.append(replace(row, effective=effective))
        if progress is not None:
            progress(len(course.history), course.history[-1])
        if failure:
            course.reason = failure
            return course
        if verdict == "worse":
            if level >= course.level:
                course.reason = "held-out observations were predicted worse"
                return course
            # The field may be better, but is not accurate to that level.
            states, levels = course.states, [course.level] * max(2, len(levels))
        elif rounds.update == "projected" and course.history[-1].change < how.settled:
            while levels and levels[0] == level:
                levels.pop(0)
    _improve_with_all(task, course, field, level, states)
    return course


def _improve_with_all(
    task: _Task, course: _Course, field: Field, level: float, states: Tensor
) -> None:
    """Makes the last field the best one, after a step from all observations."""
    rounds, part = task.rounds, task.part
    steps = task.settings.max_iterations
    states = rounds.smooth(field, part, level, states, steps).states
    course.best, course.level, course.states = len(course.history), level, states
    course.field = field
    try:
        course.field, _ = rounds.improve(field, part, level, states)
    except StepFailed as error:
        course.reason += f"; the last step failed: {error}"


def _figures(
    level: float, found: SmoothedStates, change: Tensor, errors: Tensor
) -> Round:
    return Round(
        process_noise=level,
        innovation=found.innovation.square().mean().sqrt().item(),
        held_out=errors.mean().item(),
        change=change.square().mean().sqrt().item(),
        effective=None,
        converged=found.converged.double().mean().item(),
    )


def _concluded(task: _Task, course: _Course) -> Refinement:
    """The refinement, with states of the whole record and the requested extras."""
    rounds, how, level = task.rounds, task.settings, course.level
    complete = task.part is task.whole
    start = course.states if complete else task.first.states
    found = task.smooth_all(course.field, level, start, error_bars=how.error_bars)
    task = replace(task, states=found.states if complete else course.states)
    evidence = None
    if how.evidence:
        evidence = rounds.evidence(course.field, task.part, level, task.states)
    result = Refinement(
        field=course.field,
        states=found.states,
        std=None,
        sigma=rounds.sigma,
        process_noise=level,
        first_states=task.first.states,
        history=course.history,
        best=course.best,
        reason=course.reason,
        failure=NOT_FINITE if evidence == -inf else "",
        evidence=evidence,
        _task=task,
    )
    return result if found.std is None else result._with(found.std)


def _without_noise(task: _Task, field: Field, level: float) -> Refinement:
    """The refinement with the data as states and missing values from the field."""
    series, noise = task.whole, task.first.sigma
    states, std = series.v.double(), noise.expand(series.v.shape).clone()
    if series.mask is not None:
        seen = task.smooth_all(field, level, task.first.states, error_bars=True)
        assert seen.std is not None
        states = torch.where(series.mask, seen.states, states)
        std = torch.where(series.mask, seen.std, std)
    return Refinement(
        field=field,
        states=states,
        std=std,
        sigma=noise,
        process_noise=level,
        first_states=task.first.states,
        history=[],
        best=0,
        reason="the data have no noise to remove",
    )


def _cut(
    series: Series,
    states: Float[Tensor, "N ..."],
    pieces: Sequence[tuple[int, int, int]],
) -> tuple[Series, Float[Tensor, "M ..."]]:
    """Pieces of a record and of its states."""
    return series.cut(pieces), replace(series, v=states).cut(pieces).v


def spread_stretches(
    series: Series, samples: int, length: int = 1000
) -> list[tuple[int, int, int]]:
    """Evenly spread stretches of a record, with about `samples` samples together.

    Args:
        series: the record.
        samples: number of samples.
        length: length of a stretch, if a series is that long.

    Returns:
        Pieces for :meth:`~wpnode_ext.data.Series.cut`.
    """
    blocks = [
        (number, first, min(n, first + length))
        for number, n in enumerate(series.lengths)
        for first in range(0, n, length)
        if n - first >= min(n, length)
    ]
    count = max(1, min(len(blocks), samples // length))
    picks = [round(i * (len(blocks) - 1) / max(1, count - 1)) for i in range(count)]
    return [blocks[pick] for pick in picks]
