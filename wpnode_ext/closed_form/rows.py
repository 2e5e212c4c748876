"""Accumulators of least-squares rows that keep no row.

Each keeps enough of ``A c = y`` to solve it, in memory that does not grow with the
number of rows:

- :class:`Triangle` keeps the triangular factor of ``[A, y]``. A QR factorisation of it
  on top of the new rows updates it. It has the singular values of A to rounding.
- :class:`Gram` keeps the sums ``A^T A``, ``A^T y`` and ``y^T y``. It is three times as
  fast, but loses singular values below 1e-8 of the largest to rounding.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Spectrum:
    """Singular value decomposition of A with columns of root mean square one.

    Attributes:
        s: singular values, ``[J]``, of ``A / (rms sqrt(rows))``.
        v: right singular vectors, ``[J, J]``.
        b: ``U^T y / sqrt(rows)``, ``[J, O]``.
        rest: mean square of `y` outside of the range of A, ``[O]``.
        rms: root mean squares of the columns of A, 1 where a column is zero, ``[J]``.
        n_rows: number of rows of A.
        resolution: singular values below this share of the largest are rounding.
    """

    s: Float[Tensor, " J"]
    v: Float[Tensor, "J J"]
    b: Float[Tensor, "J O"]
    rest: Float[Tensor, " O"]
    rms: Float[Tensor, " J"]
    n_rows: int
    resolution: float


class Rows(Protocol):
    """Accumulator of the rows of ``A c = y``."""

    n_rows: int

    def add(self, a: Float[Tensor, "M J"], y: Float[Tensor, "M O"]) -> None:
        """Adds M rows."""

    def restricted(self, basis: Float[Tensor, "J O M"]) -> "Rows":
        """The rows of ``sum_j A_j basis[j, o, m] c_m = y_o``: one output, M unknowns.

        Their number is O times as large. The rows of A are not needed again.
        """
        ...

    def spectrum(self) -> Spectrum:
        """The decomposition that ridge solutions are computed from."""
        ...


class Triangle:
    """Upper triangular factor R of ``[A, y]``."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._r: Tensor | None = None
        self._columns = 0

    def add(self, a: Float[Tensor, "M J"], y: Float[Tensor, "M O"]) -> None:
        rows = torch.cat([a, y], dim=1)
        if self._r is not None:
            rows = torch.cat([self._r, rows])
        self._r = torch.linalg.qr(rows, mode="r").R
        self._columns = a.shape[1]
        self.n_rows += len(a)

    def restricted(self, basis: Float[Tensor, "J O M"]) -> "Triangle":
        r, j = self._factor(), self._columns
        made = Triangle()
        for output in range(basis.shape[1]):
            made.add(r[:, :j] @ basis[:, output], r[:, j + output, None])
        made.n_rows = self.n_rows * basis.shape[1]
        return made

    def spectrum(self) -> Spectrum:
        r, j = self._factor(), self._columns
        rms = _column_scales(r[:, :j].norm(dim=0) / sqrt(self.n_rows))
        u, s, vh = torch.linalg.svd(
            r[:j, :j] / (rms * sqrt(self.n_rows)), full_matrices=False
        )
        b = u.T @ r[:j, j:] / sqrt(self.n_rows)
        rest = r[j:, j:].square().sum(0) / self.n_rows
        eps = torch.finfo(r.dtype).eps
        return Spectrum(s, vh.T, b, rest, rms, self.n_rows, eps * len(rms))

    def _factor(self) -> Tensor:
        """R with at least as many rows as A has columns: zeros where rows are few."""
        if self._r is None:
            raise ValueError("there are no rows to solve; no segment fits the data.")
        lacking = max(0, self._columns - len(self._r))
        return torch.nn.functional.pad(self._r, (0, 0, 0, lacking))


class Gram:
    """Normal equations of the rows."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._aa: Tensor | None = None
        self._ay: Tensor | None = None
        self._yy: Tensor | None = None

    def add(self, a: Float[Tensor, "M J"], y: Float[Tensor, "M O"]) -> None:
        aa, ay, yy = a.T @ a, a.T @ y, y.square().sum(0)
        if self._aa is None or self._ay is None or self._yy is None:
            self._aa, self._ay, self._yy = aa, ay, yy
        else:
            self._aa += aa
            self._ay += ay
            self._yy += yy
        self.n_rows += len(a)

    def restricted(self, basis: Float[Tensor, "J O M"]) -> "Gram":
        aa, ay, yy = self.sums()
        made, heads = Gram(), basis.unbind(1)
        made._aa = sum((b.T @ aa @ b for b in heads), torch.zeros(()))
        columns = zip(heads, ay.unbind(1), strict=True)
        made._ay = sum((b.T @ y for b, y in columns), torch.zeros(()))[:, None]
        made._yy = yy.sum()[None]
        made.n_rows = self.n_rows * basis.shape[1]
        return made

    def spectrum(self) -> Spectrum:
        aa, ay, yy = self.sums()
        rms = _column_scales((aa.diagonal() / self.n_rows).sqrt())
        squares, v = torch.linalg.eigh(aa / (rms * rms[:, None]) / self.n_rows)
        eps = len(rms) * torch.finfo(rms.dtype).eps
        floor = eps * squares[-1].clamp(min=torch.finfo(rms.dtype).tiny)
        s = squares.clamp(min=floor).sqrt()
        b = (v.T @ (ay / rms[:, None])) / self.n_rows / s[:, None]
        rest = (yy / self.n_rows - b.square().sum(0)).clamp(min=0.0)
        return Spectrum(s, v, b, rest, rms, self.n_rows, sqrt(eps))

    def sums(
        self,
    ) -> tuple[Float[Tensor, "J J"], Float[Tensor, "J O"], Float[Tensor, " O"]]:
        """``A^T A``, ``A^T y`` and the sums of squares of `y`."""
        if self._aa is None or self._ay is None or self._yy is None:
            raise ValueError("there are no rows to solve; no segment fits the data.")
        return self._aa, self._ay, self._yy


def _column_scales(rms: Float[Tensor, " J"]) -> Float[Tensor, " J"]:
    return torch.where(rms > 0, rms, torch.ones_like(rms))
