"""Weights generated on the device equal those of the C++ core, stored or not."""

from ctypes import byref, c_double, c_int, c_int64, c_void_p

import pytest
import torch
from torch import Tensor

from cuda_sim import kernels, oracle, toolchain
from cuda_sim.kernels import Segments, Weights, library

pytestmark = pytest.mark.skipif(
    not toolchain.have_compiler(), reason=f"needs {toolchain.COMPILER}"
)


def irregular_times(samples: int) -> Tensor:
    steps = 0.2 + torch.rand(
        samples, dtype=torch.float64, generator=torch.manual_seed(3)
    )
    return 40.0 + 0.01 * steps.cumsum(0)


def pointer(tensor: Tensor | None) -> c_void_p:
    return c_void_p(None if tensor is None else tensor.data_ptr())


def device_weights(segments: Segments, samples, times, dt, p, order):
    problem = segments.struct(torch.float64, 1, samples, 1)
    rows = segments.count(samples) if times is not None else 1
    lhs, rhs = (
        torch.full((rows, segments.ell + 1), torch.nan, dtype=torch.float64)
        for _ in range(2)
    )
    status = library().sim_weights(
        byref(problem),
        pointer(times),
        c_double(dt),
        c_int(p),
        c_int(order),
        pointer(lhs),
        pointer(rhs),
    )
    assert status == 0
    return lhs, rhs


def core_weights(segments: Segments, samples, times, dt, p, order):
    starts = oracle.nodes(segments, samples)[:, 0].contiguous()
    rows = len(starts) if times is not None else 1
    lhs, rhs = (
        torch.empty(rows, segments.ell + 1, dtype=torch.float64) for _ in range(2)
    )
    status = library().core_weights(
        pointer(times),
        c_double(dt),
        c_int(p),
        c_int(order),
        c_int64(segments.ell),
        pointer(starts),
        c_int64(rows),
        pointer(lhs),
        pointer(rhs),
    )
    assert status == 0
    return lhs, rhs


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("p", [2, 3, 8, 16, 33, 64])
def test_uniform_weights_equal_the_core(p, order):
    for ell in (2, 8, 50):
        segments = Segments(ell, 1)
        got = device_weights(segments, 60, None, 0.01, p, order)
        want = core_weights(segments, 60, None, 0.01, p, order)
        for a, b in zip(got, want, strict=True):
            assert (a - b).abs().max() <= 1e-12 * b.abs().max()


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("p", [2, 3, 8, 16, 64])
@pytest.mark.parametrize(
    "segments",
    [Segments(8, 3), Segments(20, starts=torch.tensor([0, 1, 1, 30, 79]))],
    ids=["uniform", "starts"],
)
def test_irregular_weights_equal_the_core(segments, p, order):
    times = irregular_times(100)
    got = device_weights(segments, 100, times, 0.0, p, order)
    want = core_weights(segments, 100, times, 0.0, p, order)
    for a, b in zip(got, want, strict=True):
        assert ((a - b).abs().amax(1) <= 1e-12 * b.abs().amax(1)).all()


def test_starts_outside_the_series_give_nan_rows():
    segments = Segments(8, starts=torch.tensor([-1, 0, 12, 13]))
    lhs, rhs = device_weights(segments, 21, irregular_times(21), 0.0, 4, 1)
    for w in (lhs, rhs):
        assert w.isnan().all(1).tolist() == [True, False, False, True]


GEOMETRY = {
    "uniform": Segments(8, 2),
    "dense": Segments(8, starts=torch.tensor([0, 1, 1, 5, 7, 12, 13, 40, 41])),
    "sparse": Segments(8, starts=torch.tensor([2, 30, 71])),
    "no-overlap": Segments(8, 11),
}


@pytest.mark.parametrize("kind", ["rhs", "lhs", "lhs2"])
@pytest.mark.parametrize("dtype", kernels.DTYPES, ids=str)
@pytest.mark.parametrize("state", [3, 64])
@pytest.mark.parametrize("segments", GEOMETRY.values(), ids=GEOMETRY)
def test_fused_weights_equal_stored_rows(segments, state, dtype, kind):
    samples, p = 80, 5
    times = irregular_times(samples)
    order = 2 if kind == "lhs2" else 1
    lhs, rhs = core_weights(segments, samples, times, 0.0, p, order)
    w = (rhs if kind == "rhs" else lhs).to(kernels.accumulator(dtype))
    generator = torch.manual_seed(1)
    x = torch.randn(2, samples, state, generator=generator).to(dtype)
    y = torch.randn(2, len(w), state, generator=generator).to(dtype)
    left = y.to(w.dtype)
    fused, stored = Weights(times=times, p=p, kind=kind), Weights(w)
    tolerance = {torch.float64: 1e-12, torch.float32: 2e-5}.get(dtype, 1e-2)
    kernels.set_order(5)
    pairs = [
        (kernels.corr(x, fused, segments), kernels.corr(x, stored, segments)),
        (
            kernels.corr_t(y, fused, segments, samples),
            kernels.corr_t(y, stored, segments, samples),
        ),
        (
            kernels.weak_loss(left, x, fused, segments, 0.1),
            kernels.weak_loss(left, x, stored, segments, 0.1),
        ),
        *zip(
            kernels.weak_loss_grad(left, x, fused, segments, 0.1),
            kernels.weak_loss_grad(left, x, stored, segments, 0.1),
            strict=True,
        ),
    ]
    for got, want in pairs:
        error = (got.double() - want.double()).abs().max()
        assert error <= tolerance * want.double().abs().max()


def test_weights_sum_to_the_integral_of_the_test_function():
    # int (1 - s^2)^p ds = sqrt(pi) Gamma(p + 1) / Gamma(p + 3/2); w_lhs sums to 0.
    times = irregular_times(51)
    lhs, rhs = device_weights(Segments(50, 1), 51, times, 0.0, 8, 1)
    p = torch.tensor(8.0, dtype=torch.float64)
    integral = torch.pi**0.5 * torch.exp(torch.lgamma(p + 1) - torch.lgamma(p + 1.5))
    half = (times[-1] - times[0]) / 2
    assert rhs.sum() == pytest.approx((half * integral).item(), rel=1e-13)
    assert lhs.sum().abs() < 1e-14
