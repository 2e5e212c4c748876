"""Neural fields in the variational form of a whole record (Zhao et al., 2025)."""

from dataclasses import dataclass
from functools import partial
from math import ceil, pi
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..data import Series
from ..training.batches import epoch_generator
from ..training.trainer import Task
from ..weak.segments import Runs, gap_free_runs
from .node import CosineSchedule, NodeBaseline
from .splines import choose_smoothing, cutoff_of, sine_basis, smoothed, smoothing_of

# Fewest samples of a segment.
_SHORTEST = 16


@dataclass(kw_only=True, eq=False)
class VFNODE(NodeBaseline):
    """A network fitted to the weak form with sines on segments of a smoothed record.

    For segments of length T and ``g_m(t) = sqrt(2 / T) sin(pi m t / T)`` the loss is
    the mean over segments and components of ``sum_m (int f g_m + int y g_m')^2``, where
    y is the smoothing spline of the data and f the natural spline through the values
    of the field at its nodes. Both integrals are products with matrices that are
    computed once.

    Args:
        smoothing: parameter p of the smoothing spline, see
            :func:`~wpnode_ext.baselines.splines.smoothing_spline`; it depends on the
            unit of time. By default from `cutoff_hz`, or from the noise of the data.
        cutoff_hz: frequency at which the spline halves an oscillation.
        segment: samples of a segment, 16 or more; None takes every record whole, as the
            authors do.
        basis: number of sines; by default as many as the smoothing lets pass.
        basis_batch: sines drawn for a step of the optimiser; None takes all.
        batch: segments of a step.

    The other arguments are those of :class:`NodeBaseline`.

    Attributes:
        smoothing_: the parameter that was used.
        basis_: number of sines by samples of a segment.
    """

    epochs: int = 2000
    patience: int | None = 400
    smoothing: float | None = None
    cutoff_hz: float | None = None
    segment: int | None = 1000
    basis: int | None = None
    basis_batch: int | None = None
    batch: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_least(segment=_SHORTEST, basis=1, basis_batch=1, batch=1)
        self._check_positive("cutoff_hz")

    def _task(self, field: nn.Module, series: Series) -> Task:
        h = series.times.diff().median().item()
        if self.smoothing is not None:
            self.smoothing_ = self.smoothing
        elif self.cutoff_hz is not None:
            self.smoothing_ = smoothing_of(2 * pi * self.cutoff_hz, h)
        else:
            self.smoothing_ = choose_smoothing(series)
        curve = smoothed(series, self.smoothing_)
        objective = VariationalObjective(field)
        self.basis_ = {}
        runs = gap_free_runs(curve.n_samples, lengths=curve.lengths, t=curve.t)
        for first in segment_samples(runs, self.segment, series.dt is not None):
            t = curve.times[first[0]]
            count = self._count((t[-1] - t[0]).item(), len(t), h)
            self.basis_[len(t)] = count
            objective.add(curve.v, curve.times, first, count)
        if objective.n_segments == 0:
            raise ValueError(
                f"`v` must have {_SHORTEST} samples without a gap; it has fewer."
            )
        source = SegmentBatches(objective, self.batch, self.basis_batch, self.seed)
        schedule = partial(CosineSchedule, epochs=self.epochs, warm=0.05)
        return Task(source, objective, schedule=schedule)

    def _count(self, length: float, samples: int, h: float) -> int:
        if self.basis is not None:
            return self.basis
        passed = ceil(length * cutoff_of(self.smoothing_, h) / pi)
        # Above half of the Nyquist frequency there is only rounding and noise.
        return max(1, min(passed, samples // 2))


def segment_samples(
    runs: Runs, length: int | None, alike: bool
) -> list[Int[Tensor, "S L"]]:
    """Samples of segments that cover the runs, grouped by their length.

    Args:
        runs: stretches without a gap.
        length: samples of a segment; None takes runs whole.
        alike: segments of one length have the same times up to a shift.
    """
    groups: dict[int, list[int]] = {}
    for first, stop in runs:
        samples = stop - first
        if samples < _SHORTEST:
            continue
        size = samples if length is None else min(length, samples)
        count = ceil((samples - 1) / (size - 1))
        # Neighbours share a sample; the last one may overlap more, to stay in the run.
        begins = [first + min(i * (size - 1), samples - size) for i in range(count)]
        groups.setdefault(size, []).extend(begins)
    found = []
    for size, begins in groups.items():
        rows = torch.tensor(begins)[:, None] + torch.arange(size)
        found += [rows] if alike else list(rows.split(1))
    return found


class VariationalObjective(nn.Module):
    """The variational loss of segments; matrices and integrals of data are kept.

    Args:
        field: the field to train.
    """

    def __init__(self, field: nn.Module) -> None:
        super().__init__()
        self.field = field
        self._groups: list[tuple[Tensor, Tensor, Tensor]] = []

    @property
    def n_segments(self) -> int:
        return sum(len(states) for states, _, _ in self._groups)

    def sizes(self) -> list[tuple[int, int]]:
        """Segments and sines of every group."""
        return [(len(states), len(phi)) for states, phi, _ in self._groups]

    def add(
        self,
        y: Float[Tensor, "N D"],
        t: Float[Tensor, " N"],
        samples: Int[Tensor, "S L"],
        count: int,
    ) -> None:
        """Adds segments whose times differ only by a shift."""
        kind = next(self.field.parameters()).dtype
        on_f, on_y = map(torch.from_numpy, sine_basis(t[samples[0]].numpy(), count))
        states = y[samples]
        right = on_y @ states
        self._groups.append((states.to(kind), on_f.to(kind), right.to(kind)))

    def residual(
        self, group: int, segments: Tensor, rows: Tensor | None
    ) -> Float[Tensor, "S M D"]:
        """``int f g_m + int y g_m'`` for segments and, where given, some sines."""
        states, phi, right = self._groups[group]
        phi, right = (phi, right) if rows is None else (phi[rows], right[:, rows])
        f = self.field(torch.zeros(()), states[segments])
        return phi @ f + right[segments]

    def forward(self, batch: "SegmentBatch") -> tuple[Tensor, Tensor]:
        r = self.residual(batch.group, batch.segments, batch.rows)
        share = 1.0
        if batch.rows is not None:
            share = len(self._groups[batch.group][1]) / len(batch.rows)
        loss = share * r.square().sum(1).mean()
        return loss, torch.zeros_like(loss)

    def total(self, weak: Tensor, strong: Tensor) -> Tensor:
        return weak


@dataclass(frozen=True)
class SegmentBatch:
    """Segments of one group, and the sines that test them."""

    group: int
    segments: Int[Tensor, " B"]
    rows: Int[Tensor, " M"] | None

    def to(self, device: Any) -> "SegmentBatch":
        return self


class SegmentBatches:
    """All segments in random order, a few at a time."""

    def __init__(
        self, objective: VariationalObjective, size: int, sines: int | None, seed: int
    ) -> None:
        self._sizes, self._size = objective.sizes(), size
        self._sines, self._seed = sines, seed

    def epoch(self, number: int) -> list[SegmentBatch]:
        draw = epoch_generator(self._seed, number)
        batches = []
        for group, (segments, basis) in enumerate(self._sizes):
            for part in torch.randperm(segments, generator=draw).split(self._size):
                rows = None
                if self._sines is not None and self._sines < basis:
                    rows = torch.randperm(basis, generator=draw)[: self._sines]
                batches.append(SegmentBatch(group, part, rows))
        order = torch.randperm(len(batches), generator=draw).tolist()
        return [batches[i] for i in order]
