"""The CUDA operators under torch.compile: types, shapes and devices, no values.

Tracing works on tensors without data, so it needs neither a GPU nor a CUDA build. The
test of a compiled training step needs a device (test_cuda.py).
"""

from collections.abc import Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import wpnode_ext  # noqa: F401  registers the operators
from operator_cases import every_case

op = torch.ops.wpnode
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def no_data() -> Iterator[None]:
    with FakeTensorMode():
        yield


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="cuda")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@every_case
def test_results_stay_on_the_device_in_the_right_shape(case, dtype):
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    batch, state, nodes = case.batch, case.state, case.ell + 1
    x = empty(batch, case.n_samples, state, dtype=dtype)
    y = empty(batch, case.n_segments, state, dtype=dtype)
    rows = (case.n_segments, nodes) if case.per_segment else (nodes,)
    w, lhs = empty(*rows, dtype=wide), y.to(wide)
    at = (case.start_tensor("cuda"), case.q)
    loss, slope = op.weak_loss_grad(x, lhs, w, *at, 0.3)
    for result, like in [
        (op.corr(x, w, *at), y),
        (op.corr_t(y, w, *at, case.n_samples), x),
        (op.corr_w(x, y, *at, case.ell, case.per_segment), w),
        (op.weak_loss(x, lhs, w, *at, 0.3), empty(dtype=wide)),
        (loss, empty(dtype=wide)),
        (slope, x),
    ]:
        assert result.shape == like.shape
        assert (result.dtype, result.device) == (like.dtype, torch.device("cuda:0"))


def test_generated_weights_stay_on_the_device_in_the_right_shape():
    f, lhs = empty(2, 100, 3), empty(2, 45, 3)
    t = empty(100, dtype=torch.float64)
    loss, slope = op.weak_loss_grad_at(f, lhs, t, None, 2, 8, 10, 0.3)
    assert (loss.shape, slope.shape) == ((), f.shape)
    assert op.weak_loss_at(f, lhs, t, None, 2, 8, 10, 0.3).shape == ()
    for w in op.segment_rows(t, None, 2, 8, 10, 1):
        assert (w.shape, w.device.type) == ((45, 11), "cuda")
