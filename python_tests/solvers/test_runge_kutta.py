"""Steps against exact solutions, order conditions and torchdiffeq."""

import math

import pytest
import torch
from torchdiffeq import odeint

from problems import lorenz63_field
from trajectories import lorenz63
from wpnode_ext.solvers.runge_kutta import TABLEAUX, integrate

ORDER = {"euler": 1, "midpoint": 2, "rk4": 4, "rk4_classic": 4, "bosh3": 3, "dopri5": 5}


def clock(value: float = 0.0) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def pendulum(t, u):
    x, w = u[..., :1], u[..., 1:]
    return torch.cat([w, -torch.sin(x) + 0.3 * torch.cos(2 * t)], dim=-1)


@pytest.mark.parametrize("method", list(TABLEAUX))
def test_halving_the_step_divides_the_error_by_two_to_the_order(method) -> None:
    u0 = torch.tensor([[1.0, 0.2]], dtype=torch.float64)
    exact = odeint(
        pendulum, u0, torch.tensor([0.0, 1.0]).double(), rtol=1e-13, atol=1e-13
    )[1]
    loose = {"rtol": 1e9, "atol": 1e9}  # accept every step: the bare scheme
    errors = []
    for n in (8, 16):
        steps = [clock(1.0 / n)] * n
        end = integrate(pendulum, u0, clock(), steps, method=method, **loose)[-1]
        errors.append((end - exact).abs().max().item())
    slope = math.log2(errors[0] / errors[1])
    assert slope == pytest.approx(ORDER[method], abs=0.45)


@pytest.mark.parametrize("method", ["euler", "midpoint", "rk4"])
def test_fixed_steps_are_those_of_torchdiffeq(method) -> None:
    u0 = torch.randn(5, 2, dtype=torch.float64)
    t = torch.linspace(0, 1, 6, dtype=torch.float64)
    theirs = odeint(pendulum, u0, t, method=method)[1:]
    ours = integrate(pendulum, u0, clock(), list(t.diff()), method=method)
    torch.testing.assert_close(torch.stack(ours), theirs, atol=1e-12, rtol=0)


@pytest.mark.parametrize("dt", [0.01, 0.1])
def test_dopri5_meets_its_tolerance_on_lorenz_as_torchdiffeq_does(dt) -> None:
    scale = 50.0  # scaled states, as in training

    def field(t, u):
        return lorenz63_field(u * scale) / scale

    u0 = lorenz63(400, 0.05)[::5] / scale
    t = torch.tensor([0.0, dt], dtype=torch.float64)
    exact = odeint(field, u0, t, rtol=1e-12, atol=1e-12)[1]
    theirs = odeint(field, u0, t, rtol=1e-6, atol=1e-6)[1]
    (ours,) = integrate(field, u0, clock(), [clock(dt)], method="dopri5")
    # The criterion is a root mean square over the batch.
    assert (ours - exact).square().mean().sqrt() < 1e-6
    assert (ours - theirs).square().mean().sqrt() < 1e-6


def test_a_steep_field_is_given_smaller_steps_and_a_tame_one_a_single_step() -> None:
    calls = []

    def steep(t, u):
        calls.append(1)
        return -60.0 * u

    u0 = torch.ones(4, 1, dtype=torch.float64)
    (end,) = integrate(steep, u0, clock(), [clock(0.25)], method="dopri5")
    assert (end - math.exp(-15.0)).abs().max() < 1e-6
    assert len(calls) > 7
    calls.clear()
    integrate(
        lambda t, u: steep(t, u) / 600, u0, clock(), [clock(0.01)], method="dopri5"
    )
    assert len(calls) == 7


def test_a_given_first_stage_is_not_evaluated_again() -> None:
    calls = []

    def field(t, u):
        calls.append(1)
        return pendulum(t, u)

    u0 = torch.randn(3, 2, dtype=torch.float64)
    steps = [clock(0.01)] * 3
    plain = integrate(field, u0, clock(), steps, method="dopri5")
    needed = len(calls)
    calls.clear()
    stage = pendulum(clock(), u0)
    given = integrate(field, u0, clock(), steps, method="dopri5", first_stage=stage)
    assert len(calls) == needed - 1
    assert torch.equal(torch.stack(plain), torch.stack(given))


def test_members_of_a_batch_may_have_steps_of_their_own() -> None:
    u0 = torch.randn(3, 2, dtype=torch.float64)
    t0 = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    h = torch.tensor([[0.1], [0.2], [0.05]], dtype=torch.float64)
    (together,) = integrate(pendulum, u0, t0, [h], method="rk4_classic")
    alone = [
        integrate(pendulum, u0[i], t0[i], [h[i]], method="rk4_classic")[0]
        for i in range(3)
    ]
    torch.testing.assert_close(together, torch.stack(alone))


@pytest.mark.parametrize("method", list(TABLEAUX))
def test_gradients_pass_through_the_steps(method) -> None:
    u0 = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    stiffness = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)

    def run(u0, stiffness):
        return integrate(
            lambda t, u: -stiffness * u.sin(),
            u0,
            clock(),
            [clock(0.1), clock(0.2)],
            method=method,
            rtol=1.0,
            atol=1.0,
        )[-1]

    assert torch.autograd.gradcheck(run, (u0, stiffness))


def test_too_many_steps_raise_and_fields_of_nan_give_states_of_nan() -> None:
    u0 = torch.ones(1, 1, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="more than 1024 steps between two samples"):
        integrate(lambda t, u: -1e9 * u, u0, clock(), [clock(1.0)], method="dopri5")
    (end,) = integrate(
        lambda t, u: u * math.nan, u0, clock(), [clock(1.0)], method="dopri5"
    )
    assert end.isnan().all()
