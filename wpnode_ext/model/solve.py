"""Learn in closed form: solve for the head, then refine field and states together."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from ..closed_form import ClosedFormFit, find_support, fit_closed_form
from ..closed_form.ridge import Ridge
from ..coordinates.scaling import Scaler
from ..coordinates.symmetry import Symmetry
from ..data import Series
from ..fields import (
    EquivariantField,
    Forcing,
    LinearField,
    SparseField,
)
from ..settings.config import ClosedFormConfig, TrainConfig
from ..smoothing import (
    Refinement,
    RefineSettings,
    StepFailed,
    is_negligible,
    is_wide,
    refine_series,
)
from ..training.trainer import Row, TrainResult
from ..training.validation import ForecastValidation
from .ensemble import draw_members
from .files import RefinedStates
from .prepare import Learned, Prepared

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Solved(Learned):
    """A field learned in closed form.

    Attributes:
        fit: the first solve.
        ridge_errors: forecast error of every ridge that was tried; empty if none was.
        refinement: states and rounds, in scaled coordinates; None if not asked for.
        series: the scaled observations.
        states: states at their samples, refined where that was asked for.
        refit: ``refit(part, states)`` is the field that a part of the observations asks
            for, given the states there.
    """

    field: LinearField
    fit: ClosedFormFit
    ridge_errors: dict[float, float]
    refinement: Refinement | None
    series: Series
    states: Tensor
    refit: Callable[[Series, Tensor], LinearField]

    def complete(self) -> "Solved":
        """The same with error bars, which fits that are only compared do without."""
        if self.refinement is None:
            return self
        found = self.refinement.with_error_bars()
        return replace(
            self,
            refinement=found,
            refined=_in_units(found, self.scaler),
            complaint=complaint_about(
                self.series, self.unexplained, found, self.config.closed_form
            ),
        )

    def without_end(self, fraction: float) -> LinearField | None:
        """The field fitted without the end of every series; None where that fails."""
        smooth = replace(self.series, v=self.states, mask=None)
        try:
            kept, _ = self.series.split(fraction)
            states, _ = smooth.split(fraction)
            return self.refit(kept, states.v)
        except (StepFailed, ValueError):
            return None

    @property
    def unexplained(self) -> float:
        """The largest share of a time derivative that the first solve leaves over."""
        return unexplained(self.fit, self.scaler, self.field.dim)

    @property
    def evidence(self) -> float | None:
        """Logarithm of the evidence of noisy data; None where it is not known."""
        found = self.refinement
        if found is not None and found.failure:
            return -inf
        return None if found is None else found.evidence

    @property
    def lacks(self) -> float:
        """Share left over without noise, over the share allowed; 0 with noise."""
        found = self.refinement
        if found is None or found.history or self.series.forcing is not None:
            return 0.0
        return self.unexplained / self.config.closed_form.enough


def solve_field(
    data: Prepared,
    make: Callable[[int, tuple[int, ...]], LinearField],
    config: TrainConfig,
    *,
    evidence: bool = False,
    say: Say = lambda _: None,
) -> Solved:
    """Fits a field that is linear in its head to all observations.

    Args:
        data: the observations.
        make: returns the field for a number of inputs and the shape of a scaled state;
            its hidden layers are drawn anew.
        config: settings, every entry filled in.
        evidence: whether the refinement computes the evidence of the field.
        say: receives one line for every decision.
    """
    scaled, first = data.scaled, data.first
    field = make(data.forcing_dim, data.scaled_shape).double()
    entries = tuple(data.series.state_shape)
    if (field.dim,) != entries:
        say(f"{field.dim} coordinates for states of {entries[0]} entries")
    if scaled.forcing is not None and scaled.n_series == 1:
        field.forcing = Forcing(scaled.times, scaled.forcing)
    maps = data.maps
    field.draw(
        first.states,
        torch.Generator().manual_seed(config.seed),
        inputs=scaled.forcing,
        maps=None if maps is None else maps.matrices,
        whole_group=maps is None or maps.is_group,
    )
    field, maps = restricted(field, maps)
    if config.closed_form.sparse:
        field = _sparse(field, scaled, first.states, config, say)
    clean = is_negligible(first.sigma, scaled)
    ridge, errors = _choose_ridge(field, data, config, maps, clean, say)
    # Without noise rounding alone limits the fit: all digits count.
    problem = _Problem(config, ridge, maps, "qr" if clean else "auto")
    fit = problem.solve(field, scaled, first.states)
    refinement = _refine(field, data, problem, evidence, say)
    states = first.states
    if refinement is not None:
        assert isinstance(refinement.field, LinearField)
        field, states = refinement.field, refinement.states
    scaler = _completed(data.scaler, data.series, states, data.symmetry)
    members: list[LinearField] = []
    if config.ensemble > 0:
        members = draw_members(
            field,
            config,
            likely=None if refinement is None else refinement.likely,
            series=scaled,
            states=states,
            refit=problem.solve,
        )
    left = unexplained(fit, scaler, field.dim)
    return Solved(
        field=field,
        config=config,
        scaler=scaler,
        result=_as_result(refinement, left),
        members=members,
        refined=_in_units(refinement, scaler),
        complaint=complaint_about(scaled, left, refinement, config.closed_form),
        fit=fit,
        ridge_errors=errors,
        refinement=refinement,
        series=scaled,
        states=states,
        refit=_refit(field, refinement, problem),
    )


@dataclass(frozen=True)
class _Problem:
    """The weak least squares of a fit, for any field and part of the observations."""

    config: TrainConfig
    ridge: Ridge
    maps: Symmetry | None
    accumulate: str = "auto"

    def solve(
        self, field: LinearField, series: Series, states: Tensor | None
    ) -> ClosedFormFit:
        """Sets the coefficients; features are evaluated at the states."""
        weak = self.config.weak
        return fit_closed_form(
            field,
            series,
            states=states,
            p=weak.p,
            ell=weak.ell,
            q=weak.q,
            ridge=self.ridge,
            symmetry=self.maps,
            accumulate=self.accumulate,  # type: ignore[arg-type]
        )

    def solve_smooth(
        self, field: LinearField, series: Series, states: Tensor
    ) -> LinearField:
        """Sets the coefficients; smoothed states take the place of observations."""
        self.solve(field, replace(series, v=states, mask=None), None)
        return field


def complaint_about(
    scaled: Series,
    left: float,
    refinement: Refinement | None,
    limits: ClosedFormConfig,
) -> str:
    """The reason not to use a field, "" if there is none.

    A field that suits the data predicts values kept from the refinement to their noise.
    Without noise, and without rounds, its weak residual decides.

    Args:
        scaled: the observations.
        left: the largest share of a time derivative that the field leaves over.
        refinement: states and rounds, or None.
        limits: errors from which on a field misses the data.
    """
    if refinement is not None and refinement.failure:
        return refinement.failure
    if refinement is not None and refinement.history:
        missed = refinement.judged.held_out
        # Not of the refined states: those of a bad field may be anywhere.
        size = scaled.v.double().var(0)
        share = missed * (refinement.sigma.square() / size)[size > 0].mean().item()
        if not (missed < limits.largest_error or share < limits.least_share):
            return f"held-out values were missed by {missed:.3g} variances"
    elif not left < limits.largest_residual:
        return f"{100 * left:.0f} % of the time derivative is not explained"
    return ""


def unexplained(fit: ClosedFormFit, scaler: Scaler, dim: int) -> float:
    """The largest share of a time derivative that a solve leaves over.

    Of an entry of the data: coordinates that hardly move it are hard to explain, driven
    as they are by those that were left out, and matter as little.
    """
    left, size = fit.residual, fit.size
    if len(left) == dim:
        left, size = scaler.spread(left), scaler.spread(size)
    return (left / torch.where(size > 0, size, 1.0)).max().item()


def restricted(
    field: LinearField, maps: Symmetry | None
) -> tuple[LinearField, Symmetry | None]:
    """The field made to commute with the maps, and the maps a fit must still apply.

    Polynomials, and random features drawn in families, are restricted to the
    coefficients that commute with the maps, where these are orthogonal and a whole
    group. For other fields the fit sees the data under every map.
    """
    if maps is None or field.forcing_dim or not maps.is_group:
        return field, maps
    basis = field.equivariant_basis(maps.matrices) if maps.is_orthogonal else None
    if basis is None:
        return field, maps
    return EquivariantField(field, basis), None


def _sparse(
    field: LinearField,
    series: Series,
    states: Tensor,
    config: TrainConfig,
    say: Say,
) -> LinearField:
    """The field with few of its terms, or with all where the record is too short."""
    if not field.selectable or field.forcing_dim:
        raise ValueError(
            "`closed_form.sparse` must go with field='library' without symmetry and "
            f"inputs; the field is a {type(field).__name__}."
        )
    weak, share = config.weak, config.validation.fraction
    try:
        support = find_support(
            field,
            series,
            states=states,
            fraction=share,
            p=weak.p,
            ell=weak.ell,
            q=weak.q,
        )
    except ValueError as error:
        say(f"all terms are kept: {error}")
        return field
    needed = int(support.sum())
    if needed == 0:
        return field
    say(f"{needed} of {support.numel()} coefficients are needed")
    if needed > config.closed_form.most_terms:
        say("all are kept: a choice of so many would take longer than all of them")
        return field
    return SparseField(field, support)


def _choose_ridge(
    field: LinearField,
    data: Prepared,
    config: TrainConfig,
    maps: Symmetry | None,
    clean: bool,
    say: Say,
) -> tuple[Ridge, dict[float, float]]:
    """The ridge, and the forecast errors of those compared, if any were."""
    ridge = config.closed_form.ridge
    if ridge is not None:
        return ridge, {}
    if clean or not field.chooses_ridge_by_forecasts:
        return "gcv", {}
    problem = _Problem(config, "gcv", maps)
    errors = _ridge_errors(field, data.scaled, data.first.states, problem)
    if not errors:
        return "gcv", {}
    # Of equals the largest: forecasts that all fail are no reason for a small one.
    best = max(errors, key=lambda value: (-errors[value], value))
    say(f"ridge {best:g}: forecasts held-out data best")
    return best, errors


def _ridge_errors(
    field: LinearField, series: Series, states: Tensor, problem: _Problem
) -> dict[float, float]:
    """Errors of forecasts of smoothed held-out states, for each ridge."""
    held_out, shortest = problem.config.validation, problem.config.weak.ell + 1
    smooth = replace(series, v=states, mask=None)
    try:
        train, _ = series.split(held_out.fraction, min_length=shortest)
        seen, held = smooth.split(held_out.fraction, min_length=shortest)
    except ValueError:
        return {}
    if series.forcing is not None:
        # A forecast would need the inputs as a function of time.
        return {}
    validate = ForecastValidation(
        held,
        starts=held_out.starts,
        horizon=held_out.horizon,
    )
    fit = problem.solve(field, train, seen.v)
    ridges = problem.config.closed_form.ridges
    heads = torch.stack([fit.with_ridge(ridge) for ridge in ridges])
    return dict(zip(ridges, validate.compare(field, heads).tolist(), strict=True))


def _refine(
    field: LinearField, data: Prepared, problem: _Problem, evidence: bool, say: Say
) -> Refinement | None:
    """Improves a fitted field and the states together, if that was asked for."""
    scaled, config = data.scaled, problem.config
    if not config.refine:
        return None
    if scaled.forcing is not None and scaled.n_series > 1:
        say("states are not refined: several series with inputs share one clock")
        return None
    begun = False

    def fit(states: Tensor) -> LinearField:
        nonlocal begun
        if begun:
            problem.solve_smooth(field, scaled, states)
        begun = True
        return field

    settings = RefineSettings(
        # A field under many maps is improved by the fit alone, which applies them.
        update="auto" if problem.maps is None else "fit",
        samples=_samples_of_rounds(field, data.first.states, config.closed_form),
        # Of fits that are compared one is kept, and completed.
        error_bars=not evidence or config.ensemble > 0,
        evidence=evidence,
        seed=config.seed,
    )
    found = refine_series(
        scaled,
        fit,
        data.first,
        settings,
        progress=lambda number, row: say(
            f"round {number}: held-out error {row.held_out:.3f} noise variances, "
            f"states changed by {row.change:.2g} sigma"
        ),
    )
    say(f"refinement: {found.reason}")
    return found


def _refit(
    field: LinearField, refinement: Refinement | None, problem: _Problem
) -> Callable[[Series, Tensor], LinearField]:
    """Fits the field anew to part of the observations, as it was fitted to all.

    Least squares at the given states replaces a step that ends in a bad field. States
    refined with all observations keep some knowledge of those left out.
    """

    def refit(part: Series, states: Tensor) -> LinearField:
        if refinement is not None and refinement.projected:
            found = refinement.again(part, states)
            assert isinstance(found, LinearField)
            if _forecasts_as_well(found, field, replace(part, v=states, mask=None)):
                return found
        return problem.solve_smooth(deepcopy(field), part, states)

    return refit


def _forecasts_as_well(
    found: LinearField, field: LinearField, smooth: Series, leads: int = 100
) -> bool:
    """True if `found` forecasts the data it was fitted to about as well as `field`.

    A step of thousands of coefficients, of which the data determine a part, can end in
    an unstable field. Twice the error of `field` is allowed: a fit to fewer data is a
    little worse, an unstable field many times.
    """
    validate = ForecastValidation(smooth, starts=16, horizon=leads)
    heads = torch.stack([found.coefficients, field.coefficients]).detach()
    new, old = validate.compare(deepcopy(field), heads).tolist()
    return new <= 2.0 * old + 0.01


def _in_units(found: Refinement | None, scaler: Scaler) -> RefinedStates | None:
    """Refined states in the units of the data; None without their error bars."""
    if found is None or found.std is None:
        return None
    return RefinedStates(
        scaler.inverse(found.states),
        scaler.spread(found.std),
        scaler.spread(found.sigma),
        _rounds(found),
        found.process_noise,
    )


def _rounds(found: Refinement | None) -> list[Row]:
    """The rounds as rows of a training run."""
    rows = [] if found is None else found.history
    return [
        {
            "epoch": number,
            "loss": row.held_out,
            "innovation": row.innovation,
            "change": row.change,
        }
        for number, row in enumerate(rows)
    ]


def _as_result(found: Refinement | None, left: float) -> TrainResult:
    """The rounds as a training run; the score is the error they ended with."""
    history = _rounds(found)
    if found is None:
        return TrainResult(0, 0, left, "closed form")
    score = found.judged.held_out if history else left
    return TrainResult(len(history), found.best, score, found.reason, history=history)


def _completed(
    scaler: Scaler, series: Series, states: Tensor, symmetry: Symmetry | None
) -> Scaler:
    """The scaler with the regression of what it leaves out, if it leaves anything out.

    Args:
        scaler: as it was made.
        series: observations in their own units.
        states: refined ones, in scaled coordinates.
        symmetry: of the system, in the units of the data.
    """
    if scaler.per_entry:
        return scaler
    whole, step = ~series.missing, series.dt
    if step is None:
        step = series.times.diff().median().item()
    # Fast beside the motion of the coordinates, slow beside a solver's steps.
    rate = 1 / (4 * step)
    v = series.v.double()[whole]
    return scaler.completed(v, states[whole], rate=rate, symmetry=symmetry)


def _samples_of_rounds(
    field: LinearField, states: Tensor, limits: ClosedFormConfig
) -> int:
    """Samples that rounds of a refinement should work on."""
    if not is_wide(field, states):
        return limits.round_numbers // field.dim
    each = max(field.dim**2, field.sites * field.n_features)
    return limits.wide_round_numbers // each
