"""Runge-Kutta and exponential steps, and their derivatives."""

import pytest
import torch
from torch import Tensor

from wpnode_ext.fields import LibraryField
from wpnode_ext.smoothing.steps import ExponentialStep, ModelStep, make_step
from wpnode_ext.solvers.runge_kutta import integrate


@pytest.mark.parametrize("substeps", [1, 2])
def test_derivatives_of_a_step_are_those_of_finite_differences(substeps: int) -> None:
    field = LibraryField(3, 2).double()
    torch.nn.init.normal_(field.coefficients)
    step = ModelStep(field, torch.Size([3]), substeps=substeps)
    u = torch.randn(4, 3, dtype=torch.float64)
    t, h = torch.zeros(4).double(), torch.tensor([0.01, 0.02, 0.05, 0.1]).double()
    ahead, slope = step.linearise(u, t, h)
    torch.testing.assert_close(ahead, step(u, t, h))
    for j in range(3):
        nudge = 1e-5 * torch.eye(3).double()[j]
        column = (step(u + nudge, t, h) - step(u - nudge, t, h)) / 2e-5
        torch.testing.assert_close(slope[:, :, j], column, rtol=1e-6, atol=1e-8)


def test_forward_mode_and_chained_jacobians_agree() -> None:
    field = LibraryField(3, 2).double()
    torch.nn.init.normal_(field.coefficients)
    u = torch.randn(5, 3, dtype=torch.float64)
    t, h = torch.zeros(5).double(), torch.full((5,), 0.05).double()
    state = torch.Size([3])

    class Known:
        def __call__(self, t: object, u: Tensor) -> Tensor:
            return field(0.0, u)

        def jacobian(self, u: Tensor) -> Tensor:
            return torch.func.vmap(torch.func.jacrev(field.at))(u)

    chained = ModelStep(Known(), state, substeps=2).linearise(u, t, h)
    plain = ModelStep(lambda t, u: field(0.0, u), state, substeps=2)
    forward = plain.linearise(u, t, h)
    torch.testing.assert_close(chained[0], forward[0])
    torch.testing.assert_close(chained[1], forward[1])


def stiff_field(quadratic: float) -> LibraryField:
    """``x' = -x/2 + y, y' = -x - y/2 + c x z, z' = -80 z + c x^2``: z is slaved."""
    field = LibraryField(3, 2, dtype=torch.float64)
    entries = {
        ((1, 0, 0), 0): -0.5,
        ((0, 1, 0), 0): 1.0,
        ((1, 0, 0), 1): -1.0,
        ((0, 1, 0), 1): -0.5,
        ((1, 0, 1), 1): quadratic,
        ((0, 0, 1), 2): -80.0,
        ((2, 0, 0), 2): quadratic,
    }
    values = torch.zeros_like(field.coefficients)
    for (term, output), value in entries.items():
        values[field.exponents.index(term), output] = value
    field.set_coefficients(values)
    return field


def states(n: int = 4) -> torch.Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(0)).double()


def step_of(field: LibraryField, u: torch.Tensor, dt: float, substeps: int = 1):
    zero = torch.zeros(len(u)).double()
    return ExponentialStep(field, dt, substeps=substeps)(u, zero, zero + dt)


def test_linear_fields_are_integrated_exactly() -> None:
    field, u = stiff_field(0.0), states()
    rates = field.jacobian(torch.zeros(1, 3).double())[0]
    expected = u @ torch.linalg.matrix_exp(0.25 * rates).T
    torch.testing.assert_close(step_of(field, u, 0.25), expected)


@torch.no_grad()
def test_stiff_fields_are_integrated_to_fourth_order() -> None:
    field, u = stiff_field(1.0), states()
    fine = [torch.full((1, 1), 0.2 / 800).double()] * 800
    truth = integrate(field, u, torch.zeros(1, 1).double(), fine, method="rk4_classic")
    errors = [(step_of(field, u, 0.2, n) - truth[-1]).abs().max() for n in (8, 16)]
    assert errors[1] < 1e-4
    assert errors[1] < errors[0] / 2**3.5


def test_derivatives_by_state_and_head() -> None:
    field, u = stiff_field(5.0), states()
    step = ExponentialStep(field, 0.2, substeps=2)
    zero = torch.zeros(len(u)).double()

    def one(x: torch.Tensor) -> torch.Tensor:
        return step(x[None], zero[:1], zero[:1] + 0.2)[0]

    end, slope = step.linearise(u, zero, zero + 0.2)
    torch.testing.assert_close(end, step(u, zero, zero + 0.2))
    torch.testing.assert_close(slope, torch.func.vmap(torch.func.jacrev(one))(u))
    basis = torch.eye(field.n_features, dtype=torch.float64)
    move = step.sensitivity(u, zero + 0.2, basis)
    head = field.coefficients.detach().clone()
    change = torch.randn(head.shape, generator=torch.Generator().manual_seed(2))
    ends = []
    for sign in (1, -1):
        field.set_coefficients(head + sign * 1e-5 * change.double())
        ends.append(step(u, zero, zero + 0.2))
    field.set_coefficients(head)
    expected = (ends[0] - ends[1]) / 2e-5
    found = torch.einsum("mdoj,jo->md", move, change.double())
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def test_gaps_do_not_change_states() -> None:
    step, u = ExponentialStep(stiff_field(1.0), 0.2), states(2)
    zero, h = torch.zeros(2).double(), torch.tensor([0.0, 0.2]).double()
    end, slope = step.linearise(u, zero, h)
    torch.testing.assert_close(end[0], u[0])
    torch.testing.assert_close(slope[0], torch.eye(3).double())
    assert (end[1] != u[1]).any()


@pytest.mark.parametrize(("dt", "kind"), [(0.2, ExponentialStep), (0.01, ModelStep)])
def test_stiffness_decides_the_step(dt: float, kind: type) -> None:
    assert isinstance(make_step(stiff_field(1.0), torch.Size([3]), dt), kind)
