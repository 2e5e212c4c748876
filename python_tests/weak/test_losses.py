"""The weak residual and loss as users call them."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import wpnode_ext as wp
from problems import lorenz63_field, oscillator
from trajectories import lorenz63, lorenz63_at

F64 = torch.float64


def relative_residual(u, f, **options):
    residual = wp.weak_residual(f, u, **options)
    lhs = wp.weak_residual(torch.zeros_like(f), u, **options)
    return (residual.square().mean() / lhs.square().mean()).sqrt().item()


# Exact identities -----------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 3, 8, 16, 31])
def test_a_straight_line_has_no_residual(p, dtype, tolerance):
    t = torch.arange(120, dtype=F64) * 0.01
    v = torch.stack([2 + 3 * t, torch.full_like(t, 7.0)], -1).to(dtype)
    f = torch.tensor([3.0, 0.0], dtype=dtype).expand_as(v)
    residual = wp.weak_residual(f, v, dt=0.01, p=p, ell=50, q=2)
    assert residual.abs().max() < tolerance * 10


def test_loss_of_a_constant_field_error_is_known():
    """f off by delta in one of two components: residual = delta * sum w_rhs."""
    u = torch.ones(200, 2, dtype=F64)
    f = torch.tensor([0.3, 0.0], dtype=F64).expand_as(u)
    bump_integral = 2.0**17 * 40320**2 / 355687428096000  # int (1 - s^2)^8 ds
    expected = (0.3 * 0.25 * bump_integral) ** 2
    options = {"dt": 0.01, "p": 8, "ell": 50, "q": 2}
    n_segments = (200 - 1 - 50) // 2 + 1
    assert wp.weak_loss(f, u, **options).item() == pytest.approx(expected, rel=1e-12)
    total = wp.weak_loss(f, u, reduction="sum", **options)
    assert total.item() == pytest.approx(n_segments * expected, rel=1e-12)
    each = wp.weak_loss(f, u, reduction="none", **options)
    assert_close(each, torch.full((n_segments,), expected, dtype=F64))


def test_true_field_has_no_weak_residual():
    u = lorenz63(2000, 0.01)
    assert relative_residual(u, lorenz63_field(u), dt=0.01) < 1e-9


def test_a_straight_line_has_no_residual_of_second_order():
    t = torch.arange(400, dtype=F64) * 0.02
    u, acceleration = torch.cos(t), -torch.cos(t)
    assert relative_residual(u, acceleration, dt=0.02, d=2) < 1e-9


# Convergence ----------------------------------------------------------------------


@pytest.mark.parametrize(("p", "order"), [(2, 4), (4, 6)])
def test_residual_of_the_true_field_converges_with_order_p_plus_2(p, order):
    errors = []
    for n, ell in ((161, 16), (321, 32), (641, 64)):  # the same segments, finer
        u, f = oscillator(n, 8.0 / (n - 1))
        residual = wp.weak_residual(f, u, dt=8.0 / (n - 1), p=p, ell=ell, q=ell)
        errors.append(residual.abs().max().item())
    slopes = -np.diff(np.log2(errors))
    assert slopes == pytest.approx(order, abs=0.3)


def test_spline_rule_serves_irregular_times():
    steps = 0.01 + 0.004 * np.random.default_rng(0).uniform(-1, 1, 1000)
    times = np.cumsum(steps)
    u = lorenz63_at(tuple(times))
    f, t = lorenz63_field(u), torch.from_numpy(times)
    assert relative_residual(u, f, t=t) < 1e-5
    assert relative_residual(u, f, t=t, rule="linear") > 1e-4


# Agreement ------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("shape", [(80, 90, 85), (81, 84, 83)])
def test_any_axis_can_be_time(dim, shape, dtype, tolerance):
    v, f = torch.randn(2, *shape, dtype=dtype)
    options = {"dt": 0.1, "p": 4, "ell": 20, "q": 7}
    actual = wp.weak_residual(f, v, dim=dim, **options)
    alone = [
        torch.func.vmap(
            torch.func.vmap(lambda f, v: wp.weak_residual(f, v, **options))
        )(f.movedim(dim, -1), v.movedim(dim, -1))
    ]
    assert_close(actual.movedim(dim, -1), alone[0], rtol=1e-5, atol=20 * tolerance)


def test_scalar_series_need_no_state_axis():
    v, f = torch.randn(2, 100, dtype=F64)
    flat = wp.weak_residual(f, v, dt=0.1, ell=10)
    column = wp.weak_residual(f[:, None], v[:, None], dt=0.1, ell=10)
    assert flat.shape == (45,)
    assert torch.equal(flat, column[:, 0])
    each = wp.weak_loss(f, v, dt=0.1, ell=10, reduction="none")
    assert_close(each, flat.square())


@pytest.mark.parametrize(
    "options",
    [
        {"dt": 0.1},
        {"dt": 0.1, "lengths": [50, 30, 70]},
        {"dt": 0.1, "starts": torch.tensor([0, 0, 7, 139])},
        {"t": torch.cumsum(torch.linspace(0.1, 0.2, 150, dtype=F64), 0)},
        {"dt": 0.1, "mask": torch.arange(150) == 60},
        {"dt": 0.1, "d": 2},
    ],
    ids=["plain", "lengths", "starts", "times", "mask", "second order"],
)
def test_reference_backend_gives_the_same_loss_and_gradients(options):
    v, f = torch.randn(2, 150, 3, dtype=F64)
    results = []
    for backend in ("fused", "reference"):
        inputs = [v.clone().requires_grad_(), f.clone().requires_grad_()]
        loss = wp.weak_loss(inputs[1], inputs[0], ell=10, backend=backend, **options)
        loss.backward()
        results.append([loss, inputs[0].grad, inputs[1].grad])
    assert_close(*results)


def test_gradient_flows_to_the_data_too():
    v = torch.randn(80, 2, dtype=F64, requires_grad=True)
    f = torch.randn(80, 2, dtype=F64)
    assert torch.autograd.gradcheck(
        lambda v: wp.weak_loss(f, v, dt=0.1, ell=10), (v,), check_undefined_grad=False
    )


# Precision and tracing ------------------------------------------------------------


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_promotes_the_field_to_the_data(half):
    net = torch.nn.Linear(3, 3)
    v = torch.randn(200, 3)
    with torch.autocast("cpu", dtype=half):
        f = net(v)
        assert f.dtype == half
        loss = wp.weak_loss(f, v, dt=0.1, ell=10)
    assert loss.dtype == torch.float32
    assert_close(loss, wp.weak_loss(f.float(), v, dt=0.1, ell=10))
    loss.backward()
    assert net.weight.grad.isfinite().all()


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_16_bit_data_give_a_float32_loss(half):
    v, f = torch.randn(2, 200, 3).to(half)
    loss = wp.weak_loss(f, v, dt=0.1, ell=10)
    assert loss.dtype == torch.float32
    assert_close(
        loss, wp.weak_loss(f.float(), v.float(), dt=0.1, ell=10), rtol=1e-5, atol=0
    )


def test_weak_loss_compiles_without_a_graph_break():
    torch.compiler.reset()

    def loss(f, v):
        return wp.weak_loss(f, v, dt=0.1, p=4, ell=10, q=3)

    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend="aot_eager")
    for n in (60, 85):
        v, f = torch.randn(2, n, 3, dtype=F64)
        one, other = f.clone().requires_grad_(), f.clone().requires_grad_()
        compiled(one, v).backward()
        loss(other, v).backward()
        assert_close(compiled(one, v), loss(other, v))
        assert_close(one.grad, other.grad)


def test_inductor_compiles_a_training_step():
    torch.compiler.reset()
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 16), torch.nn.GELU(), torch.nn.Linear(16, 3)
    )
    v = torch.randn(100, 3)
    plan = wp.WeakPlan(v, dt=0.1, ell=10)
    compiled = torch.compile(lambda: plan.loss(net(v)), fullgraph=True)
    compiled().backward()
    ours = net[0].weight.grad.clone()
    net.zero_grad()
    plan.loss(net(v)).backward()
    assert_close(ours, net[0].weight.grad)


# Statistics -----------------------------------------------------------------------


def test_white_noise_enters_with_the_predicted_variance():
    """Var(lhs) = sigma^2 sum w_lhs^2 = 0.1514 sigma^2 for p = 8, ell = 50."""
    noise = 0.5 * torch.randn(200_000, dtype=F64)
    lhs = wp.weak_residual(torch.zeros_like(noise), noise, dt=0.01, q=51)
    n = len(lhs)
    bound = 4 * (2 / n) ** 0.5  # four standard deviations of a sample variance
    assert lhs.var().item() == pytest.approx(0.25 * 0.1514, rel=bound)
