"""Learn in closed form with the random features that the data ask for.

Flat features are close to polynomials of low degree. They leave less open where data
are few, between the branches of an attractor and beyond them; steep ones follow sharper
bends. Few features determine their head well, many can follow more fields. Noisy data
compare two fits by their evidence: the density that a field gives them, with
coefficients and states integrated out. Without noise the share of a time derivative
that a field leaves over shows whether it has features enough.
"""

from dataclasses import replace
from math import inf

import torch
from torch import nn

from ..fields import FIELDS, LinearField, as_linear, make_field
from ..settings.config import TrainConfig
from .prepare import Prepared
from .solve import Say, Solved, solve_field


def solve_best(
    data: Prepared,
    own: nn.Module | None,
    config: TrainConfig,
    *,
    say: Say = lambda _: None,
) -> Solved:
    """:func:`.solve.solve_field` with random features that suit the data.

    Where ``config.field.steepness`` is None, features are made steeper, from one entry
    of ``config.closed_form.steepnesses`` to the next, while that makes the fit better.
    They are doubled likewise, at most ``config.closed_form.doublings`` times. Fits of
    more than a thousand unknowns, to data with inputs, or under some maps of a
    symmetry, cannot be compared.

    Args:
        data: the observations.
        own: a field to fit in place of that of the settings, as it is.
        config: settings; ``field.features`` are those to begin with.
        say: receives one line for every decision.

    Returns:
        The fit. Its settings have the steepness and the number of its features, and the
        doublings that are left.
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
    if searching and not (config.refine and data.series.forcing is None):
        searching, config = False, _steep(config, config.closed_form.steepnesses[-1])
    search = _Search(data, own, searching or doublings > 0, say)
    best = search.steepened(config) if searching else search.solve(config)
    return search.doubled(best, doublings).complete()


def own_or_made(
    own: nn.Module | None, config: TrainConfig, inputs: int, shape: tuple[int, ...]
) -> LinearField:
    """A field of the user's or that of the settings, if it can be solved for."""
    generator = torch.Generator().manual_seed(0)
    made = own or make_field(config.field, shape, inputs, generator)
    found = as_linear(made)
    if found is None:
        raise TypeError(
            "`method='closed_form'` needs a field that is linear in its coefficients; "
            f"got {type(made).__name__}."
        )
    return found


class _Search:
    """Fits of one series of observations, compared with one another."""

    def __init__(
        self, data: Prepared, own: nn.Module | None, evidence: bool, say: Say
    ) -> None:
        self._data, self._own, self._evidence, self._say = data, own, evidence, say

    def solve(self, config: TrainConfig) -> Solved:
        """The fit with these settings."""
        return solve_field(
            self._data,
            lambda inputs, shape: own_or_made(self._own, config, inputs, shape),
            config,
            evidence=self._evidence,
            say=self._say,
        )

    def steepened(self, config: TrainConfig) -> Solved:
        """The fit with features of the best steepness."""
        first, *others = config.closed_form.steepnesses
        self._say(f"random features of steepness {first:g} are tried")
        best = self.solve(_steep(config, first))
        if best.evidence is None:
            steepest = config.closed_form.steepnesses[-1]
            self._say(f"steepness {steepest:g} is taken: no evidence is known")
            return self.solve(_steep(config, steepest))
        for value in others:
            what = f"random features of steepness {value:g}"
            self._say(f"{what} are tried")
            other = self.solve(_steep(config, value))
            if self._better(other, best, what):
                best = other
            elif best.evidence != -inf:
                break
        return best

    def doubled(self, best: Solved, doublings: int) -> Solved:
        """The fit with features doubled as long as that makes it better."""
        for _ in range(doublings):
            if best.evidence is None and best.lacks < 1.0:
                if best.lacks == 0.0:
                    self._say(
                        "random features are not doubled: their evidence is not known"
                    )
                break
            many = f"{2 * best.config.field.features} random features"
            self._say(f"{many} are tried")
            other = self.solve(_doubled(best.config))
            if not self._better(other, best, many):
                break
            best = other
        return best

    def _better(self, other: Solved, best: Solved, what: str) -> bool:
        """Whether a fit takes the place of another one; the log has the reason."""
        complaint = other.complaint
        if bool(complaint) != bool(best.complaint):
            better, reason = (
                not complaint,
                complaint or "there is no complaint about them",
            )
        elif best.lacks > 0:
            better = other.lacks < best.config.closed_form.doubling_gain * best.lacks
            reason = f"{other.lacks / best.lacks:.2g} of what was left over"
        elif other.evidence is None or best.evidence is None:
            better, reason = False, "their evidence is not known"
        elif other.evidence == -inf:
            better, reason = False, complaint or "their evidence is not finite"
        else:
            change = other.evidence - best.evidence
            better, reason = change > 0, f"logarithm of the evidence {change:+.1f}"
        self._say(f"{what} are {'' if better else 'not '}taken: {reason}")
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
