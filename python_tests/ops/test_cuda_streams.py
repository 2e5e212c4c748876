"""Execution on CUDA devices: streams, graphs, several devices."""

import pytest
import torch
from torch.testing import assert_close

from operator_cases import CASES
from wpnode_ext import ops

pytestmark = pytest.mark.cuda

F64 = torch.float64
op = torch.ops.wpnode


def training_case(dtype=torch.float32):
    """Field values, left-hand side and weights of a case on the device."""
    case = CASES["several tiles"]
    f = case.series(dtype, "cuda")
    return f, case.segments(dtype, "cuda"), case.weights(dtype, "cuda"), case.q


def loss_and_gradient(f, lhs, w, q):
    x = f.detach().requires_grad_()
    loss = ops.squared_residual(x, lhs, w, q=q)
    loss.backward()
    return loss.detach(), x.grad


def test_work_goes_to_the_current_stream():
    f, lhs, w, q = training_case()
    expected = loss_and_gradient(2 * f, lhs, w, q)
    late = f.clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # cycles: a launch elsewhere would not wait
        late.mul_(2)
        results = loss_and_gradient(late, lhs, w, q)
    stream.synchronize()
    for ours, theirs in zip(results, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_nothing_waits_for_the_device():
    f, lhs, w, q = training_case()
    case = CASES["scattered"]
    x, row = case.series(torch.float32, "cuda"), case.weights(torch.float32, "cuda")
    starts = case.start_tensor("cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss_and_gradient(f, lhs, w, q)
        y = ops.corr(x, row, starts=starts)
        ops.corr_t(y, row, starts=starts, n_samples=case.n_samples)
        ops.corr_w(x, y, starts=starts, ell=case.ell)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_captured_graph_replays_on_new_data():
    f, lhs, w, q = training_case()
    x = f.clone().requires_grad_()

    def step():
        x.grad = None
        loss = ops.squared_residual(x, lhs, w, q=q)
        loss.backward()
        return loss

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    for factor in (1.0, -3.0):
        with torch.no_grad():
            x.copy_(factor * f)
        graph.replay()
        expected, gradient = loss_and_gradient(factor * f, lhs, w, q)
        assert torch.equal(loss, expected)
        assert torch.equal(x.grad, gradient)


def test_the_device_of_the_data_is_used_and_the_current_one_kept():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    case = CASES["plain"]
    x, w = case.series(F64), case.weights(F64)
    expected = ops.corr(x, w, q=case.q)
    with torch.cuda.device(0):
        y = ops.corr(x.to("cuda:1"), w.to("cuda:1"), q=case.q)
        assert torch.cuda.current_device() == 0
    assert y.device == torch.device("cuda:1")
    assert_close(y.cpu(), expected)


def test_tensors_on_different_devices_are_named():
    x, w = torch.zeros(1, 50, 3, device="cuda"), torch.zeros(11)
    with pytest.raises(ValueError, match="`w` must be on the device of the series"):
        ops.corr(x, w)
    with pytest.raises((ValueError, RuntimeError), match="`w` must be on the device"):
        op.corr(x, w, None, 1)
    starts = torch.tensor([0, 3])
    with pytest.raises(ValueError, match="`starts` must be on the device"):
        ops.corr(x, w.cuda(), starts=starts)
