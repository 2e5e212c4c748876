"""Every CUDA operator, from its own source, against float64 indexing.

Each case runs in three orders of threads and blocks, which must agree to the bit.
"""

import pytest
import torch
from torch import Tensor

from cuda_sim import kernels, oracle, toolchain
from cuda_sim.kernels import Segments, Weights
from operator_cases import every_case

pytestmark = pytest.mark.skipif(
    not toolchain.have_compiler(), reason=f"needs {toolchain.COMPILER}"
)

ORDERS = (0, 1, 11)
SCALE = 0.3
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
# Largest error over largest value. Sums of 16-bit data are float32: results in the
# accumulator type have the accuracy of float32, all others are rounded to storage once.
EXACT = {torch.float64: 1e-13, torch.float32: 2e-6}
STORED = {**EXACT, torch.float16: 1e-3, torch.bfloat16: 8e-3}

SHAPES = {  # batch, samples, state, ell, q
    "small-state": (1, 203, 3, 50, 2),
    "scalar": (2, 130, 1, 8, 1),
    "vector-with-tail": (1, 90, 40, 8, 1),
    "vector": (1, 150, 64, 12, 2),
    "odd-state": (2, 67, 129, 6, 3),
    "short-rows": (2, 61, 16, 6, 2),
    "half-vector-rows": (1, 60, 44, 6, 1),
    "no-overlap": (1, 75, 32, 4, 7),
    "one-segment": (1, 11, 5, 10, 1),
    "two-distant-segments": (3, 17, 36, 2, 16),
    "one-node": (1, 40, 2, 0, 1),
}


def make_case(shape, dtype, *, per_segment=False, starts=None, seed=0):
    batch, samples, state, ell, q = shape
    segments = Segments(ell, q, starts)
    count = segments.count(samples)
    generator = torch.manual_seed(seed)

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    w = draw(*([count] if per_segment else []), ell + 1)
    wide = kernels.accumulator(dtype)
    return (
        draw(batch, samples, state).to(dtype),
        draw(batch, count, state).to(dtype),
        draw(batch, count, state).to(wide),
        w.to(wide),
        segments,
    )


def close(got: Tensor, want: Tensor, tolerance: float) -> bool:
    assert got.shape == want.shape
    if want.numel() == 0:
        return True
    error = (got.double() - want).abs().max()
    return bool(error <= tolerance * want.abs().max())


def run_all(x, y, lhs, w, segments) -> dict[str, Tensor]:
    weights = Weights(w)
    loss, grad = kernels.weak_loss_grad(lhs, x, weights, segments, SCALE)
    return {
        "corr": kernels.corr(x, weights, segments),
        "corr_t": kernels.corr_t(y, weights, segments, x.shape[1]),
        "corr_w": kernels.corr_w(y, x, segments, w.dim() == 2),
        "loss alone": kernels.weak_loss(lhs, x, weights, segments, SCALE),
        "loss": loss,
        "grad": grad,
    }


def check_all(x, y, lhs, w, segments) -> None:
    loss, grad = oracle.weak_loss(lhs, x, w, segments, SCALE)
    want = {
        "corr": oracle.corr(x, w, segments),
        "corr_t": oracle.corr_t(y, w, segments, x.shape[1]),
        "corr_w": oracle.corr_w(y, x, segments, w.dim() == 2),
        "loss alone": loss,
        "loss": loss,
        "grad": grad,
    }
    first = None
    for order in ORDERS:
        kernels.set_order(order)
        got = run_all(x, y, lhs, w, segments)
        for name, value in want.items():
            tolerances = STORED if got[name].dtype == x.dtype else EXACT
            assert close(got[name], value, tolerances[got[name].dtype]), (name, order)
        first = first or got
        assert all(torch.equal(got[name], first[name]) for name in want), order


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_operators_agree_with_indexing(shape, dtype):
    check_all(*make_case(shape, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_rows_of_weights_agree_with_indexing(shape, dtype):
    check_all(*make_case(shape, dtype, per_segment=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@every_case
def test_the_table_of_the_cpu_operators_agrees_with_indexing(case, dtype):
    shape = (case.batch, case.n_samples, case.state, case.ell, case.q)
    layout = {"per_segment": case.per_segment, "starts": case.start_tensor()}
    check_all(*make_case(shape, dtype, **layout))


STARTS = {
    "dense": [0, 1, 1, 2, 4, 5, 5, 5, 9, 10, 12],
    "clusters": [*range(0, 12), *range(60, 75, 2)],
    "sparse": [0, 23, 50, 70],
    "repeated": [31] * 70,
    "last": [79],
}


@pytest.mark.parametrize("per_segment", [False, True], ids=["one-row", "rows"])
@pytest.mark.parametrize("state", [3, 40, 33])
@pytest.mark.parametrize("starts", STARTS.values(), ids=STARTS)
def test_explicit_starts_agree_with_indexing(starts, state, per_segment):
    shape = (2, 90, state, 10, 1)
    case = make_case(
        shape, torch.float32, per_segment=per_segment, starts=torch.tensor(starts)
    )
    check_all(*case)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_unaligned_pointers_take_the_scalar_path(dtype):
    x, y, lhs, w, segments = make_case((1, 70, 64, 6, 2), dtype)

    def shifted(tensor: Tensor) -> Tensor:
        room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
        room[1:] = tensor.flatten()
        return room[1:].view(tensor.shape)

    assert shifted(x).data_ptr() % 16 != 0
    check_all(shifted(x), shifted(y), shifted(lhs), w, segments)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape",
    [
        (1, 2000, 3, 50, 2),
        (4, 700, 40, 80, 2),
        (1, 900, 64, 60, 2),
        (1, 300, 1152, 8, 1),
        (1, 1400, 8, 400, 3),
    ],
    ids=str,
)
def test_larger_shapes_agree_with_indexing(shape, dtype):
    check_all(*make_case(shape, dtype))
