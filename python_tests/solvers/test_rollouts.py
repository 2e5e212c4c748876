"""Rollouts against exact solutions, and against members that misbehave."""

import math

import pytest
import torch
from torch import Tensor, nn

from wpnode_ext.solvers.rollouts import ADAPTIVE, FIXED_STEP, rollout
from wpnode_ext.systems import KuramotoSivashinsky, Lorenz63

METHODS = ADAPTIVE + FIXED_STEP
# bosh3 would take thousands of steps at the default tolerances.
LOOSE = {"rtol": 1e-6, "atol": 1e-6}


def spiral(t: Tensor, u: Tensor) -> Tensor:
    """``x'' = -x - 0.2 x'`` plus a forcing that shifts with time."""
    x, y = u.unbind(-1)
    return torch.stack([y, -x - 0.2 * y + torch.cos(torch.as_tensor(t))], -1)


def exact_spiral(t: Tensor) -> Tensor:
    # The forced solution 5 sin t, without any decaying part.
    return torch.stack([5 * torch.sin(t), 5 * torch.cos(t)], -1)


def times(n: int, end: float) -> Tensor:
    return torch.linspace(0, end, n, dtype=torch.float64)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_follows_the_exact_solution(method: str) -> None:
    t = times(41, 4.0)
    step = 0.002 if method in FIXED_STEP else None
    result = rollout(spiral, exact_spiral(t[:1]), t, method=method, step=step, **LOOSE)
    error = (result.u[:, 0] - exact_spiral(t)).abs().max()
    assert error < (2e-2 if method == "euler" else 3e-5)
    assert not result.diverged.any()
    assert result.diverged_at.tolist() == [math.inf]


@pytest.mark.parametrize(
    ("method", "order"),
    [("euler", 1), ("midpoint", 2), ("rk4", 4), ("rk4_classic", 4), ("etdrk4", 4)],
)
def test_fixed_step_methods_have_their_order(method: str, order: int) -> None:
    t = times(5, 2.0)
    errors = []
    for step in (0.05, 0.025):
        result = rollout(spiral, exact_spiral(t[:1]), t, method=method, step=step)
        errors.append((result.u[-1, 0] - exact_spiral(t)[-1]).norm().item())
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.3)


def test_exponential_steps_follow_a_stiff_field() -> None:
    # Rates to 7000: Runge-Kutta steps of this length explode at once.
    system, dt = KuramotoSivashinsky(), 0.25
    truth = system.simulate(81, dt, seed=0)
    t = dt * torch.arange(81)
    errors = []
    for step in (dt / 2, dt / 4, dt / 8):
        found = rollout(system.field, truth[:1], t, method="etdrk4", step=step)
        errors.append((found.u[:, 0] - truth).abs().max().item())
    assert errors[2] < 1e-5
    assert math.log2(errors[1] / errors[2]) > 3.5
    exploded = rollout(system.field, truth[:1], t, method="rk4_classic", step=dt / 8)
    assert exploded.diverged.all()


@pytest.mark.parametrize("method", ADAPTIVE)
def test_adaptive_methods_tighten_with_the_tolerance(method: str) -> None:
    t = times(3, 5.0)
    errors = []
    for tolerance in (1e-4, 1e-7):
        result = rollout(
            spiral,
            exact_spiral(t[:1]),
            t,
            method=method,
            rtol=tolerance,
            atol=tolerance,
        )
        errors.append((result.u[:, 0] - exact_spiral(t)).abs().max().item())
    assert errors[1] < errors[0] / 30


def test_rk4_is_the_three_eighths_rule_and_rk4_classic_is_not() -> None:
    def cubic(t: Tensor, u: Tensor) -> Tensor:
        return u**3

    h, u = 0.1, 0.9
    ends = {}
    for method in ("rk4", "rk4_classic"):
        start = torch.tensor([[u]], dtype=torch.float64)
        ends[method] = rollout(cubic, start, [0.0, h], method=method).u[-1].item()
    k1 = u**3
    k2 = (u + h * k1 / 3) ** 3
    k3 = (u + h * (k2 - k1 / 3)) ** 3
    k4 = (u + h * (k1 - k2 + k3)) ** 3
    assert ends["rk4"] == pytest.approx(u + h * (k1 + 3 * k2 + 3 * k3 + k4) / 8, 1e-15)
    k2 = (u + h * k1 / 2) ** 3
    k3 = (u + h * k2 / 2) ** 3
    k4 = (u + h * k3) ** 3
    classic = u + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6
    assert ends["rk4_classic"] == pytest.approx(classic, 1e-15)


def test_steps_end_at_the_requested_times_of_any_spacing() -> None:
    t = torch.tensor([0.0, 0.013, 0.1, 0.55, 0.56], dtype=torch.float64)
    result = rollout(spiral, exact_spiral(t[:1]), t, method="rk4", step=0.01)
    assert (result.u[:, 0] - exact_spiral(t)).abs().max() < 1e-9


@pytest.mark.parametrize("method", METHODS)
def test_members_that_blow_up_do_not_disturb_the_others(method: str) -> None:
    def field(t: Tensor, u: Tensor) -> Tensor:
        x, y = u.unbind(-1)
        return torch.stack([x**2, -y], -1)

    # x = x0 / (1 - x0 t): infinite at t = 1 and t = 1/2, bounded for the others.
    starts = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [2.0, 1.0], [0.0, 1.0]]).double()
    t = times(121, 3.0)
    result = rollout(field, starts, t, method=method, step=0.002, **LOOSE)
    assert result.diverged.tolist() == [True, False, True, False]
    assert result.diverged_at[0].item() == pytest.approx(1.0, abs=0.051)
    assert result.diverged_at[2].item() == pytest.approx(0.5, abs=0.051)
    gone = result.t >= result.diverged_at[0]
    assert result.u[gone, 0].isnan().all() and result.u[~gone, 0].isfinite().all()
    tolerance = 3e-3 if method == "euler" else 2e-5
    torch.testing.assert_close(result.u[:, 1, 0], -1 / (1 + t), rtol=0, atol=tolerance)
    alone = rollout(field, starts[[1, 3]], t, method=method, step=0.002, **LOOSE)
    torch.testing.assert_close(result.u[:, [1, 3]], alone.u, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", ["dopri5", "rk4_classic"])
def test_a_field_that_is_not_finite_ends_only_the_member_that_meets_it(
    method: str,
) -> None:
    def field(t: Tensor, u: Tensor) -> Tensor:
        return torch.where(u < 0.5, torch.full_like(u, float("nan")), -u)

    starts = torch.tensor([[1.0], [100.0]], dtype=torch.float64)
    result = rollout(field, starts, times(31, 3.0), method=method)
    assert result.diverged.tolist() == [True, False]
    assert result.diverged_at[0].item() == pytest.approx(math.log(2), abs=0.11)
    assert result.u[-1, 1].item() == pytest.approx(100 * math.exp(-3.0), rel=1e-4)


def test_late_times_do_not_cost_accuracy() -> None:
    late = 1e7 + times(11, 1.0)
    result = rollout(lambda t, u: -u, torch.ones(1, 1).double(), late)
    expected = torch.exp(-(late - late[0]))
    assert (result.u[:, 0, 0] - expected).abs().max() < 1e-7


def test_members_that_need_too_many_steps_count_as_diverged() -> None:
    def field(t: Tensor, u: Tensor) -> Tensor:
        # The second entry of a state is its rate: 1, or stiff.
        distance = u[:, :1] - torch.cos(torch.as_tensor(t))
        return torch.cat([-u[:, 1:] * distance, torch.zeros_like(distance)], -1)

    starts = torch.tensor([[1.0, 1.0], [1.0, 1e4]], dtype=torch.float64)
    result = rollout(field, starts, times(3, 2.0), max_steps=100)
    assert result.diverged.tolist() == [False, True]


def test_every_member_of_any_batch_meets_the_tolerance() -> None:
    system = Lorenz63()
    u = system.simulate(60, 0.05)
    t = times(11, 0.5)
    quiet = torch.zeros(200, 3, dtype=torch.float64)
    starts = torch.cat([u[:1], quiet])
    alone = rollout(system.field, u[:1], t, rtol=1e-6, atol=1e-6)
    crowd = rollout(system.field, starts, t, rtol=1e-6, atol=1e-6)
    truth = u[:11]
    error = (crowd.u[:, 0] - truth).abs().max()
    assert error <= 2 * (alone.u[:, 0] - truth).abs().max() + 1e-9


def test_modules_are_evaluated_in_float64_and_not_changed() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, t: Tensor, u: Tensor) -> Tensor:
            return torch.tanh(self.layer(u))

    net = Net()
    result = rollout(net, torch.zeros(3, 2), [0.0, 0.1])
    assert result.u.dtype == torch.float64 and not result.u.requires_grad
    assert net.layer.weight.dtype == torch.float32
    kept = rollout(net, torch.zeros(3, 2), [0.0, 0.1], dtype=None)
    assert kept.u.dtype == torch.float32


def test_one_time_returns_the_start() -> None:
    starts = torch.randn(2, 4, 3, dtype=torch.float64)
    result = rollout(lambda t, u: -u, starts, [0.0])
    assert torch.equal(result.u, starts[None])


def test_bad_requests_are_refused() -> None:
    u0 = torch.zeros(1, 2)
    with pytest.raises(ValueError, match="`method` must be one of dopri5.*got 'rk5'"):
        rollout(spiral, u0, [0.0, 1.0], method="rk5")
    with pytest.raises(ValueError, match="Add a batch axis"):
        rollout(spiral, u0[0], [0.0, 1.0])
    with pytest.raises(ValueError, match="`t` must be 1-D and strictly increasing"):
        rollout(spiral, u0, [0.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="`u0` must be finite"):
        rollout(spiral, u0 + float("nan"), [0.0, 1.0])
    with pytest.raises(ValueError, match="`step` must be positive"):
        rollout(spiral, u0, [0.0, 1.0], method="euler", step=-0.1)
