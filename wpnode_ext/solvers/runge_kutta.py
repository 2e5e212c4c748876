"""Explicit Runge-Kutta steps that take their first stage as given.

torchdiffeq evaluates the field at the start of every solve. Here the caller may pass
that value (the weak term has it already), every member of a batch may have its own
step, and a call subdivides all intervals of a batch alike.
Names and coefficients are torchdiffeq's; its "rk4" is the 3/8 rule, and "rk4_classic"
here is the classical one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

FieldFunction = Callable[[Tensor, Tensor], Tensor]
# Most steps of adaptive methods between two samples.
MAX_SUBSTEPS = 1024


@dataclass(frozen=True)
class Tableau:
    """Butcher tableau; the first stage is at the start of the step.

    Attributes:
        c: times of the later stages, as shares of the step.
        a: their rows of coefficients.
        b: weights of the result.
        error: weights of the difference to an embedded result of lower order; one more
            than `b`, the last for the field at the end of the step. Empty if none.
    """

    c: tuple[float, ...]
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    error: tuple[float, ...] = ()

    @property
    def adaptive(self) -> bool:
        return bool(self.error)


TABLEAUX: dict[str, Tableau] = {
    "euler": Tableau((), (), (1.0,)),
    "midpoint": Tableau((0.5,), ((0.5,),), (0.0, 1.0)),
    "rk4": Tableau(
        (1 / 3, 2 / 3, 1.0),
        ((1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
        (1 / 8, 3 / 8, 3 / 8, 1 / 8),
    ),
    "rk4_classic": Tableau(
        (0.5, 0.5, 1.0),
        ((0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)),
        (1 / 6, 1 / 3, 1 / 3, 1 / 6),
    ),
    "bosh3": Tableau(
        (0.5, 0.75),
        ((0.5,), (0.0, 0.75)),
        (2 / 9, 1 / 3, 4 / 9),
        (2 / 9 - 7 / 24, 1 / 3 - 1 / 4, 4 / 9 - 1 / 3, -1 / 8),
    ),
    "dopri5": Tableau(
        (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0),
        (
            (1 / 5,),
            (3 / 40, 9 / 40),
            (44 / 45, -56 / 15, 32 / 9),
            (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
            (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        ),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
        (
            35 / 384 - 1951 / 21600,
            0.0,
            500 / 1113 - 22642 / 50085,
            125 / 192 - 451 / 720,
            -2187 / 6784 + 12231 / 42400,
            11 / 84 - 649 / 6300,
            -1 / 60,
        ),
    ),
}


def integrate(
    field: FieldFunction,
    u: Tensor,
    t: Tensor,
    steps: list[Tensor],
    *,
    method: str,
    rtol: float = 1e-6,
    atol: float = 1e-6,
    first_stage: Tensor | None = None,
) -> list[Tensor]:
    """Follows a batch of states through successive intervals.

    Methods with an embedded error ("dopri5", "bosh3") halve their step until the error
    of each step, root mean square over the batch in units of ``atol + rtol |u|``, is
    at most one: torchdiffeq's criterion. Others make one step an interval, as there.

    Args:
        field: callable ``field(t, u)``.
        u: initial states, ``[W, *state]``.
        t: initial times, broadcastable against `u`.
        steps: lengths of the intervals, each broadcastable against `u`.
        method: a key of ``TABLEAUX``.
        rtol, atol: tolerances of the methods with an embedded error.
        first_stage: ``field(t, u)`` where it is known.

    Returns:
        States at the ends of the intervals, each ``[W, *state]``.
    """
    solver = _Solver(field, TABLEAUX[method], rtol, atol)
    stage, states, substeps = first_stage, [], 1
    for number, h in enumerate(steps):
        last = number == len(steps) - 1
        while (result := solver.interval(u, t, h, stage, substeps, last)) is None:
            substeps *= 2
            if substeps > MAX_SUBSTEPS:
                raise RuntimeError(
                    f"{method} needs more than {MAX_SUBSTEPS} steps between two "
                    f"samples for rtol {rtol:g}, atol {atol:g}: the field is too "
                    "steep. Lower the learning rate, or use a fixed-step method."
                )
        u, stage = result
        t = t + h
        states.append(u)
    return states


@dataclass(frozen=True)
class _Solver:
    """A field, the method that solves it, and the tolerances of its errors."""

    field: FieldFunction
    tableau: Tableau
    rtol: float
    atol: float

    def interval(
        self,
        u: Tensor,
        t: Tensor,
        h: Tensor,
        stage: Tensor | None,
        substeps: int,
        last: bool,
    ) -> tuple[Tensor, Tensor | None] | None:
        """State and stage at the end of an interval; None if the error is too large.

        Args:
            u, t, stage: state, time and, where it is known, field at its start.
            h: its length.
            substeps: number of steps it is cut into.
            last: whether no interval follows.
        """
        h = h / substeps
        for number in range(substeps):
            begin, ended = u, last and number == substeps - 1
            u, stages = self.step(u, t, h, stage)
            t, stage = t + h, None
            if self.tableau.adaptive:
                # The stage at the end starts the next step; after the last one only the
                # error estimate reads it, and no gradient passes through.
                with torch.set_grad_enabled(torch.is_grad_enabled() and not ended):
                    stage = self.field(t, u)
                if not self.accurate(begin, u, [*stages, stage], h):
                    return None
        return u, stage

    def step(
        self, u: Tensor, t: Tensor, h: Tensor, stage: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """The state one step later, and the stages of the step."""
        stages = [self.field(t, u) if stage is None else stage]
        size = h.to(u.dtype)
        for c, row in zip(self.tableau.c, self.tableau.a, strict=True):
            stages.append(self.field(t + c * h, u + size * _combine(row, stages)))
        return u + size * _combine(self.tableau.b, stages), stages

    @torch.no_grad()
    def accurate(
        self, begin: Tensor, end: Tensor, stages: list[Tensor], h: Tensor
    ) -> bool:
        """Whether the error of a step is within the tolerances."""
        error = h.to(begin.dtype) * _combine(self.tableau.error, stages)
        allowed = self.atol + self.rtol * torch.maximum(begin.abs(), end.abs())
        ratio = (error / allowed).square().mean().item()
        # Not a number: smaller steps do not help; the caller sees it in the states.
        return not ratio > 1.0 or ratio == float("inf")


def _combine(weights: tuple[float, ...], stages: list[Tensor]) -> Tensor:
    terms = [(w, k) for w, k in zip(weights, stages, strict=True) if w != 0.0]
    weight, stage = terms[0]
    total = weight * stage
    for weight, stage in terms[1:]:
        total = torch.add(total, stage, alpha=weight)
    return total
