"""Weak kernel ridge regression against dense algebra, and on Lorenz-63."""

import pytest
import torch

from trajectories import lorenz63, normal
from wpnode_ext.baselines import WKRR, load
from wpnode_ext.baselines.wkrr import WeakKernelProblem, kernel

EPS, DT = 0.3, 0.01


def problem(identity: bool = False, n: int = 40) -> WeakKernelProblem:
    x, y = normal(n, 2, seed=0), normal(n, 2, seed=1)
    if identity:
        return WeakKernelProblem(x, y, torch.ones(1).double(), torch.arange(n))
    bump = torch.tensor([0.2, 0.7, 1.0, 0.7, 0.2]).double()
    return WeakKernelProblem(x, y, bump, torch.arange(0, n - 4, 3))


def matrix(part: WeakKernelProblem) -> torch.Tensor:
    return part.average(torch.eye(len(part.x)).double())


class TestProblem:
    def test_weak_kernel_is_symmetric_and_positive(self) -> None:
        part = problem()
        gram, w = part.gram(EPS), matrix(part)
        torch.testing.assert_close(gram, w @ kernel(part.x, part.x, EPS) @ w.T)
        torch.testing.assert_close(gram, gram.T, rtol=0, atol=1e-14)
        assert torch.linalg.eigvalsh((gram + gram.T) / 2).min() > -1e-14

    def test_without_bumps_it_is_kernel_ridge_regression(self) -> None:
        part = problem(identity=True)
        k = kernel(part.x, part.x, EPS)
        wanted = torch.linalg.solve(k + 0.1 * torch.eye(40).double(), part._wy)
        torch.testing.assert_close(part.solve(part.x, EPS, 0.1), wanted)

    def test_without_bumps_forecasts_are_those_of_scikit_learn(self) -> None:
        ridge = pytest.importorskip("sklearn.kernel_ridge")
        part = problem(identity=True)
        peer = ridge.KernelRidge(kernel="rbf", gamma=1 / (4 * EPS), alpha=0.1)
        peer.fit(part.x.numpy(), part._wy.numpy())
        at = normal(15, 2)
        found = kernel(at, part.x, EPS) @ part.solve(part.x, EPS, 0.1)
        wanted = torch.from_numpy(peer.predict(at.numpy()))
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)

    def test_solution_is_the_formula(self) -> None:
        part = problem()
        w, k = matrix(part), kernel(part.x, part.x, EPS)
        gram = w @ k @ w.T
        ridge = 0.01 * gram.diagonal().mean() * torch.eye(len(w)).double()
        wanted = w.T @ torch.linalg.solve(gram + ridge, part._wy)
        torch.testing.assert_close(part.solve(part.x, EPS, 0.01), wanted)

    def test_few_centres_minimise_their_own_problem(self) -> None:
        part = problem()
        z = part.x[::2]
        alpha = part.solve(z, EPS, 0.05)
        w = matrix(part)
        rows, inner = w @ kernel(part.x, z, EPS), kernel(z, z, EPS)
        size = (rows @ torch.linalg.solve(inner, rows.T)).diagonal().mean()
        gradient = rows.T @ (rows @ alpha - part._wy) + 0.05 * size * inner @ alpha
        assert gradient.abs().max() < 1e-8


class TestLorenz63:
    def test_clean_data(self, tmp_path) -> None:
        u = lorenz63(6000, DT, seed=1)
        model = WKRR(eps=0.5, ridge=1e-12, centres=500).fit(u[:2000], DT)
        found = model.evaluate(
            u[2000:], DT, lyapunov_exponent=0.91, horizon=10.0, starts=10
        )
        assert found.vpt.mean > 4
        model.save(tmp_path / "model.pt")
        again = load(tmp_path / "model.pt")
        t = DT * torch.arange(10)
        assert torch.equal(again.forecast(u[0], t), model.forecast(u[0], t))

    def test_settings_are_chosen_by_forecasts(self) -> None:
        grid = {"widths": (0.1, 1.0), "ridges": (1e-10, 1.0), "finer": (1.0,)}
        u = lorenz63(1200, DT, seed=1)
        model = WKRR(centres=150, **grid).fit(u, DT)
        assert model.ridge_ == pytest.approx(1e-10)

    def test_settings_must_be_given_without_held_out_data(self) -> None:
        with pytest.raises(ValueError, match="`eps` and `ridge` must be given"):
            WKRR(held_out=0.0).fit(lorenz63(300, DT, seed=1), DT)


def test_kernel_regression_without_a_ridge() -> None:
    dt = 0.05
    t = dt * torch.arange(300, dtype=torch.float64)
    u = torch.stack([t.cos(), -t.sin()], 1)
    model = WKRR(eps=0.3, ridge=0.0, centres=30).fit(u, dt)
    assert model.ridge_ == 0.0
    ahead = model.forecast(u[0], t[:20])
    torch.testing.assert_close(ahead, u[:20], atol=0.05, rtol=0)


@pytest.mark.parametrize("centres", [20, 10])
def test_without_a_ridge_the_solution_is_that_of_least_norm(centres: int) -> None:
    torch.manual_seed(0)
    # Every state is there twice, so half of the kernel matrix is redundant.
    x = torch.randn(10, 2).double().repeat(2, 1)
    part = WeakKernelProblem(x, x.sin(), torch.ones(1).double(), torch.arange(20))
    z = x[:centres]
    found = kernel(x, z, 0.3) @ part.solve(z, 0.3, 0.0)
    torch.testing.assert_close(found, x.sin(), atol=1e-7, rtol=0)
