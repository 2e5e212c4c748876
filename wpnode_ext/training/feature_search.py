"""Closed-form training with the random features that the data ask for.

Flat features are close to polynomials of low degree. They leave less open where data
are few, between the branches of an attractor and beyond them; steep ones follow sharper
bends. Few features determine their head well, many can follow more fields. Either way
noisy data tell which of two fits is better by their evidence: the density that a field
gives them, whatever its coefficients and the states were. Without noise what a field
leaves over of a time derivative tells whether it has features enough.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor, nn

from ..coordinates import Coordinates
from ..data import Series
from ..fields import LinearField
from ..symmetry import Symmetry
from .config import TrainConfig
from .direct import solve_field
from .prepare import make_field
from .solved import Solved

# What is tried where no steepness is set. Where nothing tells, the first is taken.
STEEPNESS: tuple[float, ...] = (1.0, 0.3, 0.1)
# Without noise features are doubled if more of a time derivative is left over, and as
# long as less than this share of it remains.
LARGEST_RESIDUAL, GAIN = 0.01, 0.5
# Kinds of fields that have random features.
DRAWN = ("features", "ring")


@dataclass(frozen=True)
class Candidate:
    """A fit and its settings."""

    solved: Solved
    config: TrainConfig

    @property
    def evidence(self) -> float | None:
        """Logarithm of that of noisy data; None where it is not known."""
        found = self.solved.refinement
        if found is not None and found.failure:
            return -inf
        return None if found is None else found.evidence

    @property
    def lacks(self) -> float:
        """What is left over without noise, in units of what may be; 0 with noise."""
        found = self.solved.refinement
        if found is None or found.history or self.solved.forcing_scaler is not None:
            return 0.0
        return self.solved.unexplained / LARGEST_RESIDUAL


def solve_best(
    series: Series,
    own: nn.Module | None,
    config: TrainConfig,
    *,
    symmetry: Symmetry | None = None,
    coordinates: str | Coordinates | Tensor | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Solved, TrainConfig]:
    """:func:`.direct.solve_field` with random features that suit the data.

    Features whose ``config.field.steepness`` is None are made flatter, from one value
    of `STEEPNESS` to the next, while that makes the fit better. They are doubled at
    most ``config.closed_form.doublings`` times, likewise.

    Args:
        series, symmetry, coordinates, say: as there.
        own: a field to fit in place of that of the settings, as it is.
        config: resolved settings; ``field.features`` are those to begin with.

    Returns:
        The fit, and the settings with the steepness and the number of its features and
        the doublings that are left.
    """
    doublings, drawn = config.closed_form.doublings, config.field.kind in DRAWN
    drawn = drawn and own is None
    if doublings < 0 or (doublings > 0 and not drawn):
        kind = config.field.kind if own is None else type(own).__name__
        raise ValueError(
            "`closed_form.doublings` must be >= 0, and 0 for fields other than "
            f"'features' and 'ring'; got {doublings} for the field {kind!r}."
        )
    searching = drawn and config.field.steepness is None

    def solve(settings: TrainConfig) -> Candidate:
        solved = solve_field(
            series,
            lambda inputs, shape: own_or_made(own, settings, inputs, shape),
            settings,
            symmetry=symmetry,
            coordinates=coordinates,
            evidence=searching or doublings > 0,
            say=say,
        )
        return Candidate(solved, settings)

    best = solve(_steep(config, STEEPNESS[0]) if searching else config)
    for value in STEEPNESS[1:] if searching else ():
        if best.evidence is None:
            break
        other = solve(_steep(config, value))
        if not _compared(other, best, f"random features of steepness {value:g}", say):
            break
        best = other
    for _ in range(doublings):
        if best.evidence is None and best.lacks < 1.0:
            break
        other = solve(_doubled(best.config))
        many = f"{other.config.field.features} random features"
        if not _compared(other, best, many, say):
            break
        best = other
    return best.solved, best.config


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


def _compared(
    other: Candidate, best: Candidate, what: str, say: Callable[[str], None]
) -> bool:
    """Whether a fit takes the place of another one."""
    if best.lacks > 0:
        better = other.lacks < GAIN * best.lacks
        told = f"{other.lacks / best.lacks:.2g} of what was left over"
    elif other.evidence is None or best.evidence is None:
        better, told = False, "the evidence is not known"
    else:
        better = other.evidence > best.evidence
        change = other.evidence - best.evidence
        told = f"logarithm of the evidence {change:+.1f}"
    if other.solved.complaint and not best.solved.complaint:
        better = False
    say(f"{what}: {told}, {'taken' if better else 'not taken'}")
    return better


def _steep(config: TrainConfig, steepness: float) -> TrainConfig:
    return replace(config, field=replace(config.field, steepness=steepness))


def _doubled(config: TrainConfig) -> TrainConfig:
    """Twice the features, and one doubling less: stored settings must not grow more."""
    left = config.closed_form.doublings - 1
    return replace(
        config,
        field=replace(config.field, features=2 * config.field.features),
        closed_form=replace(config.closed_form, doublings=left),
    )
