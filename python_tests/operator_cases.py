"""Shapes for tests of the operators, and random tensors of these shapes."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """One call: shape of the series, layout of the segments, kind of weights."""

    n_samples: int
    state: int
    ell: int
    q: int
    batch: int = 1
    starts: tuple[int, ...] | None = None
    per_segment: bool = False

    @property
    def n_segments(self) -> int:
        if self.starts is not None:
            return len(self.starts)
        return (self.n_samples - 1 - self.ell) // self.q + 1

    def start_tensor(self, device: torch.device | str = "cpu") -> Tensor | None:
        if self.starts is None:
            return None
        return torch.tensor(self.starts, dtype=torch.int64, device=device)

    def series(self, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
        shape = (self.batch, self.n_samples, self.state)
        return torch.randn(shape, dtype=torch.float64).to(device, dtype)

    def segments(
        self, dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> Tensor:
        shape = (self.batch, self.n_segments, self.state)
        return torch.randn(shape, dtype=torch.float64).to(device, dtype)

    def weights(self, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        rows = (self.n_segments,) if self.per_segment else ()
        shape = (*rows, self.ell + 1)
        return torch.randn(shape, dtype=torch.float64).to(device, wide)


SCATTERED = (0, 0, 1, 5, 5, 9, 30, 31, 59)

CASES = {
    "plain": Case(100, 3, 10, 2),
    "one segment": Case(11, 3, 10, 1),
    "one segment, q > ell": Case(12, 2, 10, 40),
    "q = 1": Case(64, 5, 8, 1),
    "q > ell": Case(257, 5, 20, 33),
    "q = ell + 1": Case(200, 4, 6, 7),
    "D = 1": Case(101, 1, 4, 7),
    "odd D": Case(333, 7, 50, 2),
    "batch": Case(90, 3, 12, 3, batch=4),
    "D past a block": Case(50, 129, 6, 3),
    "wide state": Case(40, 300, 8, 1, batch=2),
    "several tiles": Case(3001, 3, 50, 2),
    "long segments": Case(900, 40, 400, 5),
    "shortest segments": Case(30, 2, 2, 1),
    "scattered": Case(80, 3, 20, 1, batch=2, starts=SCATTERED),
    "scattered rows": Case(80, 3, 20, 1, starts=SCATTERED, per_segment=True),
    "scattered, wide": Case(80, 150, 20, 1, starts=SCATTERED),
    "rows": Case(100, 3, 10, 2, batch=2, per_segment=True),
    "rows, several tiles": Case(2500, 2, 30, 4, per_segment=True),
    "no batch": Case(50, 3, 10, 2, batch=0),
    "no state": Case(50, 0, 10, 2),
    "no segment": Case(50, 3, 10, 2, starts=()),
}

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def small_cases() -> pytest.MarkDecorator:
    """Cases small enough for finite differences, cut to a few channels."""
    small = {
        "uniform": Case(17, 2, 6, 2, batch=2),
        "q > ell": Case(15, 2, 2, 5),
        "scattered": Case(14, 2, 4, 1, batch=2, starts=(0, 0, 3, 9)),
        "rows": Case(13, 2, 4, 3, per_segment=True),
        "scattered rows": Case(14, 2, 4, 1, starts=(0, 2, 2, 9), per_segment=True),
    }
    return pytest.mark.parametrize("case", small.values(), ids=small.keys())
