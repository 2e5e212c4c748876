"""Overlapping windows over a record, and what each contributes to the whole."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


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

    def rows(self, windows: Int[Tensor, " B"]) -> Int[Tensor, "L B"]:
        """Samples of some of the windows, one window a column."""
        return torch.arange(self.length)[:, None] + self.starts[windows]

    def own_links(self, windows: Int[Tensor, " B"]) -> Float[Tensor, "m B 1"]:
        """1 for the links no earlier window has: evenly spread windows may share."""
        own = torch.ones(self.length - 1, len(windows), 1, dtype=torch.float64)
        for column, window in enumerate(windows.tolist()):
            if window > 0:
                shared = self.starts[window - 1] + self.length - self.starts[window]
                own[: max(0, int(shared) - 1), column] = 0.0
        return own

    def take(
        self, into: Float[Tensor, "N D"], x: Float[Tensor, "L B D"], windows: Tensor
    ) -> None:
        """Writes what the given windows contribute into a record."""
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
