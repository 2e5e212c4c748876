"""Default problems for the CUDA kernels, and the least traffic of each."""

from dataclasses import dataclass
from typing import Any

import torch

OPERATORS = ("corr", "weak_loss", "weak_loss_grad", "corr_t", "corr_w")
PURPOSES = {
    "corr": "residual",
    "weak_loss": "residual",
    "weak_loss_grad": "loss_gradient",
    "corr_t": "adjoint",
    "corr_w": "weight_gradient",
}


@dataclass(frozen=True)
class Shape:
    """One series; traffic is counted on one block in ``sampling``."""

    name: str
    samples: int
    state: int
    ell: int
    q: int
    dtype: torch.dtype = torch.float32
    sampling: int = 1

    @property
    def segments(self) -> int:
        return (self.samples - 1 - self.ell) // self.q + 1

    def least_bytes(self, operator: str) -> int:
        """Bytes of every input and output, once; left-hand sides have type of sums."""
        series = self.samples * self.state * self.dtype.itemsize
        wide = max(self.dtype.itemsize, 4)
        count = self.segments * self.state
        residual = count * (wide if "loss" in operator else self.dtype.itemsize)
        weights = (self.ell + 1) * wide
        return series * (2 if operator == "weak_loss_grad" else 1) + residual + weights

    def operations(self, operator: str) -> int:
        """Number of multiplications and additions, doubled for the gradient."""
        once = 2 * self.segments * self.state * (self.ell + 1)
        return once * (2 if operator == "weak_loss_grad" else 1)

    def plan(self, operator: str) -> dict[str, Any]:
        """The decomposition that the kernels choose."""
        from cuda_sim.kernels import Segments, Weights, plan

        return plan(
            Segments(self.ell, self.q),
            Weights(torch.ones(self.ell + 1)),
            PURPOSES[operator],
            self.dtype,
            (1, self.samples, self.state),
        )


SHAPES = (
    Shape("Lorenz-63", 10_000, 3, 50, 2),
    Shape("Lorenz-63 float64", 10_000, 3, 50, 2, torch.float64),
    Shape("Lorenz-96", 100_000, 40, 80, 2, sampling=31),
    Shape("Kuramoto-Sivashinsky", 100_000, 64, 60, 2, sampling=31),
    Shape("reanalysis", 1_460, 18_432, 8, 1, sampling=31),
    Shape("reanalysis bfloat16", 1_460, 18_432, 8, 1, torch.bfloat16, sampling=31),
)
