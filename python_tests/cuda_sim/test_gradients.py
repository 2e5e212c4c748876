"""First and second derivatives: the operators are derivatives of each other."""

import pytest
import torch
from torch import Tensor

from cuda_sim import kernels, oracle, toolchain
from cuda_sim.kernels import Segments, Traffic, Weights

pytestmark = pytest.mark.skipif(
    not toolchain.have_compiler(), reason=f"needs {toolchain.COMPILER}"
)


class Corr(torch.autograd.Function):
    """``corr`` with the adjoint and the weight gradient as its backward."""

    @staticmethod
    def forward(ctx, x: Tensor, w: Tensor, segments: Segments) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.segments = segments
        return kernels.corr(x.contiguous(), Weights(w.contiguous()), segments)

    @staticmethod
    def backward(ctx, grad: Tensor):
        x, w = ctx.saved_tensors
        return (
            CorrT.apply(grad, w, ctx.segments, x.shape[1]),
            CorrW.apply(grad, x, ctx.segments, w.dim() == 2),
            None,
        )


class CorrT(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y: Tensor, w: Tensor, segments: Segments, samples: int) -> Tensor:
        ctx.save_for_backward(y, w)
        ctx.segments = segments
        weights = Weights(w.contiguous())
        return kernels.corr_t(y.contiguous(), weights, segments, samples)

    @staticmethod
    def backward(ctx, grad: Tensor):
        y, w = ctx.saved_tensors
        return (
            Corr.apply(grad, w, ctx.segments),
            CorrW.apply(y, grad, ctx.segments, w.dim() == 2),
            None,
            None,
        )


class CorrW(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y: Tensor, x: Tensor, segments: Segments, rows: bool) -> Tensor:
        ctx.save_for_backward(y, x)
        ctx.segments = segments
        return kernels.corr_w(y.contiguous(), x.contiguous(), segments, rows)

    @staticmethod
    def backward(ctx, grad: Tensor):
        y, x = ctx.saved_tensors
        return (
            Corr.apply(x, grad, ctx.segments),
            CorrT.apply(y, grad, ctx.segments, x.shape[1]),
            None,
            None,
        )


CASES = {
    "uniform": Segments(4, 2),
    "no-overlap": Segments(2, 5),
    "starts": Segments(4, starts=torch.tensor([0, 1, 1, 6])),
}


@pytest.fixture(params=[0, 1, 11], ids=["ascending", "descending", "random"])
def order(request: pytest.FixtureRequest) -> None:
    """The order of threads and blocks."""
    kernels.set_order(request.param)


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("state", [2, 16, 32])
@pytest.mark.parametrize("rows", [False, True], ids=["one-row", "rows"])
@pytest.mark.parametrize("segments", CASES.values(), ids=CASES)
def test_first_and_second_derivatives(segments, rows, state):
    generator = torch.manual_seed(0)
    samples, count = 11, segments.count(11)

    def draw(*shape: int) -> Tensor:
        tensor = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return tensor.requires_grad_()

    x, w = draw(1, samples, state), draw(*([count] if rows else []), segments.ell + 1)
    y = draw(1, count, state)
    fast = {"fast_mode": True, "atol": 1e-7}

    for function, inputs in [
        (lambda x, w: Corr.apply(x, w, segments), (x, w)),
        (lambda y, w: CorrT.apply(y, w, segments, samples), (y, w)),
        (lambda y, x: CorrW.apply(y, x, segments, rows), (y, x)),
    ]:
        assert torch.autograd.gradcheck(function, inputs, **fast)
        assert torch.autograd.gradgradcheck(function, inputs, **fast)


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("state", [3, 40])
@pytest.mark.parametrize("segments", CASES.values(), ids=CASES)
def test_gradient_of_the_loss_is_that_of_its_formula(segments, state):
    generator = torch.manual_seed(0)
    f = torch.randn(2, 30, state, generator=generator, dtype=torch.float64)
    w = torch.randn(segments.ell + 1, generator=generator, dtype=torch.float64)
    lhs = torch.randn(
        2, segments.count(30), state, generator=generator, dtype=torch.float64
    )
    f.requires_grad_()
    loss = 0.7 * (lhs + oracle.corr(f, w, segments)).square().sum()
    loss.backward()
    got, grad = kernels.weak_loss_grad(lhs, f.detach(), Weights(w), segments, 0.7)
    torch.testing.assert_close(got, loss.detach())
    torch.testing.assert_close(grad, f.grad)


@pytest.mark.parametrize("dtype", list(kernels.DTYPES), ids=str)
@pytest.mark.parametrize("factor", [1.0, 0.5, -3.1, 1e-3])
def test_scaling_equals_torch_and_skips_a_factor_of_one(dtype, factor):
    values = torch.randn(300_001, dtype=torch.float64).to(dtype)
    by = torch.tensor(factor, dtype=kernels.accumulator(dtype))
    want = values * by.to(dtype)
    with Traffic() as traffic:
        kernels.scale(values, by)
    assert torch.equal(values, want)
    moved = traffic.total["global_stores"]["bytes"]
    assert moved == (0 if factor == 1.0 else values.numel() * values.element_size())


def test_no_values_need_no_launch():
    kernels.scale(torch.empty(0), torch.tensor(2.0))
