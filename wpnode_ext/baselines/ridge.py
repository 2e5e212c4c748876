"""Ridge regression on streams of rows, one factorisation for all ridges."""

from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from ..closed_form.rows import Gram, Rows, Spectrum, Triangle

# Multiplications up to which rows are taken in by QR, which keeps all digits.
_QR_WORK = 1e11


class RidgeRegression:
    """``argmin |A c - y|^2 + beta |c|^2`` for any `beta`, from blocks of rows.

    Feature matrices of random features have condition numbers near 1e13 in their
    normal equations, so a triangular factor of the rows is kept (float64) unless the
    problem is large.

    Args:
        n_rows, n_columns: expected size, which decides between the two.
    """

    def __init__(self, n_rows: int, n_columns: int) -> None:
        small = n_rows * n_columns**2 <= _QR_WORK
        self._rows: Rows = Triangle() if small else Gram()
        self._factors: tuple[Tensor, Tensor, Tensor] | None = None

    def add(self, a: Float[Tensor, "M J"], y: Float[Tensor, "M O"]) -> None:
        """Takes in M more rows."""
        self._rows.add(a, y)
        self._factors = None

    def solve(self, beta: float) -> Float[Tensor, "J O"]:
        """The coefficients; without a ridge those of least norm."""
        if self._factors is None:
            a, b = square_system(self._rows.spectrum())
            u, s, vh = torch.linalg.svd(a)
            self._factors = (s, vh.T, u.T @ b)
        s, v, b = self._factors
        resolved = s > len(s) * torch.finfo(s.dtype).eps * s[0]
        gain = torch.where(resolved, s / (s.square() + beta), 0.0)
        return v @ (gain[:, None] * b)


def square_system(
    kept: Spectrum,
) -> tuple[Float[Tensor, "J J"], Float[Tensor, "J O"]]:
    """J rows with the same normal equations as all that were taken in."""
    root = sqrt(kept.n_rows)
    return root * kept.s[:, None] * kept.v.T * kept.rms, root * kept.b
