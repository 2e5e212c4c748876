"""Multistep-penalty neural ODE (Chakraborty, Chung, Arcomano and Maulik, 2024)."""

from dataclasses import dataclass
from functools import partial
from math import ceil
from statistics import fmean
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..data import Series
from ..solvers.strong import solve_windows
from ..training.batches import epoch_generator
from ..training.trainer import Task
from ..weak.segments import window_starts
from .node import CosineSchedule, NodeBaseline


@dataclass(frozen=True)
class Penalty:
    """Schedule of the weight `mu` of the jumps between windows.

    Attributes:
        first: weight of the first stage.
        stages: number of equal stages of the training; each has ten times the weight
            of the one before. With "auto" a stage ends when the error stands still.
        watched: epochs that "auto" compares with as many before.
        change: relative change of their mean error below which it stands still.
    """

    first: float = 1e-5
    stages: int | Literal["auto"] = 8
    watched: int = 10
    change: float = 0.01


@dataclass(kw_only=True, eq=False)
class MPNODE(NodeBaseline):
    """A network fitted to trajectories that are cut into windows a penalty joins.

    A sub-trajectory of ``K S`` steps has K windows; each starts from a state of its
    own, ``q_k``, the first from the data. The loss is ``L_GT + mu L_P`` with the mean
    squared error of all samples, at the start of a window that of ``q_k``, and the mean
    squared jump ``|q_k - (end of window k - 1)|^2``: twice the authors', so that one
    window gives the strong loss. `mu` grows by decades.

    Args:
        windows, steps: K and S.
        states: "reinit" takes ``q_k`` from the data in every step; "persistent" keeps
            and improves them, with ten times the learning rate: multiple shooting,
            which cleans its own starting states.
        stages: number of equal stages of the training in which `mu` is ``1e-5, 1e-4,
            ...``; "auto" multiplies it by ten when the mean of `L_GT` over an epoch
            stands still, see :class:`Penalty`.
        stride: distance of sub-trajectories; default 1, and ``K S`` for "persistent".
            An epoch draws as many of them as are needed to cover the record once.
        batch: sub-trajectories of a step of the optimiser.
        solver: of the windows, one step a sample where it has fixed steps.

    The other arguments are those of :class:`NodeBaseline`.

    Attributes:
        starts_: first samples of the sub-trajectories, ``[R]``.
        states_: the ``q_k`` after training in the units of the data, ``[R, K, D]``;
            None where they are those of the data.
    """

    epochs: int = 500
    clip: float | None = 1.0
    windows: int = 10
    steps: int = 10
    states: Literal["reinit", "persistent"] = "reinit"
    stages: int | Literal["auto"] = 8
    stride: int | None = None
    batch: int = 8
    solver: str = "rk4"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.states not in ("reinit", "persistent"):
            raise ValueError(
                f"`states` must be 'reinit' or 'persistent'; got {self.states!r}."
            )
        if isinstance(self.stages, str) and self.stages != "auto":
            raise ValueError(f"`stages` must be >= 1 or 'auto'; got {self.stages!r}.")
        if self.stages != "auto":
            self._check_least(stages=1)
        self._check_least(windows=1, steps=1, stride=1, batch=1)

    def _task(self, field: nn.Module, series: Series) -> Task:
        starts = self._starts(series)
        kind = next(field.parameters()).dtype
        self._objective = PenaltyObjective(
            field,
            series.v.to(kind),
            series.times,
            starts,
            windows=self.windows,
            steps=self.steps,
            persistent=self.states == "persistent",
            solver=self.solver,
        )
        source = SubTrajectories(
            self._objective,
            self.batch,
            seed=self.seed,
            epochs=self.epochs,
            penalty=Penalty(stages=self.stages),
            drawn=self._drawn(series),
        )
        groups = []
        if self._objective.q is not None:
            groups.append({"params": [self._objective.q], "lr": 10 * self.lr})
        schedule = partial(CosineSchedule, epochs=self.epochs)
        return Task(source, self._objective, groups, schedule)

    def _keep(self, module: nn.Module, *arguments: Any, **options: Any) -> None:
        super()._keep(module, *arguments, **options)
        if hasattr(self, "_objective"):
            self.starts_ = self._objective.starts
            self.states_ = None
            if self._objective.q is not None:
                first = self._objective.first_states(torch.arange(len(self.starts_)))
                self.states_ = self.scaler_.inverse(first.detach().double())
            del self._objective

    def _starts(self, series: Series) -> Int[Tensor, " R"]:
        samples = self.windows * self.steps + 1
        apart = self.windows * self.steps if self.states == "persistent" else 1
        runs = series.runs
        starts = window_starts(runs, samples, self.stride or apart)
        if len(starts) == 0:
            raise ValueError(
                f"`v` must have the {samples} samples of a sub-trajectory in a row; it "
                "has fewer. Use fewer `windows` or `steps`."
            )
        return starts

    def _drawn(self, series: Series) -> int:
        """Sub-trajectories of an epoch."""
        whole = ceil(series.n_samples / (self.windows * self.steps))
        return min(whole, len(self._starts(series)))


@dataclass(kw_only=True, eq=False)
class PersistentMPNODE(MPNODE):
    """:class:`MPNODE` with persistent states: multiple shooting."""

    states: Literal["reinit", "persistent"] = "persistent"


class PenaltyObjective(nn.Module):
    """Error of all samples, and jumps between windows; all windows are solved at once.

    Args:
        field: the field to train.
        v, t: data ``[N, D]`` and their times.
        starts: first samples of the sub-trajectories.
        windows, steps: K and S.
        persistent: states ``q_k`` are parameters.
        solver: of the windows.

    Attributes:
        mu: weight of the jumps; :class:`SubTrajectories` sets it.
        errors: ``L_GT`` of every batch since the list was cleared.
        q: the states of windows 1 .. K - 1, ``[R, K - 1, D]``, or None.
    """

    def __init__(
        self,
        field: nn.Module,
        v: Float[Tensor, "N D"],
        t: Float[Tensor, " N"],
        starts: Int[Tensor, " R"],
        *,
        windows: int,
        steps: int,
        persistent: bool = False,
        solver: str = "rk4",
    ) -> None:
        super().__init__()
        self.field, self.starts = field, starts
        self._v, self._t, self._solver = v, t, solver
        self._windows, self._steps = windows, steps
        self._begin = steps * torch.arange(windows)
        self.mu = 0.0
        self.errors: list[float] = []
        self.q: nn.Parameter | None = None
        if persistent and windows > 1:
            self.q = nn.Parameter(v[starts[:, None] + self._begin[1:]].clone())

    def first_states(self, rows: Int[Tensor, " B"]) -> Float[Tensor, "B K D"]:
        """States the windows start from."""
        data = self._v[self.starts[rows, None] + self._begin]
        if self.q is None:
            return data
        return torch.cat([data[:, :1], self.q[rows]], dim=1)

    def forward(self, batch: "Rows") -> tuple[Tensor, Tensor]:
        """``(mu L_P, L_GT)`` of some sub-trajectories."""
        rows, k, s = batch.rows, self._windows, self._steps
        q = self.first_states(rows)
        n = self.starts[rows, None] + self._begin
        times = [self._t[n + i].flatten()[:, None] for i in range(s + 1)]
        hops = [b - a for a, b in zip(times[:-1], times[1:], strict=True)]
        path = solve_windows(
            self.field, q.flatten(0, 1), times[0], hops, method=self._solver
        )
        u = torch.stack(path).unflatten(1, (len(rows), k))
        end = u[-1]
        # At the border of two windows the state of the next one is the prediction.
        u = torch.cat([u[:-1], torch.cat([q[:, 1:], end[:, -1:]], 1)[None]])
        wanted = torch.stack([self._v[n + i] for i in range(1, s + 1)])
        error = (u - wanted).square().sum(-1).mean()
        if k == 1:
            return torch.zeros_like(error), error
        jumps = (q[:, 1:] - end[:, :-1]).square().sum(-1).mean()
        return self.mu * jumps, error

    def total(self, weak: Tensor, strong: Tensor) -> Tensor:
        self.errors.append(strong.item())
        return strong + weak


@dataclass(frozen=True)
class Rows:
    """Numbers of sub-trajectories."""

    rows: Int[Tensor, " B"]

    def to(self, device: Any) -> "Rows":
        return self


class SubTrajectories:
    """Random sub-trajectories, `drawn` an epoch; sets the penalty of every epoch."""

    def __init__(
        self,
        objective: PenaltyObjective,
        size: int,
        *,
        seed: int,
        epochs: int,
        penalty: Penalty,
        drawn: int,
    ) -> None:
        self._objective, self._size, self._seed = objective, size, seed
        self._epochs, self._penalty, self._drawn = epochs, penalty, drawn
        self._errors: list[float] = []
        objective.mu = penalty.first

    def epoch(self, number: int) -> list[Rows]:
        if isinstance(self._penalty.stages, str):
            self._raise_if_still()
        else:
            stage = number * self._penalty.stages // self._epochs
            self._objective.mu = self._penalty.first * 10.0**stage
        self._objective.errors.clear()
        order = torch.randperm(
            len(self._objective.starts), generator=epoch_generator(self._seed, number)
        )
        return [Rows(part) for part in order[: self._drawn].split(self._size)]

    def _raise_if_still(self) -> None:
        """Multiplies the penalty by ten when the error stands still."""
        watched = self._penalty.watched
        if self._objective.errors:
            self._errors.append(fmean(self._objective.errors))
        if len(self._errors) < 2 * watched:
            return
        before = sum(self._errors[-2 * watched : -watched])
        now = sum(self._errors[-watched:])
        if abs(now - before) < self._penalty.change * before:
            self._objective.mu *= 10.0
            self._errors.clear()
