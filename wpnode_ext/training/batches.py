"""Minibatches: contiguous blocks of the record, drawn anew in every epoch.

A block of ``(n - 1) q + ell + 1`` samples holds n segments that share their samples:
the field is evaluated once a sample instead of ``ell + 1`` times a segment. Blocks
begin at a random offset, hence every sample of the record starts a segment in some
epoch. The strong windows of a batch lie in the same blocks, so that their first
Runge-Kutta stage is known.

Where the system has a symmetry, every batch is seen under one of its maps, drawn for
the batch.

An epoch depends on the seed and its number alone. A run that was interrupted continues
with the batches it would have seen, and every process of a group knows all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from ..coordinates.symmetry import Symmetry
from ..data import Series
from ..settings.config import TrainConfig
from ..weak.segments import window_starts

# Blocks a process from which on one more or less does not matter: blocks that do not go
# round among the processes are cut where there are fewer.
_MANY = 8


@dataclass(frozen=True)
class Batch:
    """Samples of the record, with the segments and windows on them.

    Attributes:
        samples: positions in the record, ``[B, L]``.
        segments: first samples of the segments, in the record, ``[B, K]``.
        starts: first samples of the segments, in the row of `samples`, ``[K]``; None
            where segment k begins at ``k q``.
        windows: first samples of the strong windows, in the row of `samples`.
        n_segments, n_windows: numbers over all processes, the divisors of the means.
        image: number of the map that the samples are seen under.
    """

    samples: Int[Tensor, "B L"]
    segments: Int[Tensor, "B K"] | None
    starts: Int[Tensor, " K"] | None
    windows: Int[Tensor, " W"] | slice | None
    n_segments: int
    n_windows: int
    image: int = 0

    def to(self, device: torch.device) -> "Batch":
        moved = {
            name: value.to(device, non_blocking=True)
            for name, value in vars(self).items()
            if isinstance(value, Tensor)
        }
        return replace(self, **moved)


@dataclass(frozen=True)
class _Piece:
    """A block or part of one: first samples of its segments and windows."""

    # Sample from which segments and windows are counted.
    first: int
    segments: range
    windows: range

    def part(self, number: int, of: int) -> "_Piece":
        """One of so many parts; together they have each segment and window once."""
        cut = [
            range_[number * len(range_) // of : (number + 1) * len(range_) // of]
            for range_ in (self.segments, self.windows)
        ]
        return _Piece(self.first, *cut)

    def span(self, segment: int, window: int) -> range:
        """Samples that segments and windows of these lengths lie on."""
        lasts = [(self.segments, segment), (self.windows, window)]
        ends = [(part[0], part[-1] + length) for part, length in lasts if part]
        if not ends:
            return range(0)
        return range(min(first for first, _ in ends), max(stop for _, stop in ends))


def epoch_generator(seed: int, epoch: int) -> torch.Generator:
    """The generator of one epoch; neighbouring seeds and epochs share nothing."""
    return torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)


class Batches:
    """Batches of one record under one configuration.

    Args:
        record: the data.
        config: resolved settings; `method`, `weak`, `strong`, `optim.batch_size` and
            `seed` matter.
        symmetry: one of its maps is drawn for each batch.
        rank, world: this process and their number; each assembles its share only.
    """

    def __init__(
        self,
        record: Series,
        config: TrainConfig,
        *,
        symmetry: Symmetry | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self._runs = record.runs
        self._config = config
        self._images = 1 if symmetry is None else len(symmetry)
        self._rank, self._world = rank, world
        if config.optim.batch_size < world:
            raise ValueError(
                f"`optim.batch_size` must be at least {world}, one sample for each of "
                f"the processes that train together; got {config.optim.batch_size}. "
                "Raise it, or start fewer processes."
            )
        self._window, self._stride = (
            config.strong.window or 2,
            config.strong.stride or 1,
        )
        if config.method == "strong":
            starts = window_starts(record.runs, self._window, self._stride)
            if len(starts) == 0:
                raise ValueError(
                    f"no stretch of the data has the {self._window} samples of a "
                    "strong window without a gap; use a smaller `strong.window`."
                )
            self._refuse_idle(len(starts), "windows")
            return
        weak, batch_size = config.weak, config.optim.batch_size
        long_enough = [run for run in record.runs if run[1] - run[0] > weak.ell]
        if not long_enough:
            raise ValueError(
                f"no stretch of the data has the ell + 1 = {weak.ell + 1} samples a "
                "segment needs without a gap; the longest has "
                f"{record.longest_run}. Use a smaller `ell`."
            )
        self._runs = long_enough
        overhead = config.optim.block_overhead
        shared = max(1, overhead * (weak.ell + 1 - weak.q) // weak.q)
        blocks = max(1, round(batch_size / min(shared, batch_size)))
        segments = -(-batch_size // blocks)
        counts = [self._count(stop - first) for first, stop in self._runs]
        self._refuse_idle(sum(counts), "segments")
        longest = max(counts)
        self._segments = min(segments, longest)
        self._blocks_per_batch = max(1, round(batch_size / self._segments))
        shortest = min(stop - first for first, stop in self._runs)
        # Rows of one length are a rectangular batch; otherwise blocks are laid end to
        # end, and so they are where every segment has weights of its own.
        self._ragged = shortest < self._length(self._segments) or record.dt is None

    def epoch(self, number: int) -> list[Batch]:
        """The batches of an epoch, this process's share of each."""
        generator = epoch_generator(self._config.seed, number)
        strong = self._config.method == "strong"
        draw = self._strong_epoch if strong else self._weak_epoch
        batches = draw(generator)
        # Drawn last: which samples a batch holds does not depend on the symmetry. Each
        # map has its turn: an epoch by chance under few would seem a good one.
        images: list[int] = []
        while len(images) < len(batches):
            images += torch.randperm(self._images, generator=generator).tolist()
        return [
            replace(batch, image=image)
            for batch, image in zip(batches, images, strict=False)
        ]

    def _weak_epoch(self, generator: torch.Generator) -> list[Batch]:
        blocks = self._draw_blocks(generator)
        order = torch.randperm(len(blocks), generator=generator).tolist()
        count = -(-len(blocks) // self._blocks_per_batch)
        shift = torch.rand((), generator=generator).item()
        return [
            self._assemble([blocks[i] for i in order[n::count]], shift)
            for n in range(count)
        ]

    def _strong_epoch(self, generator: torch.Generator) -> list[Batch]:
        stride, size = self._stride, self._config.optim.batch_size
        # A phase that leaves no window (short runs) falls back on the first samples.
        phase = _draw(stride, generator)
        starts = window_starts(self._runs, self._window, stride, phase=phase)
        if len(starts) == 0:
            starts = window_starts(self._runs, self._window, stride)
        starts = starts[torch.randperm(len(starts), generator=generator)]
        steps = torch.arange(self._window)
        return [
            Batch(
                samples=part[self._rank :: self._world, None] + steps,
                segments=None,
                starts=None,
                windows=slice(0, 1),
                n_segments=0,
                n_windows=len(part),
            )
            for part in starts.tensor_split(-(-len(starts) // size))
        ]

    def _count(self, length: int) -> int:
        """Segments of a stretch of `length` samples."""
        return (length - 1 - self._config.weak.ell) // self._config.weak.q + 1

    def _length(self, segments: int) -> int:
        """Samples of a block of `segments` segments."""
        return (segments - 1) * self._config.weak.q + self._config.weak.ell + 1

    def _draw_blocks(self, generator: torch.Generator) -> list[tuple[int, int]]:
        """Pairs (first sample, segments) that cover every run from a random offset."""
        length = self._length(self._segments)
        stride = self._segments * self._config.weak.q
        blocks = []
        for first, stop in self._runs:
            room = stop - first - length
            if room < 0:
                shift = _draw(min(self._config.weak.q, length + room), generator)
                shift = min(shift, stop - first - 1 - self._config.weak.ell)
                blocks.append((first + shift, self._count(stop - first - shift)))
                continue
            offset = _draw(stride, generator)
            last = stop - first - self._config.weak.ell
            # Blocks that reach over an end of the run are moved inside.
            begins = {min(max(s, 0), room) for s in range(-offset, last, stride)}
            blocks += [(first + s, self._segments) for s in sorted(begins)]
        return blocks

    def _assemble(self, blocks: Sequence[tuple[int, int]], shift: float) -> Batch:
        n_segments = sum(n for _, n in blocks)
        strong = self._config.method == "wp" and self._config.lam != 0.0
        n_windows = strong * sum(len(self._windows(n, shift)) for _, n in blocks)
        uneven = len(blocks) % self._world and len(blocks) < _MANY * self._world
        if self._ragged or uneven:
            pieces = [self._piece(s, n, shift if strong else None) for s, n in blocks]
            mine = self._share(pieces) if uneven else pieces[self._rank :: self._world]
            return self._end_to_end(mine, strong, n_segments, n_windows)
        mine = blocks[self._rank :: self._world]
        weak = self._config.weak
        first = torch.tensor([s for s, _ in mine], dtype=torch.int64)[:, None]
        inside = self._windows(self._segments, shift)
        return Batch(
            samples=first + torch.arange(self._length(self._segments)),
            segments=first + weak.q * torch.arange(self._segments),
            starts=None,
            windows=slice(inside.start, inside.stop, inside.step) if strong else None,
            n_segments=n_segments,
            n_windows=n_windows,
        )

    def _piece(self, first: int, segments: int, shift: float | None) -> "_Piece":
        """A whole block."""
        windows = range(0) if shift is None else self._windows(segments, shift)
        begins = range(0, segments * self._config.weak.q, self._config.weak.q)
        return _Piece(first, begins, windows)

    def _share(self, pieces: Sequence["_Piece"]) -> list["_Piece"]:
        """This process's share of blocks that do not go round: each block is cut."""
        # Each block gives the larger part to another process.
        ranks = [(self._rank + turn) % self._world for turn in range(len(pieces))]
        return [
            piece.part(rank, self._world)
            for piece, rank in zip(pieces, ranks, strict=True)
        ]

    def _end_to_end(
        self, pieces: Sequence["_Piece"], strong: bool, n_segments: int, n_windows: int
    ) -> Batch:
        empty = torch.empty(0, dtype=torch.int64)
        samples, segments, starts, windows = [empty], [empty], [empty], [empty]
        begin = 0
        for piece in pieces:
            span = piece.span(self._config.weak.ell + 1, self._window)
            begins = torch.tensor(piece.segments, dtype=torch.int64)
            samples.append(piece.first + torch.tensor(span, dtype=torch.int64))
            segments.append(piece.first + begins)
            starts.append(begin - span.start + begins)
            inside = torch.tensor(piece.windows, dtype=torch.int64)
            windows.append(begin - span.start + inside)
            begin += len(span)
        return Batch(
            samples=torch.cat(samples)[None],
            segments=torch.cat(segments)[None],
            starts=torch.cat(starts),
            windows=torch.cat(windows) if strong else None,
            n_segments=n_segments,
            n_windows=n_windows,
        )

    def _refuse_idle(self, count: int, what: str) -> None:
        """Raises where processes would have nothing to do in any batch."""
        if count < self._world:
            raise ValueError(
                f"the data have {count} {what}, fewer than the {self._world} processes "
                "that train together. Start fewer processes."
            )

    def _windows(self, segments: int, shift: float) -> range:
        """First samples of the strong windows inside a block.

        They span the samples its segments have to themselves, so that an epoch has one
        window every `stride` samples; `shift`, a share, moves them within the block.
        """
        fit = max(0, self._length(segments) - self._window + 1)
        span = min(fit, segments * self._config.weak.q)
        first = int(shift * (fit - span + 1))
        return range(first, first + span, self._stride)


def _draw(bound: int, generator: torch.Generator) -> int:
    return int(torch.randint(max(1, bound), (), generator=generator))
