"""MP-NODE: limits of windows and penalty, gradients, persistent states."""

import math
from pathlib import Path
from typing import Literal

import pytest
import torch

from trajectories import lorenz63, normal
from wpnode_ext.baselines import MPNODE, load
from wpnode_ext.baselines.mp_node import (
    Penalty,
    PenaltyObjective,
    Rows,
    SubTrajectories,
)
from wpnode_ext.baselines.node import CosineSchedule
from wpnode_ext.fields import MLPField
from wpnode_ext.solvers.strong import solve_windows, strong_loss

DT = 0.05
A = torch.tensor([[0.0, 1.0], [-1.0, -0.05]]).double()


def oscillator(n: int) -> torch.Tensor:
    step = torch.matrix_exp(DT * A)
    u = [torch.tensor([1.0, 0.0]).double()]
    for _ in range(n - 1):
        u.append(step @ u[-1])
    return torch.stack(u)


def objective(field, v, windows, steps, starts=None, **options) -> PenaltyObjective:
    t = DT * torch.arange(len(v), dtype=torch.float64)
    if starts is None:
        starts = torch.arange(0, len(v) - windows * steps, steps)
    return PenaltyObjective(
        field, v, t, starts, windows=windows, steps=steps, **options
    )


def sub_trajectories(
    whole: PenaltyObjective, epochs: int, stages: int | Literal["auto"]
) -> SubTrajectories:
    penalty = Penalty(stages=stages)
    return SubTrajectories(whole, 4, seed=0, epochs=epochs, penalty=penalty, drawn=5)


class Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(A.clone())

    def forward(self, t, u):
        return u @ self.a.T


def penalised_slope(
    v: torch.Tensor, q: torch.Tensor, mu: float, step: torch.Tensor
) -> torch.Tensor:
    """Slope of ``L_GT + mu L_P`` in the states of three windows of four steps.

    ``q_k`` is compared with its own sample, leads to those of its window, and stands on
    both sides of a jump.
    """
    first = torch.cat([v[:1], q])
    powers = [torch.matrix_power(step, i) for i in range(5)]
    jumps = [first[k] - powers[4] @ first[k - 1] for k in (1, 2)]
    slopes = []
    for k in (1, 2):
        slope = mu * jumps[k - 1] + (first[k] - v[4 * k]) / 6
        for i in range(1, 5 if k == 2 else 4):
            slope += powers[i].T @ (powers[i] @ first[k] - v[4 * k + i]) / 6
        if k == 1:
            slope -= mu * powers[4].T @ jumps[1]
        slopes.append(slope)
    return torch.stack(slopes)


class TestObjective:
    def test_one_window_is_the_strong_loss(self) -> None:
        v, field = oscillator(60), MLPField(2, (8,)).double()
        one = objective(field, v, 1, 6, starts=torch.arange(54))
        one.mu = 1e2
        penalty, error = one(Rows(torch.arange(54)))
        wanted = strong_loss(field, v, dt=DT, window=7, method="rk4")
        torch.testing.assert_close(error, wanted, rtol=1e-13, atol=0)
        assert penalty == 0
        weights = list(field.parameters())
        found = torch.autograd.grad(one.total(penalty, error), weights)
        slopes = torch.autograd.grad(wanted, weights)
        torch.testing.assert_close(found, slopes, rtol=1e-11, atol=1e-14)

    def test_without_penalty_windows_are_independent(self) -> None:
        v, field = oscillator(61), MLPField(2, (8,)).double()
        many = objective(field, v, 3, 5, starts=torch.tensor([0, 15, 30, 45]))
        many.mu = 0.0
        penalty, error = many(Rows(torch.arange(4)))
        assert penalty == 0
        alone = objective(field, v, 1, 5, starts=torch.arange(0, 60, 5))
        squares = 0.0
        for row in range(12):
            start = 5 * row
            _, whole = alone(Rows(torch.tensor([row])))
            last = strong_loss(
                field, v[start : start + 6], dt=DT, window=6, method="rk4"
            )
            torch.testing.assert_close(whole, last)
            inner = strong_loss(
                field, v[start : start + 5], dt=DT, window=5, method="rk4"
            )
            # Ends of windows that have a successor are predicted by its first state.
            squares += 5 * whole if row % 3 == 2 else 4 * inner
        torch.testing.assert_close(error, torch.as_tensor(squares) / 60)

    def test_gradients_of_states_on_a_linear_system(self) -> None:
        v = oscillator(13) + 0.1 * normal(13, 2)
        whole = objective(Linear(), v, 3, 4, torch.tensor([0]), persistent=True)
        whole.mu = 0.7
        assert whole.q is not None
        with torch.no_grad():
            whole.q += 0.05 * normal(*whole.q.shape)
        rows = Rows(torch.tensor([0]))
        whole.total(*whole(rows)).backward()
        assert whole.q.grad is not None
        exact = penalised_slope(v, whole.q[0].detach(), 0.7, torch.matrix_exp(DT * A))
        torch.testing.assert_close(whole.q.grad[0], exact, rtol=1e-5, atol=1e-7)
        # The solver's own step of a linear field: the exponential to fourth order.
        a, eye = DT * A, torch.eye(2).double()
        step = eye + a @ (eye + a / 2 @ (eye + a / 3 @ (eye + a / 4)))
        wanted = penalised_slope(v, whole.q[0].detach(), 0.7, step)
        torch.testing.assert_close(whole.q.grad[0], wanted, rtol=1e-11, atol=1e-13)

        def changed(q: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
            replaced = {"q": q, "field.a": a}
            return sum(torch.func.functional_call(whole, replaced, (rows,)))  # type: ignore[return-value]

        # By finite differences, in the states and in the weights.
        point = [p.detach().clone().requires_grad_() for p in (whole.q, whole.field.a)]
        assert torch.autograd.gradcheck(changed, point, atol=1e-8, rtol=1e-6)

    def test_penalty_grows_by_decades(self) -> None:
        v, field = oscillator(60), MLPField(2, (4,)).double()
        whole = objective(field, v, 2, 5)
        source = sub_trajectories(whole, epochs=80, stages=8)
        seen = []
        for epoch in (0, 9, 10, 79):
            source.epoch(epoch)
            seen.append(whole.mu)
        assert seen == pytest.approx([1e-5, 1e-5, 1e-4, 1e2])

    @pytest.mark.parametrize("epochs", [8, 20, 77, 500])
    def test_every_decade_gets_its_share_of_the_epochs(self, epochs: int) -> None:
        v, field = oscillator(60), MLPField(2, (4,)).double()
        whole = objective(field, v, 2, 5)
        source = sub_trajectories(whole, epochs=epochs, stages=8)
        seen: dict[int, int] = {}
        for epoch in range(epochs):
            source.epoch(epoch)
            decade = round(math.log10(whole.mu))
            seen[decade] = seen.get(decade, 0) + 1
        assert sorted(seen) == list(range(-5, 3))
        assert max(seen.values()) - min(seen.values()) <= 1

    def test_penalty_grows_when_errors_stand_still(self) -> None:
        v, field = oscillator(60), MLPField(2, (4,)).double()
        whole = objective(field, v, 2, 5)
        source = sub_trajectories(whole, epochs=80, stages="auto")
        for epoch in range(21):
            source.epoch(epoch)
            # The mean of an epoch stands still, that of its last batch does not.
            whole.errors += [2.0 - 0.1 * (epoch % 20), 0.1 * (epoch % 20)]
        assert whole.mu == pytest.approx(1e-4)

    def test_penalty_waits_while_the_mean_error_falls(self) -> None:
        v, field = oscillator(60), MLPField(2, (4,)).double()
        whole = objective(field, v, 2, 5)
        source = sub_trajectories(whole, epochs=80, stages="auto")
        for epoch in range(30):
            source.epoch(epoch)
            whole.errors += [0.9**epoch, 1.0]
        assert whole.mu == pytest.approx(1e-5)
        whole.total(torch.tensor(0.0), torch.tensor(3.0))
        whole.total(torch.tensor(0.0), torch.tensor(5.0))
        assert whole.errors[-2:] == [3.0, 5.0]


def test_windows_tame_gradients_on_lorenz63() -> None:
    """d/d rho of the mean of |z|: single shooting explodes, windows do not."""
    path = lorenz63(4001, 0.01, seed=1)

    def slope(duration: float, windows: int) -> float:
        rho = torch.tensor(28.0, dtype=torch.float64, requires_grad=True)

        def field(t: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
            x, y, z = u.unbind(-1)
            return torch.stack([10 * (y - x), x * (rho - z) - y, x * y - 8 / 3 * z], -1)

        steps = round(duration / 0.01 / windows)
        hops = steps * [torch.full((windows, 1), 0.01).double()]
        u = solve_windows(
            field,
            path[steps * torch.arange(windows)],
            torch.zeros(windows, 1).double(),
            hops,
            method="rk4_classic",
        )
        mean = torch.stack(u)[..., 2].abs().mean()
        return abs(torch.autograd.grad(mean, rho)[0].item())

    assert slope(40.0, 1) / slope(2.0, 1) > 1e8
    tamed = [slope(duration, 10) for duration in (2.0, 5.0, 10.0, 20.0, 40.0)]
    assert max(tamed) < 1e2
    assert max(tamed) / tamed[0] < 1e2


class TestTraining:
    def test_persistent_states_clean_themselves(self) -> None:
        u = oscillator(601)
        v = u + 0.05 * normal(*u.shape)
        model = MPNODE(
            hidden=(24,), epochs=100, windows=5, steps=6, states="persistent", batch=4
        ).fit(v, DT)
        samples = model.starts_[:, None] + 6 * torch.arange(5)
        assert model.states_ is not None
        miss = (model.states_ - u[samples])[:, 1:].square().mean().sqrt()
        assert miss < 0.05

    def test_states_come_back_from_a_file(self, tmp_path: Path) -> None:
        v = oscillator(301)
        short = {"hidden": (8,), "epochs": 2, "windows": 3, "steps": 4}
        model = MPNODE(**short, states="persistent").fit(v, DT)
        model.save(tmp_path / "model.pt")
        again = load(tmp_path / "model.pt")
        assert isinstance(again, MPNODE)
        assert torch.equal(again.starts_, model.starts_)
        assert again.states_ is not None and model.states_ is not None
        assert torch.equal(again.states_, model.states_)
        assert not torch.equal(
            again.states_, v[model.starts_[:, None] + 4 * torch.arange(3)]
        )
        assert again.result_ == model.result_
        t = DT * torch.arange(30)
        assert torch.equal(again.forecast(v[0], t), model.forecast(v[0], t))

    def test_reinit_takes_states_from_the_data(self) -> None:
        v = oscillator(301)
        model = MPNODE(hidden=(8,), epochs=2, windows=3, steps=4).fit(v, DT)
        assert model.states_ is None and model.cost_.epochs == 2
        objective = PenaltyObjective(
            model.field_, v, DT * torch.arange(301), model.starts_, windows=3, steps=4
        )
        samples = model.starts_[:, None] + 4 * torch.arange(3)
        first = objective.first_states(torch.arange(len(model.starts_)))
        assert torch.equal(first, v[samples])

    def test_an_epoch_covers_the_record_once(self) -> None:
        """Its cost follows from the samples, not from the number of possible starts."""
        v = oscillator(301)
        short = {"hidden": (8,), "epochs": 2, "windows": 3, "steps": 4}
        model = MPNODE(**short, held_out=0.0).fit(v, DT)
        assert model.starts_.diff().eq(1).all()
        assert model.cost_.evaluations == 2 * 4 * 12 * -(-301 // 12)
        whole = objective(MLPField(2, (4,)).double(), v, 3, 4)
        source = SubTrajectories(
            whole, 8, seed=0, epochs=2, penalty=Penalty(stages=1), drawn=20
        )
        first, second = (
            torch.cat([batch.rows for batch in source.epoch(number)])
            for number in (0, 1)
        )
        assert len(first) == len(first.unique()) == 20
        assert not torch.equal(first, second)

    def test_refuses_data_that_are_too_short(self) -> None:
        with pytest.raises(ValueError, match="`v` must have the 101 samples"):
            MPNODE(epochs=1).fit(oscillator(90), DT)
        with pytest.raises(ValueError, match="`states` must be"):
            MPNODE(epochs=1, states="else").fit(oscillator(300), DT)  # type: ignore[arg-type]


def test_cosine_schedule_rises_and_falls() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = CosineSchedule(optimizer, 100, warm=0.2, least=0.0)
    rates = []
    for _ in range(100):
        rates.append(optimizer.param_groups[0]["lr"])
        schedule.step(0.0)
    assert rates[10] == pytest.approx(0.5)
    assert rates[20] == pytest.approx(1.0)
    assert rates[60] == pytest.approx(0.5)
    again = CosineSchedule(optimizer, 100, warm=0.2, least=0.0)
    again.load_state_dict(schedule.state_dict())
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0, abs=1e-9)
