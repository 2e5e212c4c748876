"""The two halves of a round of refinement: states from a field, a field from states."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..common.typing import Field
from ..data import Series
from ..fields.linear import LinearField
from .directions import count_unknowns
from .exponential_step import make_step
from .gauss_newton import Problem, StepFailed
from .process_noise import likely_process_noise
from .projected import ProjectedStep, field_variance, projected_step
from .smoother import SmoothedStates, as_problem, smooth_states
from .state_evidence import state_evidence
from .wide import DRAWS, WideStep, wide_step

Fit = Callable[[Float[Tensor, "N ..."]], Field]

# A step of the smoother below this share of the noise is the last one: Gauss-Newton
# steps shrink so fast that the next one would not be seen.
TOLERANCE = 1e-2
# Unknowns up to which their information is held as a matrix.
MATRIX_UNKNOWNS = 1000


@dataclass(frozen=True)
class Round:
    """What one round did.

    Attributes:
        process_noise: in units of the noise.
        innovation: root mean square of data minus states, in units of the noise, over
            the values the smoother saw.
        held_out: mean square over those it did not see; 1 is the noise itself, and what
            is above it the error of the states.
        change: root mean square of the change of the states, in units of the noise.
        effective: coefficients the data determined; None where `fit` was used.
        converged: share of the samples whose window came to rest.
    """

    process_noise: float
    innovation: float
    held_out: float
    change: float
    effective: float | None
    converged: float


@dataclass(frozen=True)
class Rounds:
    """What the two halves of a round share.

    Attributes:
        fit: the field that suits states.
        projected: whether steps with the states eliminated take its place,
        wide: by conjugate gradients.
        options: noise, substeps and windows of the smoother.
    """

    fit: Fit
    projected: bool
    wide: bool
    options: dict[str, Any]

    def smooth(
        self, field: Field, series: Series, level: float, start: Tensor, steps: int
    ) -> SmoothedStates:
        return smooth_states(
            field,
            series,
            process_noise=level * self.options["sigma"],
            start=start,
            error_bars=False,
            max_iterations=steps,
            tolerance=TOLERANCE,
            **self.options,
        )

    def improve(
        self, field: Field, series: Series, level: float, states: Tensor
    ) -> tuple[Field, float | None]:
        """The next field, and how many of its coefficients the data determined.

        Raises:
            StepFailed: the field is left as it was.
        """
        if not self.projected:
            return self.fit(states), None
        assert isinstance(field, LinearField)
        step = wide_step if self.wide else projected_step
        result = step(field, *self._problem(field, series, level, states))
        field.set_coefficients(result.coefficients)
        return field, result.effective

    def doubt(
        self, field: Field, series: Series, level: float, states: Tensor
    ) -> tuple[ProjectedStep | WideStep | None, Float[Tensor, "N ..."]]:
        """Likely coefficients, and the variance of the states that is due to them.

        None and zeros where the step fails.
        """
        assert isinstance(field, LinearField)
        problem, x = self._problem(field, series, level, states)
        result: ProjectedStep | WideStep
        try:
            if self.wide:
                draw = torch.Generator().manual_seed(0)
                result = wide_step(field, problem, x, draws=DRAWS, generator=draw)
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
        """Logarithm of the density of the data, states and coefficients integrated out.

        With the process noise that makes it largest: that of the rounds was chosen by
        other means. Minus infinity where steps of the field fail; None where nobody
        knows, for many unknowns and fields that are not linear in them.
        """
        if self.wide or not self.projected:
            return None
        assert isinstance(field, LinearField)
        problem, x = self._problem(field, series, level, states)
        level *= likely_process_noise(problem, x)
        problem, x = self._problem(field, series, level, states)
        try:
            step = projected_step(field, problem, x)
        except StepFailed:
            return -inf
        # The density at the coefficients whose weight is known.
        best = deepcopy(field)
        best.set_coefficients(step.coefficients)
        return state_evidence(*self._problem(best, series, level, states)) + (
            step.log_weight
        )

    def _problem(
        self, field: Field, series: Series, level: float, states: Tensor
    ) -> tuple[Problem, Float[Tensor, "N D"]]:
        noise = self.options["sigma"]
        step = make_step(
            field, series.state_shape, series.dt, substeps=self.options["substeps"]
        )
        problem = as_problem(series, step, noise, level * noise)
        return problem, states.reshape(problem.data.shape) / problem.scale


def record(
    level: float, found: SmoothedStates, before: Tensor, noise: Tensor, errors: Tensor
) -> Round:
    change = ((found.states - before) / noise).square().mean().sqrt()
    return Round(
        process_noise=level,
        innovation=found.innovation.square().mean().sqrt().item(),
        held_out=errors.mean().item(),
        change=change.item(),
        effective=None,
        converged=found.converged.double().mean().item(),
    )


@torch.no_grad()
def is_wide(field: LinearField, u: Float[Tensor, "N D"]) -> bool:
    """Whether a field has more unknowns at states `u` than a matrix is held for."""
    if field.forcing_dim or field.coefficients.numel() <= MATRIX_UNKNOWNS:
        return False
    return count_unknowns(field, u) > MATRIX_UNKNOWNS
