"""Derivatives of the operators: every order, every mode, traced or not."""

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import func
from torch._dynamo.backends.common import aot_autograd
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from operator_cases import CASES, Case, small_cases
from wpnode_ext import ops
from wpnode_ext.ops import reference

F64 = torch.float64


def tensors(case, device="cpu", *, grad=True):
    """Series, segments and weights in float64, requiring gradients."""
    makers = (case.series, case.segments, case.weights)
    x, y, w = (make(F64, device) for make in makers)
    return tuple(t.requires_grad_(grad) for t in (x, y, w))


def calls(case, device="cpu"):
    """Each operator as a function of its differentiable inputs (x, y, w)."""
    at = {"q": case.q, "starts": case.start_tensor(device)}
    n, ell, rows = case.n_samples, case.ell, case.per_segment
    return {
        "corr": lambda lib, x, y, w: lib.corr(x, w, **at),
        "corr_t": lambda lib, x, y, w: lib.corr_t(y, w, n_samples=n, **at),
        "corr_w": lambda lib, x, y, w: lib.corr_w(
            x, y, ell=ell, per_segment=rows, **at
        ),
        "squared_residual": lambda lib, x, y, w: lib.squared_residual(
            x, y, w, scale=0.3, **at
        ),
    }


each_operator = pytest.mark.parametrize("name", calls(CASES["plain"]))


@each_operator
@small_cases()
def test_first_derivatives_match_finite_differences(case, name, device):
    call = calls(case, device)[name]
    assert gradcheck(
        lambda *args: call(ops, *args), tensors(case, device), check_forward_ad=True
    )


@each_operator
@small_cases()
def test_second_derivatives_match_finite_differences(case, name, device):
    call = calls(case, device)[name]
    assert gradgradcheck(lambda *args: call(ops, *args), tensors(case, device))


@small_cases()
def test_fused_path_has_all_derivatives(case, device):
    """Only `f` requires a gradient: the path with the one-pass kernel."""
    x, y, w = tensors(case, device)
    call = calls(case, device)["squared_residual"]

    def loss(f):
        return call(ops, f, y.detach(), w.detach())

    assert gradcheck(loss, (x,), check_forward_ad=True, check_undefined_grad=False)
    assert gradgradcheck(loss, (x,))


def test_third_derivative_of_the_cubed_loss(device):
    x, y, w = tensors(CASES["one segment"], device)
    results = []
    for lib in (ops, reference):
        call = calls(CASES["one segment"], device)["squared_residual"]
        g = call(lib, x, y.detach(), w.detach()) ** 3
        for _ in range(3):
            (g,) = torch.autograd.grad(g.sum(), x, create_graph=True)
        results.append(g)
    assert_close(*results)


def test_walking_the_graph_twice_gives_the_same_gradient_twice(device):
    case = CASES["plain"]
    x, y, w = tensors(case, device)
    loss = ops.squared_residual(x, y.detach(), w.detach(), q=case.q)
    loss.backward(retain_graph=True)
    once = x.grad.clone()
    (3.0 * loss).backward()
    assert_close(x.grad, 4.0 * once)


@small_cases()
def test_function_transforms_agree_with_the_reference(case, device):
    x, y, w = tensors(case, device, grad=False)
    call = calls(case, device)["squared_residual"]
    v = torch.randn_like(x)

    def results(lib):
        def loss(f):
            return call(lib, f, y, w)

        yield func.grad(loss)(x)
        yield func.jvp(loss, (x,), (v,))[1]
        yield func.vjp(loss, x)[1](torch.tensor(2.0, dtype=F64, device=device))[0]
        yield func.jacrev(loss)(x)
        yield func.jacfwd(loss)(x)
        yield func.hessian(loss)(x)
        yield func.jvp(func.grad(loss), (x,), (v,))[1]

    for ours, theirs in zip(results(ops), results(reference), strict=True):
        assert_close(ours, theirs)


@each_operator
@small_cases()
def test_jacrev_equals_jacfwd(case, name, device):
    args = tensors(case, device, grad=False)
    call = calls(case, device)[name]
    used = {"corr": (0, 2), "corr_t": (1, 2), "corr_w": (0, 1)}.get(name, (0, 1, 2))

    def function(*inputs):
        return call(ops, *inputs)

    assert_close(
        func.jacrev(function, argnums=used)(*args),
        func.jacfwd(function, argnums=used)(*args),
    )


def test_forward_mode_is_not_silently_zero(device):
    case = CASES["plain"]
    x, y, w = tensors(case, device, grad=False)
    tangent = torch.randn_like(x)
    _, through_func = func.jvp(lambda f: ops.corr(f, w, q=case.q), (x,), (tangent,))
    assert_close(through_func, reference.corr(tangent, w, q=case.q))
    assert through_func.abs().max() > 0.1
    with forward_ad.dual_level():
        for position in range(3):
            inputs = [x, y, w]
            inputs[position] = forward_ad.make_dual(
                inputs[position], torch.ones_like(inputs[position])
            )
            loss = ops.squared_residual(*inputs, q=case.q)
            expected = reference.squared_residual(*inputs, q=case.q)
            slope = forward_ad.unpack_dual(loss).tangent
            assert slope.abs() > 1e-3
            assert_close(slope, forward_ad.unpack_dual(expected).tangent)


@pytest.mark.parametrize("in_dims", [(0, None), (2, None), (None, 0), (0, 1)])
def test_vmap_over_series_and_weights(in_dims, device):
    case = CASES["batch"]
    sizes = {"x": list(case.series(F64).shape), "w": [case.ell + 1]}
    x_dim, w_dim = in_dims
    for name, dim in (("x", x_dim), ("w", w_dim)):
        if dim is not None:
            sizes[name].insert(dim, 5)
    x, w = (torch.randn(sizes[name], dtype=F64, device=device) for name in "xw")
    y = case.segments(F64, device)

    def results(lib):
        def corr(x, w):
            return lib.corr(x, w, q=case.q)

        def weight_gradient(x, w):
            return func.grad(lambda w: (corr(x, w) * y).sum())(w)

        yield func.vmap(corr, in_dims)(x, w)
        yield func.vmap(weight_gradient, in_dims)(x, w)

    for ours, theirs in zip(results(ops), results(reference), strict=True):
        assert_close(ours, theirs)


def test_per_sample_gradients_of_a_network(device):
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
    )
    net = net.to(device, F64)
    parameters = dict(net.named_parameters())
    series = torch.randn(6, 1, 40, 3, dtype=F64, device=device)
    w_lhs, w_rhs = torch.randn(2, 11, dtype=F64, device=device)

    def loss(lib, parameters, v):
        f = func.functional_call(net, parameters, (v,))
        return lib.squared_residual(f, lib.corr(v, w_lhs, q=2), w_rhs, q=2)

    def gradients(lib):
        one = func.grad(lambda parameters, v: loss(lib, parameters, v))
        return func.vmap(one, in_dims=(None, 0))(parameters, series)

    assert_close(gradients(ops), gradients(reference))


@each_operator
@small_cases()
def test_opcheck(case, name, device):
    x, y, w = tensors(case, device)
    starts, q = case.start_tensor(device), case.q
    op = torch.ops.wpnode
    arguments = {
        "corr": (op.corr, (x, w, starts, q)),
        "corr_t": (op.corr_t, (y, w, starts, q, case.n_samples)),
        "corr_w": (op.corr_w, (x, y, starts, q, case.ell, case.per_segment)),
        "squared_residual": (op.weak_loss, (x, y, w, starts, q, 0.3)),
    }
    torch.library.opcheck(*arguments[name])
    if name == "squared_residual":
        torch.library.opcheck(op.weak_loss_grad, (x, y, w, starts, q, 0.3))


@small_cases()
def test_operators_of_traced_code_have_right_formulas(case, device):
    op, starts, q = torch.ops.wpnode, case.start_tensor(device), case.q

    def loss(x, y, w):
        return op.weak_loss(x, y, w, starts, q, 0.3)

    def loss_and_gradient(x, y, w):
        return op.weak_loss_grad(x, y, w, starts, q, 0.3)

    for function in (loss, loss_and_gradient):
        assert gradcheck(function, tensors(case, device))
    assert gradgradcheck(loss_and_gradient, tensors(case, device))


@small_cases()
def test_compiled_loss_needs_no_graph_break(case, device):
    x, y, w = tensors(case, device)
    y, w = y.detach(), w.detach()
    call = calls(case, device)["squared_residual"]
    torch.compiler.reset()
    compiled = torch.compile(
        lambda f: call(ops, f, y, w), fullgraph=True, dynamic=True, backend="aot_eager"
    )
    loss = compiled(x)
    loss.backward()
    wide = x.detach().requires_grad_()
    expected = call(reference, wide, y, w)
    expected.backward()
    assert_close(loss, expected)
    assert_close(x.grad, wide.grad)


@pytest.mark.parametrize("trained", ["f", "f and data"])
def test_the_compiled_backward_correlates_nothing_twice(trained, device):
    """The loss alone is used; the other output's derivative is not there, not zero."""
    case = Case(60, 3, 10, 2)
    x, y, w = tensors(case, device)
    w = w.detach()
    if trained == "f":
        y = y.detach()
    seen: dict[str, list[str]] = {}

    def keep(name):
        def compiler(module, _):
            targets = [node.target for node in module.graph.nodes]
            names = [target.name() for target in targets if hasattr(target, "name")]
            seen[name] = [op for op in names if op.startswith("wpnode::")]
            return make_boxed_func(module.forward)

        return compiler

    backend = aot_autograd(fw_compiler=keep("forward"), bw_compiler=keep("backward"))
    torch.compiler.reset()
    compiled = torch.compile(
        lambda f, lhs: ops.squared_residual(f, lhs, w, q=2, scale=0.3),
        fullgraph=True,
        backend=backend,
    )
    loss = compiled(x, y)
    loss.backward()
    assert seen["forward"] == ["wpnode::weak_loss_grad"]
    assert seen["backward"] == ([] if trained == "f" else ["wpnode::corr"])
    wide, lhs = x.detach().requires_grad_(), y.detach().requires_grad_()
    reference.squared_residual(wide, lhs, w, q=2, scale=0.3).backward()
    assert_close(x.grad, wide.grad)
    if trained != "f":
        assert_close(y.grad, lhs.grad)


class Calls(TorchDispatchMode):
    """Collects the names of the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_the_eager_backward_passes_over_the_gradient_only_to_scale_it(factor):
    x, y, w = tensors(Case(60, 3, 10, 2), torch.device("cpu"))
    f, lhs, w = x.detach().requires_grad_(), y.detach(), w.detach()
    loss = ops.squared_residual(f, lhs, w, q=2, scale=0.3)
    with Calls() as calls:
        [gradient] = torch.autograd.grad(loss, f, torch.full_like(loss, factor))
    assert calls.names.count("aten::mul_.Tensor") == (factor != 1.0)
    assert not any(name.startswith("wpnode::") for name in calls.names)
    loss = reference.squared_residual(f, lhs, w, q=2, scale=0.3)
    assert_close(gradient, factor * torch.autograd.grad(loss, f)[0])


def test_opcheck_of_generated_weights(device):
    case = CASES["scattered rows"]
    f, lhs = case.series(F64, device), case.segments(F64, device)
    starts = case.start_tensor(device)
    t = torch.rand(case.n_samples, dtype=F64, device=device).add(0.1).cumsum(0)
    op, recipe = torch.ops.wpnode, (4, case.ell)
    torch.library.opcheck(op.segment_rows, (t, starts, 1, *recipe, 1))
    torch.library.opcheck(op.weak_loss_at, (f, lhs, t, starts, 1, *recipe, 0.3))
    torch.library.opcheck(op.weak_loss_grad_at, (f, lhs, t, starts, 1, *recipe, 0.3))
