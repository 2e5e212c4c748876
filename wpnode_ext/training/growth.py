"""Closed-form training with as many random features as the data ask for.

Few features determine their head well and cannot follow every field; many can, and
explain noise as well. Which of the two costs more the data tell: a field that errs from
sample to sample by a good part of the noise is too small, one that errs by less cannot
be seen to be.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from ..coordinates import Coordinates
from ..data import Series
from ..fields import LinearField
from ..smoothing import step_error
from ..symmetry import Symmetry
from .config import TrainConfig
from .direct import solve_field
from .prepare import make_field
from .reduced import scaled_series
from .solved import Solved

# A field is too small if its steps from sample to sample err by this share of the noise
# or, where there is none, if it leaves so much of a time derivative over.
LARGEST_STEP_ERROR, LARGEST_RESIDUAL = 0.05, 0.01
# What twice the features must bring the error down to.
GAIN = 0.5


def solve_growing(
    series: Series,
    own: nn.Module | None,
    config: TrainConfig,
    *,
    symmetry: Symmetry | None = None,
    coordinates: str | Coordinates | Tensor | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Solved, TrainConfig]:
    """:func:`.direct.solve_field`, again with twice the features where they are few.

    At most ``config.closed_form.doublings`` times, and not once more after a larger
    field that errs half as much or more, what is left then being not for want of
    features, or that misses the data where the smaller one did not.

    Args:
        series, symmetry, coordinates, say: as there.
        own: a field to fit in place of that of the settings; it does not grow.
        config: resolved settings; ``field.features`` are those to begin with.

    Returns:
        The fit, and the settings with the number of features it has and the doublings
        that are left.
    """
    doublings = config.closed_form.doublings
    if doublings < 0 or (doublings > 0 and not (own is None and _grows(config))):
        kind = config.field.kind if own is None else type(own).__name__
        raise ValueError(
            "`closed_form.doublings` must be >= 0, and 0 for fields other than "
            f"'features' and 'ring'; got {doublings} for the field {kind!r}."
        )

    def solve(settings: TrainConfig) -> Solved:
        return solve_field(
            series,
            lambda inputs, shape: own_or_made(own, settings, inputs, shape),
            settings,
            symmetry=symmetry,
            coordinates=coordinates,
            say=say,
        )

    solved = solve(config)
    lack = 0.0 if doublings == 0 else shortfall(solved, series)
    for _ in range(doublings):
        if lack < 1.0:
            break
        few, many = config.field.features, 2 * config.field.features
        say(f"{few} random features err too much; {many} are tried")
        larger = replace(
            config,
            field=replace(config.field, features=many),
            # What is left of them: stored settings must not grow once more.
            closed_form=replace(
                config.closed_form, doublings=config.closed_form.doublings - 1
            ),
        )
        other = solve(larger)
        rest = shortfall(other, series)
        worse = bool(other.complaint) and not solved.complaint
        if worse or not rest < GAIN * lack:
            say(f"{many} are no better: {few} are kept")
            break
        solved, config, lack = other, larger, rest
    return solved, config


def own_or_made(
    own: nn.Module | None, config: TrainConfig, inputs: int, shape: tuple[int, ...]
) -> LinearField:
    """A field of the user's or that of the settings, if it can be solved for."""
    generator = torch.Generator().manual_seed(0)
    made = own or make_field(config.field, shape, inputs, generator)
    if not isinstance(made, LinearField):
        raise TypeError(
            "`method='closed_form'` needs a field that is linear in its coefficients; "
            f"got {type(made).__name__}."
        )
    return made


def shortfall(solved: Solved, series: Series) -> float:
    """How far a field errs, in units of what is allowed; 0 where nothing tells."""
    found = solved.refinement
    if found is None or solved.forcing_scaler is not None:
        return 0.0
    if found.failure:
        return math.inf
    if not found.history:
        return solved.unexplained / LARGEST_RESIDUAL
    scaled = scaled_series(series, solved.scaler, None)
    error = step_error(
        solved.field,
        scaled,
        found.states,
        sigma=found.sigma,
        process_noise=found.process_noise * found.sigma,
    )
    return (error / found.sigma).max().item() / LARGEST_STEP_ERROR


def _grows(config: TrainConfig) -> bool:
    return config.field.kind in ("features", "ring")
