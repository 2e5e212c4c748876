"""What a closed-form fit found, and whether it explains the data."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..closed_form import ClosedFormFit
from ..coordinates.scaling import Scaler
from ..data import Series
from ..fields import Forcing, LinearField
from ..smoothing import Refinement
from ..smoothing.gauss_newton import StepFailed
from ..training.states_file import RefinedStates
from ..training.trainer import Row, TrainResult

# A field does not explain the data if its mean square error at held-out values is above
# both so many variances of the noise and this share of the signal's; without noise, if
# its relative weak residual, in the units of the data, is above the last one.
LARGEST_ERROR, LEAST_SHARE, LARGEST_RESIDUAL = 2.0, 1e-3, 0.3


@dataclass(frozen=True)
class Solved:
    """A field fitted in closed form, in scaled coordinates.

    Attributes:
        field: the field.
        scaler, forcing_scaler: of the state and of the inputs.
        fit: the first solve.
        ridge_errors: forecast error of every ridge that was tried; empty if none was.
        refinement: states and rounds, in scaled coordinates; None if not asked for.
        members: fields as likely as this one; see :func:`.members.draw_members`.
        forcing: the scaled inputs of the series, on its times; None without.
        series: the scaled observations.
        states: states at their samples, refined where that was asked for.
        refit: ``refit(part, states)`` is the field that a part of the observations asks
            for, given the states there.
    """

    field: LinearField
    scaler: Scaler
    forcing_scaler: Scaler | None
    fit: ClosedFormFit
    ridge_errors: dict[float, float]
    refinement: Refinement | None
    members: list[LinearField]
    forcing: Forcing | None
    series: Series
    states: Tensor
    refit: Callable[[Series, Tensor], LinearField]

    def without_end(self, fraction: float) -> LinearField | None:
        """The field fitted without the end of every series; None where that fails."""
        believed = replace(self.series, v=self.states, mask=None)
        try:
            kept, _ = self.series.split(fraction)
            states, _ = believed.split(fraction)
            return self.refit(kept, states.v)
        except (StepFailed, ValueError):
            return None

    @property
    def complaint(self) -> str:
        """What speaks against the field, "" if nothing does.

        Values kept from the refinement tell: a field that suits the data predicts them
        to their noise. Without noise the weak residual does.
        """
        found = self.refinement
        rows = [] if found is None else found.history
        if found is not None and found.failure:
            return found.failure
        if found is not None and rows:
            missed = found.judged.held_out
            # Not of the refined states: those of a bad field may be anywhere.
            size = self.series.v.double().var(0)
            share = missed * (found.sigma.square() / size)[size > 0].mean().item()
            if not (missed < LARGEST_ERROR or share < LEAST_SHARE):
                return f"held-out values were missed by {missed:.3g} variances"
        left = self.unexplained
        if not rows and not left < LARGEST_RESIDUAL:
            return f"{100 * left:.0f} % of the time derivative is not explained"
        return ""

    @property
    def unexplained(self) -> float:
        """The largest share of a time derivative that the first solve leaves over.

        Of an entry of the data: coordinates that hardly move it are hard to explain,
        driven as they are by those that were left out, and matter as little.
        """
        left, size = self.fit.residual, self.fit.size
        if len(left) == self.field.dim:
            left, size = self.scaler.spread(left), self.scaler.spread(size)
        return (left / torch.where(size > 0, size, 1.0)).max().item()

    def refined_states(self) -> RefinedStates:
        """What the refinement found, in the units of the data."""
        found = self.refinement
        assert found is not None
        return RefinedStates(
            self.scaler.inverse(found.states),
            self.scaler.spread(found.std),
            self.scaler.spread(found.sigma),
            self.result().history,
            found.process_noise,
        )

    def result(self) -> TrainResult:
        """The rounds as a training run; the score is the error they ended with."""
        rows = [] if self.refinement is None else self.refinement.history
        history: list[Row] = [
            {
                "epoch": number,
                "loss": row.held_out,
                "innovation": row.innovation,
                "change": row.change,
            }
            for number, row in enumerate(rows)
        ]
        best = 0 if self.refinement is None else self.refinement.best
        score = self.unexplained
        if self.refinement is not None and rows:
            score = self.refinement.judged.held_out
        reason = "closed form" if self.refinement is None else self.refinement.reason
        return TrainResult(len(rows), best, score, reason, history=history)
