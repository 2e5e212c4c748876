"""The step of the coefficients against dense Gauss-Newton, and the choice of ridge."""

import pytest
import torch
from torch import Tensor

from trajectories import lorenz63, normal
from wpnode_ext.data import make_series
from wpnode_ext.fields import LibraryField, RingField
from wpnode_ext.fields.linear import LinearField
from wpnode_ext.smoothing.projected import projected_step
from wpnode_ext.smoothing.smoother import as_problem
from wpnode_ext.smoothing.steps import ModelStep

SIGMA, PROCESS = 0.3, 0.02


def dense_step(field: LinearField, v: Tensor, u: Tensor, dt: float) -> Tensor:
    """Gauss-Newton in states and coefficients together, by autograd and lstsq."""
    n, d = v.shape
    times, h = torch.zeros(n - 1).double(), torch.full((n - 1,), dt).double()
    names = dict(field.named_parameters())
    (name,) = names
    shape = names[name].shape

    def residual(z: Tensor) -> Tensor:
        states = z[: n * d].reshape(n, d)

        def follow(_t: object, w: Tensor) -> Tensor:
            values = {name: z[n * d :].reshape(shape)}
            return torch.func.functional_call(field, values, (0.0, w))

        ahead = ModelStep(follow, torch.Size([d]))(states[:-1], times, h)
        misfit, jump = (states - v) / SIGMA, (states[1:] - ahead) / PROCESS
        return torch.cat([misfit.flatten(), jump.flatten()])

    z = torch.cat([u.flatten(), names[name].detach().flatten()])
    matrix = torch.func.jacrev(residual)(z)
    change = torch.linalg.lstsq(matrix, -residual(z)[:, None]).solution[:, 0]
    return (z + change)[n * d :].reshape(shape)


@pytest.mark.parametrize("kind", ["library", "ring"])
def test_the_step_is_that_of_gauss_newton_in_all_unknowns(kind: str) -> None:
    n, dt = 60, 0.01
    if kind == "library":
        field: LinearField = LibraryField(2, 1).double()
        d = 2
    else:
        field = RingField(LibraryField(3, 1, outputs=1).double(), 5)
        d = 5
    with torch.no_grad():
        field.coefficients.copy_(torch.randn(field.coefficients.shape))
    u = torch.cumsum(0.1 * normal(n, d), 0)
    v = u + SIGMA * normal(n, d)
    series = make_series(v, dt=dt)
    problem = as_problem(series, ModelStep(field, torch.Size([d])), SIGMA, PROCESS)
    found = projected_step(field, problem, u / SIGMA, ridge=1e-12, window=n)
    expected = dense_step(field, v, u, dt)
    # The derivative by the coefficients is of third order in the step.
    torch.testing.assert_close(found.coefficients, expected, rtol=1e-3, atol=1e-3)


def test_missing_values_and_borders_are_left_out() -> None:
    field = LibraryField(2, 1).double()
    torch.nn.init.normal_(field.coefficients)
    u = torch.cumsum(0.1 * normal(80, 2), 0)
    v = u + SIGMA * normal(80, 2)
    v[70:] = float("nan")
    step = ModelStep(field, torch.Size([2]))

    def answer(series) -> Tensor:
        problem = as_problem(series, step, SIGMA, PROCESS)
        x = u[: series.n_samples] / SIGMA
        return projected_step(field, problem, x, ridge=1e-6, window=80).coefficients

    # A series of which nothing was seen tells nothing.
    both = make_series([v[:40], v[40:]], dt=0.01)
    apart = make_series([v[:40], v[40:70]], dt=0.01)
    torch.testing.assert_close(answer(both), answer(apart), rtol=1e-3, atol=1e-4)


def test_draws_have_the_spread_of_estimates_from_many_noise_draws() -> None:
    n, dt, draws = 200, 0.05, 300
    times = dt * torch.arange(n).double()
    clean = torch.exp(-0.3 * times)[:, None]
    field = LibraryField(1, 1).double()
    field.set_coefficients(torch.tensor([[0.0], [-0.3]]).double())
    step = ModelStep(field, torch.Size([1]))
    found = []
    for _ in range(draws):
        v = clean + 0.05 * normal(n, 1)
        problem = as_problem(make_series(v, dt=dt), step, 0.05, 1e-4)
        # The true states and field are where the estimates are linearised.
        found.append(projected_step(field, problem, clean / 0.05, ridge=1e-9, window=n))
    spread = torch.stack([one.coefficients for one in found]).std(0)
    likely = found[-1].draw(4000, torch.Generator().manual_seed(0)).std(0)
    # 300 draws tell a standard deviation to 4 %.
    torch.testing.assert_close(likely, spread, rtol=0.15, atol=0)


def test_evidence_finds_a_ridge_that_shrinks_undetermined_coefficients() -> None:
    clean = lorenz63(1200, 0.01)
    v = clean + SIGMA * normal(1200, 3)
    # Cubic terms are not needed; the evidence keeps them small.
    field = LibraryField(3, 3).double()
    series = make_series(v, dt=0.01)
    problem = as_problem(series, ModelStep(field, torch.Size([3])), SIGMA, 0.01)
    for _ in range(2):
        step = projected_step(field, problem, clean / SIGMA)
        field.set_coefficients(step.coefficients)
    found = projected_step(field, problem, clean / SIGMA)
    field.set_coefficients(found.coefficients)
    assert 10 < found.effective < 60
    truth = torch.stack(
        [
            10 * (clean[:, 1] - clean[:, 0]),
            clean[:, 0] * (28 - clean[:, 2]) - clean[:, 1],
            clean[:, 0] * clean[:, 1] - 8 / 3 * clean[:, 2],
        ],
        -1,
    )
    error = (field(0.0, clean) - truth).square().mean() / truth.square().mean()
    assert error.sqrt() < 0.03
