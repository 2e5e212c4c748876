"""Gauss-Newton with Levenberg damping on a batch of windows, in units of the noise."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .block_tridiagonal import factor
from .exponential_step import ExponentialStep
from .steps import ModelStep

Step = ModelStep | ExponentialStep
# What the steps of a model miss, and their derivatives by the states.
Line = tuple[Float[Tensor, "m B D"], Float[Tensor, "m B D D"]]

# Damping, in units of the precision of an observation. The least keeps matrices
# definite where a state is neither seen nor linked; it moves no minimum.
LEAST_DAMPING = 1e-10
FIRST_DAMPING = 1e-2
LARGEST_DAMPING = 1e8
# Relative rise of the cost that rounding alone may cause.
ROUNDING = 1e-10


class StepFailed(ArithmeticError):
    """A field could not be improved; the one before stands."""


@dataclass(frozen=True)
class Problem:
    """``sum seen |data - x|^2 + sum link |x_{n+1} - Psi(x_n)|^2`` over x.

    States `x` are divided by `scale`, the noise. Time is the first axis; after
    :meth:`cut` a second axis counts windows.

    Attributes:
        step: the model Psi, in physical units.
        data: observations, ``[N, D]``.
        seen: 1 where a value is there, ``[N, D]``.
        link: precision of the model from sample to sample, 0 across gaps,
            ``[N - 1, D]``.
        scale: ``[D]``.
        t, h: times of the samples and lengths of the intervals, ``[N]``, ``[N - 1]``.
    """

    step: Step
    data: Float[Tensor, "N ..."]
    seen: Float[Tensor, "N ..."]
    link: Float[Tensor, "m ..."]
    scale: Float[Tensor, " D"]
    t: Float[Tensor, "N ..."]
    h: Float[Tensor, "m ..."]

    def cut(self, rows: Int[Tensor, "L B"]) -> "Problem":
        """The windows made of the given samples."""
        return replace(
            self,
            data=self.data[rows],
            seen=self.seen[rows],
            link=self.link[rows[:-1]],
            t=self.t[rows],
            h=self.h[rows[:-1]],
        )

    def pick(self, windows: Bool[Tensor, " B"]) -> "Problem":
        """Some of the windows."""
        names = ("data", "seen", "link", "t", "h")
        return replace(
            self, **{name: getattr(self, name)[:, windows] for name in names}
        )

    def with_process_noise(self, factor: float) -> "Problem":
        """The same with steps that may err by so many times as much."""
        return replace(self, link=self.link / factor**2)

    def cost(
        self, x: Float[Tensor, "L B D"], jump: Float[Tensor, "m B D"] | None = None
    ) -> Float[Tensor, " B"]:
        """The sum that is minimised, for each window; `jump` if it is known."""
        if jump is None:
            ahead = self.step(*self.before(x)) / self.scale
            jump = x[1:] - ahead.reshape(x[1:].shape)
        total = (self.seen * (self.data - x).square()).sum((0, 2))
        return total + (self.link * jump.square()).sum((0, 2))

    def linearise(self, x: Float[Tensor, "L B D"]) -> Line:
        """What the model's steps miss, ``x_{n+1} - Psi(x_n)``, and ``dPsi/dx``."""
        ahead, slope = self.step.linearise(*self.before(x))
        jump = x[1:] - (ahead / self.scale).reshape(x[1:].shape)
        # In units of the noise: entry (i, j) is scaled by scale_j / scale_i.
        slope = slope.mul_(self.scale / self.scale[:, None])
        return jump, slope.reshape(*x[1:].shape, x.shape[-1])

    def assemble(
        self,
        x: Float[Tensor, "L B D"],
        jump: Float[Tensor, "m B D"],
        slope: Float[Tensor, "m B D D"],
    ) -> tuple[
        Float[Tensor, "L B D D"], Float[Tensor, "m B D D"], Float[Tensor, "L B D"]
    ]:
        """Normal equations of the step from what :meth:`linearise` gives.

        Returns:
            Diagonal and lower blocks, right-hand side.
        """
        weighted = self.link[..., None] * slope
        rhs = self.seen * (self.data - x)
        rhs[1:] -= self.link * jump
        rhs[:-1] += (weighted.mT @ jump[..., None])[..., 0]
        precision = self.seen.clone()
        precision[1:] += self.link
        diagonal = torch.diag_embed(precision)
        diagonal[:-1] += slope.mT @ weighted
        return diagonal, weighted.neg_(), rhs

    def posterior_std(
        self, x: Float[Tensor, "L B D"], line: Line | None = None
    ) -> Float[Tensor, "L B D"]:
        """Square roots of the diagonal of the inverse of the normal equations."""
        diagonal, lower, _ = self.assemble(x, *(line or self.linearise(x)))
        diagonal.diagonal(dim1=-2, dim2=-1).add_(LEAST_DAMPING)
        blocks = factor(diagonal, lower).inverse_diagonal()
        return blocks.diagonal(dim1=-2, dim2=-1).sqrt()

    def before(self, x: Float[Tensor, "L B D"]) -> tuple[Tensor, Tensor, Tensor]:
        """What the model needs to step from every sample but the last."""
        u = (x[:-1] * self.scale).reshape(-1, x.shape[-1])
        return u, self.t[:-1].reshape(-1), self.h.reshape(-1)


def minimise(
    problem: Problem,
    x: Float[Tensor, "L B D"],
    max_iterations: int,
    tolerance: float,
    *,
    keep_line: bool = False,
) -> tuple[Float[Tensor, "L B D"], Bool[Tensor, " B"], int, Line | None]:
    """States of every window, which of them came to rest, the steps tried.

    A step that would raise the cost of a window is not taken; the window is damped
    more, and tries again. The model is linearised at once where its cost is asked for,
    unless that is the last that is asked; with `keep_line` the line at the states that
    were found is returned, too.
    """
    x, line = x.clone(), problem.linearise(x)
    cost = problem.cost(x, line[0])
    damping = torch.full_like(cost, LEAST_DAMPING)
    done = torch.zeros_like(cost, dtype=torch.bool)
    active = cost.isfinite()
    tried = 0
    while tried < max_iterations and active.any():
        tried += 1
        part, now = problem.pick(active), x[:, active]
        diagonal, lower, rhs = part.assemble(now, *(a[:, active] for a in line))
        diagonal.diagonal(dim1=-2, dim2=-1).add_(damping[active][:, None])
        system = factor(diagonal, lower)
        change = system.solve(rhs)
        trial, size = now + change, change.square().mean((0, 2)).sqrt()
        resting = (damping[active] <= FIRST_DAMPING) & (size <= tolerance)
        last = tried == max_iterations or bool(resting.all())
        ahead = None if last and not keep_line else part.linearise(trial)
        value = part.cost(trial, None if ahead is None else ahead[0])
        slack = ROUNDING * cost[active]
        better = (value <= cost[active] + slack) & system.positive & size.isfinite()
        numbers = active.nonzero().flatten()
        taken = numbers[better]
        x[:, taken], cost[taken] = trial[:, better], value[better]
        if ahead is not None:
            for old, new in zip(line, ahead, strict=True):
                old[:, taken] = new[:, better]
        done[numbers] = better & resting
        eased = damping[active] / 10
        eased = torch.where(eased < FIRST_DAMPING / 10, LEAST_DAMPING, eased)
        raised = (10 * damping[active]).clamp(min=FIRST_DAMPING)
        damping[numbers] = torch.where(better, eased, raised)
        active = active & ~done & (damping <= LARGEST_DAMPING)
        if ahead is None and active.any() and tried < max_iterations:
            # A step that seemed the last was refused somewhere.
            line = problem.linearise(x)
    return x, done, tried, line if keep_line else None
