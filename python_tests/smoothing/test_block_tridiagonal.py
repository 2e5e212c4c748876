"""Block-tridiagonal systems against dense linear algebra of numpy."""

import numpy as np
import pytest
import torch

from wpnode_ext.smoothing.block_tridiagonal import factor

SIZES = [(1, 1, 1), (1, 2, 3), (2, 3, 1), (7, 2, 3), (20, 3, 5)]


def systems(
    n: int, batch: int, d: int
) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Random definite matrices by blocks, and the same matrices in full."""
    generator = torch.Generator().manual_seed(n + d)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    # L L^T of a block-bidiagonal L with a dominant diagonal.
    root = normal(n, batch, d, d) * 0.3 + 2 * torch.eye(d, dtype=torch.float64)
    below = normal(n - 1, batch, d, d)
    diagonal = root @ root.mT
    diagonal[1:] += below @ below.mT
    lower = below @ root[:-1].mT
    dense = np.zeros((batch, n * d, n * d))
    for i in range(n):
        here = slice(i * d, (i + 1) * d)
        dense[:, here, here] = diagonal[i].numpy()
        if i < n - 1:
            after = slice((i + 1) * d, (i + 2) * d)
            dense[:, after, here] = lower[i].numpy()
            dense[:, here, after] = lower[i].mT.numpy()
    return diagonal, lower, dense


@pytest.mark.parametrize(("n", "batch", "d"), SIZES)
def test_solutions_are_those_of_the_dense_systems(n: int, batch: int, d: int) -> None:
    diagonal, lower, dense = systems(n, batch, d)
    rhs = torch.randn(n, batch, d, dtype=torch.float64)
    right = rhs.transpose(0, 1).reshape(batch, n * d, 1).numpy()
    expected = np.linalg.solve(dense, right).reshape(batch, n, d)
    system = factor(diagonal, lower)
    assert system.positive.all()
    solution = system.solve(rhs).transpose(0, 1).numpy()
    np.testing.assert_allclose(solution, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("n", "batch", "d"), SIZES)
def test_transposed_solutions_are_a_root_of_the_inverse(
    n: int, batch: int, d: int
) -> None:
    diagonal, lower, dense = systems(n, batch, d)
    # Columns of the identity as right-hand sides: the root itself.
    eye = torch.eye(n * d, dtype=torch.float64).reshape(n, 1, d, n * d)
    found = factor(diagonal, lower).solve_transposed(eye.repeat(1, batch, 1, 1))
    root = found.transpose(0, 1).reshape(batch, n * d, n * d).numpy()
    product = root @ root.transpose(0, 2, 1)
    inverse = np.linalg.inv(dense)
    np.testing.assert_allclose(product, inverse, atol=1e-12 * np.abs(inverse).max())


@pytest.mark.parametrize(("n", "batch", "d"), SIZES)
def test_inverse_blocks_are_those_of_the_dense_inverse(
    n: int, batch: int, d: int
) -> None:
    diagonal, lower, dense = systems(n, batch, d)
    inverse = np.linalg.inv(dense)
    blocks = factor(diagonal, lower).inverse_diagonal()
    for i in range(n):
        here = slice(i * d, (i + 1) * d)
        np.testing.assert_allclose(
            blocks[i].numpy(), inverse[:, here, here], rtol=1e-9, atol=1e-11
        )


def test_a_right_hand_side_is_not_changed() -> None:
    diagonal, lower, _ = systems(5, 2, 3)
    rhs = torch.randn(5, 2, 3, dtype=torch.float64)
    kept = rhs.clone()
    factor(diagonal, lower).solve(rhs)
    torch.testing.assert_close(rhs, kept, rtol=0, atol=0)


def test_only_indefinite_matrices_are_marked_as_not_positive() -> None:
    diagonal, lower, _ = systems(6, 3, 2)
    diagonal[3, 1] = -diagonal[3, 1]
    system = factor(diagonal, lower)
    assert system.positive.tolist() == [True, False, True]


def test_blocks_that_do_not_fit_are_refused() -> None:
    diagonal, lower, _ = systems(6, 3, 2)
    with pytest.raises(ValueError, match=r"`lower` must have shape \[5, 3, 2, 2\]"):
        factor(diagonal, lower[1:])
