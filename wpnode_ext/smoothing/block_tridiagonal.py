"""Symmetric positive definite block-tridiagonal systems, many at a time.

Blocks are laid out ``[n, B, D, D]``: block row first, so that every step of the
elimination works on one contiguous batch of B matrices. Work and memory grow with n.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class BlockCholesky:
    """Cholesky factor of B matrices; built by :func:`factor`.

    The matrix is ``L L^T`` with lower-triangular blocks ``diagonal[i]`` and, below
    them, ``lower[i]`` in block row ``i + 1``.

    Attributes:
        diagonal: ``[n, B, D, D]``.
        lower: ``[n - 1, B, D, D]``.
        positive: which of the B matrices are positive definite; solutions of the others
            are meaningless.
    """

    diagonal: Float[Tensor, "n B D D"]
    lower: Float[Tensor, "m B D D"]
    positive: Bool[Tensor, " B"]

    def solve(self, rhs: Float[Tensor, "n B D *R"]) -> Float[Tensor, "n B D *R"]:
        """Solution of every system for its right-hand side, or for R of them."""
        x = rhs.clone() if rhs.dim() == 4 else rhs.unsqueeze(-1).clone()
        return self._back_(self.solve_lower_(x)).reshape(rhs.shape)

    def solve_lower_(self, x: Float[Tensor, "n B D R"]) -> Float[Tensor, "n B D R"]:
        """Solution of ``L y = x``, which takes the place of `x`."""
        rows, roots, below = x.unbind(), self.diagonal.unbind(), self.lower.unbind()
        for i, (row, root) in enumerate(zip(rows, roots, strict=True)):
            if i > 0:
                row.baddbmm_(below[i - 1], rows[i - 1], alpha=-1)
            row.copy_(_triangular(root, row))
        return x

    def solve_transposed(
        self, rhs: Float[Tensor, "n B D *R"]
    ) -> Float[Tensor, "n B D *R"]:
        """Solution of ``L^T x = rhs``.

        If `rhs` is standard normal, the covariance of x is the inverse of the matrix.
        """
        x = rhs.clone() if rhs.dim() == 4 else rhs.unsqueeze(-1).clone()
        return self._back_(x).reshape(rhs.shape)

    def _back_(self, x: Float[Tensor, "n B D R"]) -> Float[Tensor, "n B D R"]:
        """Solution of ``L^T y = x``, which takes the place of `x`."""
        rows, roots = x.unbind(), self.diagonal.mT.unbind()
        above, last = self.lower.mT.unbind(), len(x) - 1
        for i in range(last, -1, -1):
            if i < last:
                rows[i].baddbmm_(above[i], rows[i + 1], alpha=-1)
            rows[i].copy_(_triangular(roots[i], rows[i], upper=True))
        return x

    def inverse_diagonal(self) -> Float[Tensor, "n B D D"]:
        """Diagonal blocks of the inverse: covariances, where the matrix is a precision.

        From the last block row upwards,
        ``X_i = L_ii^-T (I + L_i+1,i^T X_i+1 L_i+1,i) L_ii^-1``.
        """
        n, _, d, _ = self.diagonal.shape
        blocks = torch.empty_like(self.diagonal)
        eye = torch.eye(d, dtype=blocks.dtype, device=blocks.device)
        inner = eye.expand_as(blocks[0])
        for i in range(n - 1, -1, -1):
            if i < n - 1:
                inner = eye + self.lower[i].mT @ blocks[i + 1] @ self.lower[i]
            root = _triangular(self.diagonal[i].mT, inner, upper=True)
            block = _triangular(self.diagonal[i].mT, root.mT, upper=True)
            blocks[i] = (block + block.mT) / 2
        return blocks


@torch.no_grad()
def factor(
    diagonal: Float[Tensor, "n B D D"], lower: Float[Tensor, "m B D D"]
) -> BlockCholesky:
    """Cholesky factor of B block-tridiagonal matrices.

    ``L_ii L_ii^T = A_ii - L_i,i-1 L_i,i-1^T`` and ``L_i+1,i = A_i+1,i L_ii^-T``.

    Args:
        diagonal: symmetric blocks ``A_ii``, ``[n, B, D, D]``.
        lower: blocks ``A_i+1,i`` below them, ``[n - 1, B, D, D]``.
    """
    n, batch, d, _ = diagonal.shape
    if lower.shape != (n - 1, batch, d, d) or diagonal.shape[3] != d:
        raise ValueError(
            f"`lower` must have shape {[n - 1, batch, d, d]} for `diagonal` "
            f"{list(diagonal.shape)}; got {list(lower.shape)}."
        )
    root, below = torch.empty_like(diagonal), torch.empty_like(lower)
    failed = torch.empty(n, batch, dtype=torch.int32, device=diagonal.device)
    block, roots, belows = diagonal[0], root.unbind(), below.unbind()
    # Square blocks in place: this loop is most of a smoother's time.
    for i, (left, last) in enumerate(zip(roots, failed.unbind(), strict=True)):
        torch.linalg.cholesky_ex(block, out=(left, last))
        if i < n - 1:
            here = belows[i]
            here.copy_(_triangular(left.mT, lower[i], upper=True, left=False))
            block = torch.baddbmm(diagonal[i + 1], here, here.mT, alpha=-1)
    return BlockCholesky(root, below, (failed == 0).all(0))


def _triangular(
    matrix: Tensor, rhs: Tensor, *, upper: bool = False, left: bool = True
) -> Tensor:
    return torch.linalg.solve_triangular(matrix, rhs, upper=upper, left=left)
