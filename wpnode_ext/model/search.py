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

from ..coordinates.reduced import Coordinates
from ..coordinates.symmetry import Symmetry
from ..data import Series
from ..fields import FIELDS, LinearField, make_field
from ..settings.config import TrainConfig
from .solve import solve_field
from .solved import Solved

# What is tried where no steepness is set, the flattest first: their unknowns are the
# fewest. Where nothing tells, the last is taken.
STEEPNESS: tuple[float, ...] = (0.1, 0.3, 1.0)
# Without noise features are doubled if more of a time derivative is left over, and as
# long as less than this share of it remains.
LARGEST_RESIDUAL, GAIN = 0.01, 0.5


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

    Features whose ``config.field.steepness`` is None are made steeper, from one value
    of `STEEPNESS` to the next, while that makes the fit better. They are doubled at
    most ``config.closed_form.doublings`` times, likewise. Fits of more than a thousand
    unknowns, to data with inputs, or under some maps of a symmetry, cannot be compared.

    Args:
        series, symmetry, coordinates, say: as there.
        own: a field to fit in place of that of the settings, as it is.
        config: resolved settings; ``field.features`` are those to begin with.

    Returns:
        The fit, and the settings with the steepness and the number of its features and
        the doublings that are left.
    """
    doublings, drawn = config.closed_form.doublings, own is None
    drawn = drawn and FIELDS.find(config.field.kind).drawn
    if doublings < 0 or (doublings > 0 and not drawn):
        kind = config.field.kind if own is None else type(own).__name__
        raise ValueError(
            "`closed_form.doublings` must be >= 0, and 0 for fields without drawn "
            f"features; got {doublings} for the field {kind!r}."
        )
    searching = drawn and config.field.steepness is None
    if searching and not (config.refine and series.forcing is None):
        searching, config = False, _steep(config, STEEPNESS[-1])

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

    best = _steepened(config, solve, say) if searching else solve(config)
    for _ in range(doublings):
        if best.evidence is None and best.lacks < 1.0:
            if best.lacks == 0.0:
                say("random features are not doubled: their evidence is not known")
            break
        many = f"{2 * best.config.field.features} random features"
        say(f"{many} are tried")
        other = solve(_doubled(best.config))
        if not _better(other, best, many, say):
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


def _steepened(
    config: TrainConfig,
    solve: Callable[[TrainConfig], Candidate],
    say: Callable[[str], None],
) -> Candidate:
    """The fit of features as steep as makes it best."""
    first, *others = STEEPNESS
    say(f"random features of steepness {first:g} are tried")
    best = solve(_steep(config, first))
    if best.evidence is None:
        say(f"steepness {others[-1]:g} is taken: no evidence tells another one")
        return solve(_steep(config, others[-1]))
    for value in others:
        what = f"random features of steepness {value:g}"
        say(f"{what} are tried")
        other = solve(_steep(config, value))
        if _better(other, best, what, say):
            best = other
        elif best.evidence != -inf:
            break
    return best


def _better(
    other: Candidate, best: Candidate, what: str, say: Callable[[str], None]
) -> bool:
    """Whether a fit takes the place of another one."""
    complaint = other.solved.complaint
    if bool(complaint) != bool(best.solved.complaint):
        better, told = not complaint, complaint or "nothing speaks against them"
    elif best.lacks > 0:
        better = other.lacks < GAIN * best.lacks
        told = f"{other.lacks / best.lacks:.2g} of what was left over"
    elif other.evidence is None or best.evidence is None:
        better, told = False, "their evidence is not known"
    elif other.evidence == -inf:
        better, told = False, complaint or "their evidence is not finite"
    else:
        change = other.evidence - best.evidence
        better, told = change > 0, f"logarithm of the evidence {change:+.1f}"
    say(f"{what} are {'' if better else 'not '}taken: {told}")
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
