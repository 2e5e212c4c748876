"""Damped Gauss-Newton (Levenberg) on a batch of windows, in units of the noise."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .block_tridiagonal import BlockCholesky, factor
from .steps import Step

# Residuals of the model's steps, and the derivatives of the steps by the states.
Line = tuple[Float[Tensor, "m B D"], Float[Tensor, "m B D D"]]

# Damping, in units of the precision of an observation. The least keeps matrices
# definite where a state is neither seen nor linked; it moves no minimum.
LEAST_DAMPING = 1e-10
FIRST_DAMPING = 1e-2
LARGEST_DAMPING = 1e8
# Relative rise of the cost that rounding alone may cause.
ROUNDING = 1e-10


class StepFailed(ArithmeticError):
    """Raised when a field cannot be improved; the field remains unchanged."""


@dataclass(frozen=True)
class Windows:
    """Windows of one length over N samples; neighbours share at least `overlap`.

    Each sample is taken from the window in which it lies farthest from the ends.

    Attributes:
        starts: first sample of each window, ``[W]``, evenly spread.
        length: samples of a window.
        n_samples: length N of the record.
    """

    starts: Int[Tensor, " W"]
    length: int
    n_samples: int

    @classmethod
    def over(cls, n_samples: int, length: int, overlap: int) -> "Windows":
        if length < 2 or not 0 <= overlap < length:
            raise ValueError(
                "`window` must be >= 2 and `overlap` between 0 and window - 1; "
                f"got {length} and {overlap}."
            )
        length = min(length, n_samples)
        room = n_samples - length
        count = 1 if room == 0 else -(-room // max(1, length - overlap)) + 1
        starts = torch.arange(count) * room // max(1, count - 1)
        return cls(starts, length, n_samples)

    def chunks(self, size: int) -> tuple[Int[Tensor, " B"], ...]:
        """Indices of the windows, `size` of them at a time."""
        return torch.arange(len(self.starts)).split(max(1, size))

    def rows(self, windows: Int[Tensor, " B"]) -> Int[Tensor, "L B"]:
        """Samples of some of the windows, one window a column."""
        return torch.arange(self.length)[:, None] + self.starts[windows]

    def own_links(self, windows: Int[Tensor, " B"]) -> Float[Tensor, "m B 1"]:
        """1 for links that are in no earlier window, as windows may overlap; else 0."""
        own = torch.ones(self.length - 1, len(windows), 1, dtype=torch.float64)
        for column, window in enumerate(windows.tolist()):
            if window > 0:
                shared = self.starts[window - 1] + self.length - self.starts[window]
                own[: max(0, int(shared) - 1), column] = 0.0
        return own

    def take(
        self, into: Float[Tensor, "N D"], x: Float[Tensor, "L B D"], windows: Tensor
    ) -> None:
        """Writes the samples that belong to the given windows into a record."""
        for column, window in enumerate(windows.tolist()):
            first, stop = self._own(window)
            offset = int(self.starts[window])
            into[first:stop] = x[first - offset : stop - offset, column]

    def _own(self, window: int) -> tuple[int, int]:
        """Samples nearer to the middle of this window than to that of another."""
        starts, last = self.starts, len(self.starts) - 1
        half = self.length / 2
        first, stop = 0, self.n_samples
        if window > 0:
            first = int((starts[window - 1] + starts[window]) / 2 + half)
        if window < last:
            stop = int((starts[window] + starts[window + 1]) / 2 + half)
        return first, stop


@dataclass(frozen=True)
class Problem:
    """``sum seen |data - x|^2 + sum link |x_{n+1} - Psi(x_n)|^2`` over x.

    States `x` are divided by `scale`, the noise. Time is the first axis; after
    :meth:`cut` the second axis counts windows.

    Attributes:
        step: the model Psi, in physical units.
        data: observations, ``[N, D]``.
        seen: 1 where a value was observed, ``[N, D]``.
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
        if windows.all():
            return self
        names = ("data", "seen", "link", "t", "h")
        return replace(
            self, **{name: getattr(self, name)[:, windows] for name in names}
        )

    def with_process_noise(self, factor: float) -> "Problem":
        """The same problem with `factor` times the process noise."""
        return replace(self, link=self.link / factor**2)

    def cost(
        self, x: Float[Tensor, "L B D"], jump: Float[Tensor, "m B D"] | None = None
    ) -> Float[Tensor, " B"]:
        """The cost of each window; pass `jump` if it is known."""
        if jump is None:
            ahead = self.step(*self.before(x)) / self.scale
            jump = x[1:] - ahead.reshape(x[1:].shape)
        total = (self.seen * (self.data - x).square()).sum((0, 2))
        return total + (self.link * jump.square()).sum((0, 2))

    def linearise(self, x: Float[Tensor, "L B D"]) -> Line:
        """The residuals ``x_{n+1} - Psi(x_n)`` and the derivatives ``dPsi/dx``."""
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
        """Normal equations of a Gauss-Newton step from residuals and derivatives.

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

    def precision(
        self, x: Float[Tensor, "L B D"], line: Line | None = None
    ) -> BlockCholesky:
        """Factor of the normal equations at `x`: the precision of the states."""
        diagonal, lower, _ = self.assemble(x, *(line or self.linearise(x)))
        diagonal.diagonal(dim1=-2, dim2=-1).add_(LEAST_DAMPING)
        return factor(diagonal, lower)

    def before(self, x: Float[Tensor, "L B D"]) -> tuple[Tensor, Tensor, Tensor]:
        """States, times and intervals at the start of every step of the model."""
        u = (x[:-1] * self.scale).reshape(-1, x.shape[-1])
        return u, self.t[:-1].reshape(-1), self.h.reshape(-1)


@dataclass(frozen=True)
class Minimum:
    """States that :func:`minimise` found.

    Attributes:
        x: ``[L, B, D]``.
        converged: windows whose last step was below the tolerance, ``[B]``.
        iterations: number of steps, refused ones included.
        line: residuals and derivatives of the model's steps at `x`, or None.
    """

    x: Float[Tensor, "L B D"]
    converged: Bool[Tensor, " B"]
    iterations: int
    line: Line | None


def minimise(
    problem: Problem,
    x: Float[Tensor, "L B D"],
    max_iterations: int,
    tolerance: float,
    *,
    keep_line: bool = False,
) -> Minimum:
    """States of every window that minimise its cost.

    A step that would raise the cost of a window is refused and repeated with more
    damping. The model is linearised together with its cost, except after the last step,
    where only `keep_line` needs it.

    Args:
        problem: windows, see :meth:`Problem.cut`.
        x: first states.
        max_iterations: most steps.
        tolerance: a window has converged when the root mean square of a step is below.
        keep_line: whether the result has the line at its states.
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
        trial, size, positive = _step(
            part, now, (line[0][:, active], line[1][:, active]), damping[active]
        )
        resting = (damping[active] <= FIRST_DAMPING) & (size <= tolerance)
        last = tried == max_iterations or bool(resting.all())
        ahead = None if last and not keep_line else part.linearise(trial)
        value = part.cost(trial, None if ahead is None else ahead[0])
        slack = ROUNDING * cost[active]
        better = (value <= cost[active] + slack) & positive & size.isfinite()
        numbers = active.nonzero().flatten()
        taken = numbers[better]
        x[:, taken], cost[taken] = trial[:, better], value[better]
        if ahead is not None:
            for old, new in zip(line, ahead, strict=True):
                old[:, taken] = new[:, better]
        done[numbers] = better & resting
        damping[numbers] = _damped(damping[active], better)
        active = active & ~done & (damping <= LARGEST_DAMPING)
        if ahead is None and active.any() and tried < max_iterations:
            # Some window refused the step that was to be the last.
            line = problem.linearise(x)
    return Minimum(x, done, tried, line if keep_line else None)


def _step(
    part: Problem, x: Float[Tensor, "L B D"], line: Line, damping: Float[Tensor, " B"]
) -> tuple[Float[Tensor, "L B D"], Float[Tensor, " B"], Bool[Tensor, " B"]]:
    """States after a damped step, its size, and whether its matrix was definite."""
    diagonal, lower, rhs = part.assemble(x, *line)
    diagonal.diagonal(dim1=-2, dim2=-1).add_(damping[:, None])
    system = factor(diagonal, lower)
    change = system.solve(rhs)
    return x + change, change.square().mean((0, 2)).sqrt(), system.positive


def _damped(
    damping: Float[Tensor, " B"], better: Bool[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """Damping of the next steps: less after an accepted step, else more."""
    eased = damping / 10
    eased = torch.where(eased < FIRST_DAMPING / 10, LEAST_DAMPING, eased)
    return torch.where(better, eased, (10 * damping).clamp(min=FIRST_DAMPING))
