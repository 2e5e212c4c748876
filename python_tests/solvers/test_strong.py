"""Strong and penalty losses against exact solutions and sums written out by hand."""

import math

import pytest
import torch
from torchdiffeq import odeint

from problems import lorenz63_field
from trajectories import lorenz63, normal
from wpnode_ext import weak_loss
from wpnode_ext.fields import Forcing, MLPField
from wpnode_ext.solvers.strong import strong_loss, weak_penalty_loss

DT = 0.01


def true_field(t, u):
    return lorenz63_field(u)


def noisy(n: int) -> torch.Tensor:
    return lorenz63(n, DT) / 20 + 0.05 * normal(n, 3)


def network() -> MLPField:
    return MLPField(3, (16,)).double()


def by_hand(field, v, starts, window, method="dopri5", steps=None) -> torch.Tensor:
    """Eq. (4) window by window with torchdiffeq, averaged."""
    total = torch.zeros((), dtype=v.dtype)
    for s in starts:
        h = DT * torch.ones(window - 1) if steps is None else steps[s : s + window - 1]
        t = torch.cat([torch.zeros(1), h.cumsum(0)]).double()
        path = odeint(field, v[s], t, method=method, rtol=1e-11, atol=1e-11)
        total = total + (path[1:] - v[s + 1 : s + window]).square().sum()
    return total / (len(starts) * (window - 1))


def test_the_true_field_has_no_strong_loss_on_clean_data() -> None:
    loss = strong_loss(true_field, lorenz63(200, DT), dt=DT, window=10)
    assert loss < 1e-11


@pytest.mark.parametrize(("window", "stride"), [(2, 1), (4, 3)])
def test_strong_loss_is_the_mean_over_windows_and_steps(window, stride) -> None:
    field, v = network(), noisy(30)
    starts = range(0, 30 - window + 1, stride)
    expected = by_hand(field, v, starts, window)
    loss = strong_loss(field, v, dt=DT, window=window, window_stride=stride)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    total = strong_loss(
        field, v, dt=DT, window=window, window_stride=stride, reduction="sum"
    )
    torch.testing.assert_close(total, loss * len(starts) * (window - 1))


@pytest.mark.parametrize("method", ["rk4", "dopri8"])
def test_solvers_of_torchdiffeq_are_found_by_name(method) -> None:
    field, v = network(), noisy(12)
    expected = by_hand(field, v, range(10), 3, method=method)
    loss = strong_loss(field, v, dt=DT, window=3, method=method)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)


def test_no_window_crosses_borders_missing_samples_or_gaps() -> None:
    field, v = network(), noisy(30)
    mask = torch.zeros(30, dtype=torch.bool)
    mask[20] = True
    v[20] = math.nan
    loss = strong_loss(field, v, dt=DT, window=3, lengths=[10, 20], mask=mask)
    starts = [*range(8), *range(10, 18), *range(21, 28)]
    torch.testing.assert_close(loss, by_hand(field, v, starts, 3), rtol=1e-6, atol=0)
    t = DT * torch.arange(30, dtype=torch.float64)
    t[15:] += 1.0
    gap = strong_loss(field, v[:20], t=t[:20], window=3)
    starts = [*range(13), *range(15, 18)]
    torch.testing.assert_close(gap, by_hand(field, v, starts, 3), rtol=1e-6, atol=0)


def test_missing_samples_leave_the_gradients_finite() -> None:
    field, v = network(), noisy(80)
    mask = torch.zeros(80, dtype=torch.bool)
    mask[70] = True
    v[70] = math.nan
    options = {"dt": DT, "ell": 20, "mask": mask}
    weak_penalty_loss(field, v, **options).backward()
    assert all(p.grad.isfinite().all() for p in field.parameters())


def test_irregular_steps_are_solved_each_with_its_own_length() -> None:
    field, v = network(), noisy(20)
    steps = DT * (0.5 + torch.rand(19, dtype=torch.float64))
    t = torch.cat([torch.zeros(1), steps.cumsum(0)])
    loss = strong_loss(field, v, t=t, window=4)
    expected = by_hand(field, v, range(17), 4, steps=steps)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)


def test_batches_and_state_axes_may_stand_anywhere() -> None:
    field, v = network(), torch.stack([noisy(25), noisy(25)])
    alone = torch.stack([strong_loss(field, row, dt=DT, window=3) for row in v])
    together = strong_loss(field, v, dt=DT, window=3, dim=1)
    torch.testing.assert_close(together, alone.mean())
    mask = torch.zeros(2, 25, dtype=torch.bool)
    mask[1, :10] = True
    masked = strong_loss(field, v, dt=DT, window=3, dim=1, mask=mask)
    parts = [
        strong_loss(field, row, dt=DT, window=3, reduction="sum")
        for row in (v[0], v[1, 10:])
    ]
    torch.testing.assert_close(masked, sum(parts) / ((23 + 13) * 2))


@pytest.mark.parametrize("method", ["dopri5", "rk4_classic", "euler"])
def test_penalty_loss_is_the_sum_of_its_terms_with_their_gradients(method) -> None:
    field, v = network(), noisy(120)
    weak_form = {"dt": DT, "p": 4, "ell": 20, "q": 3}
    solver = {"window": 3, "window_stride": 2, "method": method}
    loss = weak_penalty_loss(field, v, **weak_form, **solver, lam=0.7)
    expected = weak_loss(field(0.0, v), v, **weak_form)
    expected = expected + 0.7 * strong_loss(field, v, dt=DT, **solver)
    torch.testing.assert_close(loss, expected)
    ours = torch.autograd.grad(loss, list(field.parameters()))
    theirs = torch.autograd.grad(expected, list(field.parameters()))
    torch.testing.assert_close(ours, theirs)


def test_the_field_is_evaluated_once_at_the_samples_for_both_terms() -> None:
    sizes = []

    def field(t, u):
        sizes.append(len(u))
        return -u

    v = noisy(200)
    weak_penalty_loss(field, v, dt=DT, method="rk4", lam=0.5)
    assert sizes == [200, 199, 199, 199]
    sizes.clear()
    weak_penalty_loss(field, v, dt=DT, lam=0.0)
    assert sizes == [200]


def test_a_forced_field_sees_the_input_at_the_stages_of_the_solver() -> None:
    class Driven(MLPField):
        def at(self, u, x=None):
            return x.expand_as(u)

    field = Driven(1, forcing_dim=1)
    t = torch.linspace(0, 1, 21, dtype=torch.float64)
    field.forcing = Forcing(t, 2 * t[:, None])
    loss = strong_loss(field, (t**2)[:, None], t=t, window=5, method="rk4")
    assert loss < 1e-28  # the integral of 2 t is t^2, and the rule is exact for it


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of `dt` and `t` must"),
        ({"dt": -1.0}, "`dt` must be positive"),
        ({"dt": DT, "window": 1}, "`window` must be an integer >= 2"),
        ({"dt": DT, "window": 40}, "no window of 40 samples is free"),
        ({"dt": DT, "dim": 5}, "`dim` must be an axis"),
        ({"t": torch.arange(4.0)}, "`t` must have one time for each of the 20 samples"),
        ({"dt": DT, "reduction": "max"}, "`reduction` must be"),
        (
            {"dt": DT, "mask": torch.zeros(3, dtype=torch.bool)},
            "`mask` must have",
        ),
    ],
)
def test_invalid_options_are_refused_with_the_reason(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        strong_loss(true_field, noisy(20), **options)
