"""Closed-form training: scale, solve for the head, refine field and states together."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..closed_form import find_support, fit_closed_form
from ..coordinates.reduced import Coordinates
from ..coordinates.scaling import LinearScaler, StandardScaler
from ..coordinates.symmetry import Symmetry
from ..data import Series
from ..fields import (
    Forcing,
    LibraryField,
    LinearField,
    RandomFeatureField,
    RingField,
    SparseField,
)
from ..settings.config import TrainConfig
from ..smoothing import first_states, is_negligible, refine
from ..training.validation import ForecastValidation
from .members import draw_members
from .reduced import (
    completed,
    declared,
    make_state_scaler,
    restricted,
    samples_of_rounds,
    scaled_maps,
    scaled_series,
    wants_forecasts,
)
from .solved import Solved

# Ridges compared by forecasts of held-out data, in units of the features' size.
RIDGES: tuple[float, ...] = (0.0, *(10.0**n for n in range(-14, 0)))
# Coefficients up to which a choice of them is solved for as one problem. Data without
# noise ask for the smallest terms, too.
MOST_TERMS = 2000


def solve_field(
    series: Series,
    make: Callable[[int, tuple[int, ...]], LinearField],
    config: TrainConfig,
    *,
    symmetry: Symmetry | None = None,
    coordinates: str | Coordinates | Tensor | None = None,
    evidence: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Solved:
    """Fits a field that is linear in its head to all of a series.

    Args:
        series: observations in their own units.
        make: the field for a number of inputs and the shape of a scaled state; its
            hidden layers are drawn anew.
        config: resolved settings.
        symmetry: of the system, in the units of the data; that of the settings by
            default.
        coordinates: those the field is fitted in, likewise; see
            :mod:`wpnode_ext.coordinates.reduced`.
        evidence: whether the refinement tells how likely the field makes the data.
        say: told what was decided.
    """
    forcing_scaler = None
    if series.forcing is not None:
        forcing_scaler = StandardScaler().fit(series.forcing.flatten(1))
    forcing_dim = 0 if series.forcing is None else series.forcing[0].numel()
    state = tuple(series.state_shape)
    symmetry, coordinates = declared(series, config, symmetry, coordinates)
    scaler = make_state_scaler(series, config, symmetry, coordinates)
    field = make(forcing_dim, scaler.scaled_shape(state)).double()
    if (field.dim,) != state:
        say(f"{field.dim} coordinates for states of {state[0]} entries")
    scaled = scaled_series(series, scaler, forcing_scaler)
    if scaled.forcing is not None and series.n_series == 1:
        field.forcing = Forcing(scaled.times, scaled.forcing)
    maps = scaled_maps(symmetry, scaler)
    first = first_states(scaled)
    _draw(field, first.states, scaled.forcing, maps, config.seed)
    field, maps = restricted(field, maps)
    weak: dict[str, Any] = {
        "p": config.weak.p,
        "ell": config.weak.ell,
        "q": config.weak.q,
    }
    if config.closed_form.sparse:
        share = config.validation.fraction
        field = _sparse(field, scaled, first.states, weak, share, say)
    ridge, errors = config.closed_form.ridge, {}
    clean = is_negligible(first.sigma, scaled)
    if ridge is None and not clean and wants_forecasts(field):
        errors = _compare_ridges(field, scaled, first.states, config, maps)
        if errors:
            # Of equals the largest: forecasts that all fail tell nothing.
            ridge = max(errors, key=lambda value: (-errors[value], value))
            say(f"ridge {ridge:g}: forecasts held-out data best")
    taken = "gcv" if ridge is None else ridge
    if clean:
        # Nothing but rounding limits the fit: all digits count.
        weak["accumulate"] = "qr"
    start = fit_closed_form(
        field, scaled, states=first.states, ridge=taken, symmetry=maps, **weak
    )
    begun = False

    def fit_states(field: LinearField, part: Series, states: Tensor) -> LinearField:
        # What the smoother believed is believed on both sides of the weak form.
        observed = replace(part, v=states, mask=None)
        fit_closed_form(field, observed, ridge=taken, symmetry=maps, **weak)
        return field

    def fit(states: Tensor) -> LinearField:
        nonlocal begun
        if begun:
            fit_states(field, scaled, states)
        begun = True
        return field

    refinement = None
    told_apart = series.forcing is None or series.n_series == 1
    if config.refine and not told_apart:
        say("states are not refined: several series with inputs share one clock")
    if config.refine and told_apart:
        refinement = refine(
            scaled,
            fit,
            # Data under many maps are known to the fit alone.
            update="auto" if maps is None else "fit",
            samples=samples_of_rounds(field, first.states),
            evidence=evidence,
            seed=config.seed,
            progress=lambda number, row: say(
                f"round {number}: held-out error {row.held_out:.3f} noise variances, "
                f"states changed by {row.change:.2g} sigma"
            ),
        )
        say(f"refinement: {refinement.reason}")
        found = refinement.field
        assert isinstance(found, LinearField)
        field = found
    found_states = first.states if refinement is None else refinement.states
    if isinstance(scaler, LinearScaler):
        scaler = completed(scaler, series, found_states, symmetry)
    members: list[LinearField] = []
    if config.ensemble > 0:
        members = draw_members(
            field,
            config.ensemble,
            likely=None if refinement is None else refinement.likely,
            series=scaled,
            states=found_states,
            refit=lambda member, part, states: fit_closed_form(
                member, part, states=states, ridge=taken, symmetry=maps, **weak
            ),
            ell=config.weak.ell,
            seed=config.seed,
        )

    def refit(part: Series, states: Tensor) -> LinearField:
        if refinement is not None and refinement.again is not None:
            found = refinement.again(part, states)
            assert isinstance(found, LinearField)
            return found
        return fit_states(deepcopy(field), part, states)

    return Solved(
        field,
        scaler,
        forcing_scaler,
        start,
        errors,
        refinement,
        members,
        field.forcing,
        scaled,
        found_states,
        refit,
    )


def _draw(
    field: LinearField,
    states: Tensor,
    forcing: Tensor | None,
    maps: Symmetry | None,
    seed: int,
) -> None:
    """Hidden layers for the box of the states; polynomials have none."""
    local = field.local if isinstance(field, RingField) else field
    if not isinstance(local, RandomFeatureField):
        return
    low, high = states.amin(0), states.amax(0)
    if isinstance(field, RingField):
        low, high = low.amin().expand(local.dim), high.amax().expand(local.dim)
        maps = None
    elif maps is not None and not maps.is_group:
        # Without families the features must suit every image of the data.
        low = torch.stack([(states @ g.T).amin(0) for g in maps.matrices]).amin(0)
        high = torch.stack([(states @ g.T).amax(0) for g in maps.matrices]).amax(0)
        maps = None
    if forcing is not None:
        low = torch.cat([low, forcing.amin(0)])
        high = torch.cat([high, forcing.amax(0)])
    if maps is not None and (local.width % len(maps) or local.depth > 1):
        maps = None
    generator = torch.Generator().manual_seed(seed)
    matrices = None if maps is None else maps.matrices
    local.redraw(low, high, generator, maps=matrices)


def _sparse(
    field: LinearField,
    series: Series,
    states: Tensor,
    weak: dict[str, Any],
    share: float,
    say: Callable[[str], None],
) -> LinearField:
    """The field with few of its terms; whole where the record is too short to tell."""
    if not isinstance(field, LibraryField) or field.forcing_dim:
        raise ValueError(
            "`closed_form.sparse` must go with field='library' without symmetry and "
            f"inputs; the field is a {type(field).__name__}."
        )
    try:
        support = find_support(field, series, states=states, fraction=share, **weak)
    except ValueError as error:
        say(f"all terms are kept: {error}")
        return field
    needed = int(support.sum())
    if needed == 0:
        return field
    say(f"{needed} of {support.numel()} coefficients are needed")
    if needed > MOST_TERMS:
        say("all are kept: a choice of so many would take longer than all of them")
        return field
    return SparseField(field, support)


def _compare_ridges(
    field: LinearField,
    series: Series,
    states: Tensor,
    config: TrainConfig,
    maps: Symmetry | None,
) -> dict[float, float]:
    """Errors of forecasts of smoothed held-out states, for each ridge."""
    smooth = replace(series, v=states, mask=None)
    try:
        shortest = config.weak.ell + 1
        train, _ = series.split(config.validation.fraction, min_length=shortest)
        seen, held = smooth.split(config.validation.fraction, min_length=shortest)
    except ValueError:
        return {}
    if series.forcing is not None:
        # A forecast would need the inputs as a function of time.
        return {}
    validate = ForecastValidation(
        held,
        starts=config.validation.starts,
        horizon=config.validation.horizon,
    )
    fit = fit_closed_form(
        field,
        train,
        states=seen.v,
        p=config.weak.p,
        ell=config.weak.ell,
        q=config.weak.q,
        symmetry=maps,
    )
    heads = torch.stack([fit.with_ridge(ridge) for ridge in RIDGES])
    return dict(zip(RIDGES, validate.compare(field, heads).tolist(), strict=True))
