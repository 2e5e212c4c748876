"""The two halves of a round of refinement: states from a field, a field from states."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from math import inf
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..common.arrays import Field, as_generator
from ..data import Series
from ..fields.linear import LinearField
from .evidence import likely_process_noise, state_evidence
from .gauss_newton import Problem, StepFailed
from .projected import ProjectedStep, count_unknowns, field_variance, projected_step
from .smoother import SmoothedStates, as_problem, smooth_states
from .steps import make_step
from .wide import WIDE, WideStep, wide_step

Fit = Callable[[Float[Tensor, "N ..."]], Field]

# Tolerance of the smoother in a round; see Smoothing.
TOLERANCE = 1e-2
# Most unknowns for which the information is a matrix.
MATRIX_UNKNOWNS = 1000
# Standard errors by which held-out errors must have risen to count as worse.
CONFIDENCE = 2.0


@dataclass(frozen=True)
class Round:
    """Figures of one round.

    Attributes:
        process_noise: in units of the noise.
        innovation: root mean square of data minus states, in units of the noise, over
            the values the smoother saw.
        held_out: mean square over the held-out values; 1 is the noise itself, and the
            excess is the error of the states.
        change: root mean square of the change of the states, in units of the noise.
        effective: coefficients the data determined; None where `fit` was used.
        converged: share of the samples whose window converged.
    """

    process_noise: float
    innovation: float
    held_out: float
    change: float
    effective: float | None
    converged: float


@dataclass(frozen=True)
class Rounds:
    """Settings that both halves of a round share.

    Attributes:
        fit: function that fits a field to states.
        update: kind of step that improves the field: `fit`, or a step with the states
            eliminated, with the information as a matrix ("projected") or by conjugate
            gradients ("wide").
        sigma: noise per component, ``[*state]``.
        substeps, window, overlap: as in :class:`.smoother.Smoothing`.
    """

    fit: Fit
    update: Literal["fit", "projected", "wide"]
    sigma: Float[Tensor, "..."]
    substeps: int
    window: int
    overlap: int

    def smooth(
        self, field: Field, series: Series, level: float, start: Tensor, steps: int
    ) -> SmoothedStates:
        return smooth_states(
            field,
            series,
            sigma=self.sigma,
            process_noise=level * self.sigma,
            start=start,
            error_bars=False,
            max_iterations=steps,
            tolerance=TOLERANCE,
            substeps=self.substeps,
            window=self.window,
            overlap=self.overlap,
        )

    def improve(
        self, field: Field, series: Series, level: float, states: Tensor
    ) -> tuple[Field, float | None]:
        """The next field, and the number of coefficients that the data determined.

        Raises:
            StepFailed: the field is unchanged.
        """
        if self.update == "fit":
            return self.fit(states), None
        assert isinstance(field, LinearField)
        step = wide_step if self.update == "wide" else projected_step
        result = step(field, *self._problem(field, series, level, states))
        field.set_coefficients(result.coefficients)
        return field, result.effective

    def likely(
        self, field: Field, series: Series, level: float, states: Tensor
    ) -> tuple[ProjectedStep | WideStep | None, Float[Tensor, "N ..."]]:
        """Distribution of the coefficients, and the variance of the states due to it.

        Returns None and zeros if the step fails.
        """
        assert isinstance(field, LinearField)
        problem, x = self._problem(field, series, level, states)
        result: ProjectedStep | WideStep
        try:
            if self.update == "wide":
                draw = torch.Generator().manual_seed(0)
                result = wide_step(field, problem, x, draws=WIDE.draws, generator=draw)
                spread = result.state_variance
            else:
                result = projected_step(field, problem, x)
                spread = field_variance(field, problem, x, result)
        except StepFailed:
            return None, torch.zeros_like(states)
        return result, (spread * problem.scale.square()).reshape(states.shape)

    def evidence(
        self, field: Field, series: Series, level: float, states: Tensor
    ) -> float | None:
        """Log density of the data with states and coefficients integrated out.

        It uses the process noise of largest evidence, since that of the rounds was
        chosen for other reasons. Minus infinity if steps of the field fail; None unless
        projected steps improve the field.
        """
        if self.update != "projected":
            return None
        assert isinstance(field, LinearField)
        level *= likely_process_noise(*self._problem(field, series, level, states))
        try:
            step = projected_step(field, *self._problem(field, series, level, states))
        except StepFailed:
            return -inf
        # The density at the coefficients whose weight is known.
        best = deepcopy(field)
        best.set_coefficients(step.coefficients)
        density = state_evidence(*self._problem(best, series, level, states))
        return density + step.log_weight

    def _problem(
        self, field: Field, series: Series, level: float, states: Tensor
    ) -> tuple[Problem, Float[Tensor, "N D"]]:
        step = make_step(field, series.state_shape, series.dt, substeps=self.substeps)
        problem = as_problem(series, step, self.sigma, level * self.sigma)
        return problem, states.reshape(problem.data.shape) / problem.scale


class Watch:
    """Compares held-out errors of a round with the best so far, value by value."""

    def __init__(self) -> None:
        self._best: Tensor | None = None

    def judge(self, errors: Float[Tensor, " H"]) -> Literal["better", "same", "worse"]:
        if self._best is None:
            self._best = errors
            return "better"
        rise = errors - self._best
        doubt = CONFIDENCE * rise.std().item() / max(1, len(rise)) ** 0.5
        mean = rise.mean().item()
        if not mean <= doubt:
            return "worse"
        if mean <= 0:
            self._best = errors
            return "better"
        return "same"


def hide_values(
    series: Series, share: float, seed: int | torch.Generator
) -> Bool[Tensor, "N ..."]:
    """Mask of random held-out values, none of them missing."""
    if not 0 < share < 0.5:
        raise ValueError(f"`held_out` must lie between 0 and 0.5; got {share}.")
    hidden = torch.rand(series.v.shape, generator=as_generator(seed)) < share
    return hidden if series.mask is None else hidden & ~series.mask


@torch.no_grad()
def is_wide(field: LinearField, u: Float[Tensor, "N D"]) -> bool:
    """Whether a field has too many unknowns at states `u` for a matrix."""
    if field.forcing_dim or field.coefficients.numel() <= MATRIX_UNKNOWNS:
        return False
    return count_unknowns(field, u) > MATRIX_UNKNOWNS
