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
        for i in range(len(x)):
            if i > 0:
                x[i].baddbmm_(self.lower[i - 1], x[i - 1], alpha=-1)
            x[i] = _triangular(self.diagonal[i], x[i])
        return x

    def solve_transposed(
        self, rhs: Float[Tensor, "n B D *R"]
    ) -> Float[Tensor, "n B D *R"]:
        """Solution of ``L^T x = rhs``.

        Of standard normal numbers: a draw with the inverse of the matrix as covariance.
        """
        x = rhs.clone() if rhs.dim() == 4 else rhs.unsqueeze(-1).clone()
        return self._back_(x).reshape(rhs.shape)

    def _back_(self, x: Float[Tensor, "n B D R"]) -> Float[Tensor, "n B D R"]:
        last = len(x) - 1
        for i in range(last, -1, -1):
            if i < last:
                x[i].baddbmm_(self.lower[i].mT, x[i + 1], alpha=-1)
            x[i] = _triangular(self.diagonal[i].mT, x[i], upper=True)
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
    root = torch.empty_like(diagonal)
    below = torch.empty_like(lower)
    positive = torch.ones(batch, dtype=torch.bool, device=diagonal.device)
    block = diagonal[0]
    for i in range(n):
        root[i], info = torch.linalg.cholesky_ex(block)
        positive &= info == 0
        if i < n - 1:
            below[i] = _triangular(root[i], lower[i].mT).mT
            block = torch.baddbmm(diagonal[i + 1], below[i], below[i].mT, alpha=-1)
    return BlockCholesky(root, below, positive)


def _triangular(matrix: Tensor, rhs: Tensor, *, upper: bool = False) -> Tensor:
    return torch.linalg.solve_triangular(matrix, rhs, upper=upper)
