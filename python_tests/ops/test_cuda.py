"""Values that need a CUDA device: weights made there, halves, large arrays.

Values and derivatives on a device are tested together with those on the CPU, by the
`device` fixture of test_ops.py and test_autograd.py.
"""

import pytest
import torch
from torch.testing import assert_close

import wpnode_ext as wp
from operator_cases import CASES, every_case

pytestmark = pytest.mark.cuda

F64 = torch.float64
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
op = torch.ops.wpnode


def irregular_times(n_samples: int) -> torch.Tensor:
    steps = torch.rand(n_samples, dtype=F64) + 0.2
    return 40.0 + 0.01 * steps.cumsum(0)


# Weights --------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("p", [2, 8, 16, 64])
@pytest.mark.parametrize("starts", [None, (0, 1, 1, 30, 79)], ids=["uniform", "starts"])
def test_weights_made_on_the_device_equal_those_of_the_cpu(starts, p, d):
    t = irregular_times(100)
    first = None if starts is None else torch.tensor(starts)
    there = None if first is None else first.cuda()
    expected = op.segment_rows(t, first, 3, p, 20, d)
    for ours, row in zip(
        op.segment_rows(t.cuda(), there, 3, p, 20, d), expected, strict=True
    ):
        error = (ours.cpu() - row).abs().amax(1)
        assert (error <= 1e-12 * row.abs().amax(1)).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("state", [3, 64])
@pytest.mark.parametrize("starts", [None, (0, 1, 1, 5, 40)], ids=["uniform", "starts"])
def test_weights_generated_in_the_fused_kernel_equal_stored_ones(starts, state, dtype):
    t, recipe = irregular_times(80).cuda(), (5, 8)
    starts = None if starts is None else torch.tensor(starts, device="cuda")
    w = op.segment_rows(t, starts, 2, *recipe, 1)[1]
    w = w.to(F64 if dtype == F64 else torch.float32)
    f = torch.randn(2, 80, state, device="cuda").to(dtype)
    lhs = torch.randn(2, len(w), state, dtype=w.dtype, device="cuda")
    tolerance = {F64: 1e-12, torch.float32: 2e-5}.get(dtype, 1e-2)
    pairs = [
        (
            op.weak_loss_at(f, lhs, t, starts, 2, *recipe, 0.1),
            op.weak_loss(f, lhs, w, starts, 2, 0.1),
        ),
        *zip(
            op.weak_loss_grad_at(f, lhs, t, starts, 2, *recipe, 0.1),
            op.weak_loss_grad(f, lhs, w, starts, 2, 0.1),
            strict=True,
        ),
    ]
    for ours, stored in pairs:
        error = (ours.double() - stored.double()).abs().max()
        assert error <= tolerance * stored.double().abs().max()


def test_generated_weights_take_no_memory():
    n_samples, ell = 200_000, 50
    v, f = torch.randn(2, n_samples, 1, device="cuda")
    t = irregular_times(n_samples)
    plan = wp.WeakPlan(v, t=t, ell=ell, q=1, rule="linear", store_weights=False)
    rows = plan.n_segments * (ell + 1) * 4
    plan.loss(f)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    plan.loss(f)
    assert torch.cuda.max_memory_allocated() - before < 0.02 * rows


def test_segments_too_long_for_generated_weights_are_refused():
    t = irregular_times(2000).cuda()
    f, lhs = torch.zeros(1, 2000, 3).cuda(), torch.zeros(1, 398, 3).cuda()
    with pytest.raises((ValueError, RuntimeError), match="`ell` must be at most 1024"):
        op.weak_loss_at(f, lhs, t, None, 2, 4, 1200, 1.0)


# Plans ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"dt": 0.1},
        {"dt": 0.1, "d": 2},
        {"dt": 0.1, "lengths": [50, 30, 70]},
        {"dt": 0.1, "starts": (0, 0, 7, 139)},
        {"dt": 0.1, "mask": True},
        {"t": True},
        {"t": True, "rule": "linear", "store_weights": False},
    ],
    ids=lambda options: ", ".join(options),
)
def test_plans_agree_on_the_cpu_and_the_device(options, dtype):
    v, f = torch.randn(2, 150, 3, dtype=dtype)
    tensors = {
        "t": irregular_times(150),
        "mask": torch.arange(150) == 60,
        "starts": torch.tensor(options.get("starts", ())),
    }
    results = []
    for device in ("cpu", "cuda"):
        given = {
            name: tensors[name].to(device) if name in tensors else value
            for name, value in options.items()
        }
        plan = wp.WeakPlan(v.to(device), ell=10, **given)
        x = f.to(device).requires_grad_()
        loss = plan.loss(x)
        loss.backward()
        residual = plan.residual(x.detach())
        results.append([part.detach().cpu() for part in (loss, x.grad, residual)])
    assert_close(*results)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_promotes_the_field_to_the_data(half):
    net = torch.nn.Linear(3, 3).cuda()
    v = torch.randn(200, 3, device="cuda")
    with torch.autocast("cuda", dtype=half):
        f = net(v)
        assert f.dtype == half
        loss = wp.weak_loss(f, v, dt=0.1, ell=10)
    assert loss.dtype == torch.float32
    assert_close(loss, wp.weak_loss(f.float(), v, dt=0.1, ell=10))
    loss.backward()
    assert net.weight.grad.isfinite().all()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_inductor_compiles_a_training_step(mode):
    torch.compiler.reset()
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 16), torch.nn.GELU(), torch.nn.Linear(16, 3)
    ).cuda()
    v = torch.randn(100, 3, device="cuda")
    plan = wp.WeakPlan(v, dt=0.1, ell=10)
    compiled = torch.compile(lambda: plan.loss(net(v)), fullgraph=True, mode=mode)
    for _ in range(3):  # the third call replays what the first two recorded
        net.zero_grad()
        compiled().backward()
    ours = net[0].weight.grad.clone()
    net.zero_grad()
    plan.loss(net(v)).backward()
    assert_close(ours, net[0].weight.grad)


# Bits, alignment, memory ----------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@every_case
def test_results_have_the_same_bits_from_call_to_call(case, dtype):
    f, w = case.series(dtype, "cuda"), case.weights(dtype, "cuda")
    lhs, y = case.segments(w.dtype, "cuda"), case.segments(dtype, "cuda")
    starts, q = case.start_tensor("cuda"), case.q

    def results():
        yield from op.weak_loss_grad(f, lhs, w, starts, q, 0.3)
        yield op.weak_loss(f, lhs, w, starts, q, 0.3)
        yield op.corr(f, w, starts, q)
        yield op.corr_t(y, w, starts, q, case.n_samples)
        yield op.corr_w(f, y, starts, q, case.ell, case.per_segment)

    for one, other in zip(results(), results(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shift", [1, 2, 4])
def test_unaligned_series_give_what_aligned_ones_give(dtype, shift):
    case = CASES["wide state"]
    f, w = case.series(dtype, "cuda"), case.weights(dtype, "cuda")
    lhs = case.segments(w.dtype, "cuda")
    room = torch.empty(f.numel() + shift, dtype=dtype, device="cuda")
    shifted = room[shift:].view(f.shape).copy_(f)
    assert_close(op.corr(shifted, w, None, 1), op.corr(f, w, None, 1))
    loss, gradient = op.weak_loss_grad(shifted, lhs, w, None, 1, 0.3)
    expected, slope = op.weak_loss_grad(f, lhs, w, None, 1, 0.3)
    assert_close(loss, expected)
    assert_close(gradient, slope)


@pytest.mark.parametrize("state", [3, 64])
def test_starts_outside_the_series_give_nan_and_no_fault(state):
    x, w = torch.randn(1, 60, state, device="cuda"), torch.randn(11, device="cuda")
    starts = torch.tensor([-(2**40), -1, 0, 49, 50, 2**40], device="cuda")
    y = op.corr(x, w, starts, 1)
    torch.cuda.synchronize()
    assert y.isnan().all(-1)[0].tolist() == [True, True, False, False, True, True]
    assert op.weak_loss(x, torch.zeros_like(y), w, starts, 1, 1.0).isnan()


@pytest.mark.slow
def test_offsets_beyond_31_bits():
    n_samples, state, ell, q = 2**17, 18_432, 8, 1024
    n_segments = (n_samples - 1 - ell) // q + 1
    free, _ = torch.cuda.mem_get_info()
    need = 2 * n_samples * state * 2 + 2**30
    if free < need:
        pytest.skip(
            f"needs {need / 1e9:.0f} GB of device memory; {free / 1e9:.0f} free"
        )
    f = torch.zeros(1, n_samples, state, dtype=torch.float16, device="cuda")
    assert f.numel() > 2**31
    last = (n_segments - 1) * q
    assert last * state > 2**31
    f[0, last : last + ell + 1] = torch.randn(ell + 1, state, device="cuda").half()
    w = torch.randn(ell + 1, device="cuda")
    y = op.corr(f, w, None, q)
    lhs = torch.zeros(1, n_segments, state, device="cuda")
    _, gradient = op.weak_loss_grad(f, lhs, w, None, q, 0.5)
    part = f[:, last : last + ell + 1].clone()
    assert not y[:, :-1].any()
    assert torch.equal(y[:, -1:], op.corr(part, w, None, 1))
    _, slope = op.weak_loss_grad(part, lhs[:, :1].clone(), w, None, 1, 0.5)
    assert_close(gradient[:, last : last + ell + 1], slope)
    assert not gradient[:, last - 1].any()
