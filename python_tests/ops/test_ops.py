"""Values of the operators: against the reference, on odd shapes, bit for bit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from operator_cases import CASES, Case, every_case
from wpnode_ext import ops
from wpnode_ext.ops import reference

HALF_TYPES = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def assert_near(actual, expected, tolerance):
    assert actual.shape == expected.shape
    if actual.numel() == 0:
        return
    error = (actual.double() - expected.double()).abs().max()
    assert error <= tolerance * expected.double().abs().max().clamp(min=1e-300)


def layout(case, device="cpu"):
    return {"q": case.q, "starts": case.start_tensor(device)}


def both(name, *tensors, **options):
    """The operator, and the reference in float64."""
    wide = [x.double() for x in tensors]
    expected = getattr(reference, name)(*wide, **options)
    return getattr(ops, name)(*tensors, **options), expected


def all_operators(case, dtype, device="cpu"):
    """Result and expectation of each operator on one case."""
    x, y = case.series(dtype, device), case.segments(dtype, device)
    w = case.weights(dtype, device)
    lhs = case.segments(w.dtype, device)
    at = layout(case, device)
    yield both("corr", x, w, **at)
    yield both("corr_t", y, w, n_samples=case.n_samples, **at)
    yield both("corr_w", x, y, ell=case.ell, per_segment=case.per_segment, **at)
    yield both("squared_residual", x, lhs, w, scale=0.3, **at)


@every_case
def test_operators_agree_with_the_reference(case, dtype, device, tolerance):
    for actual, expected in all_operators(case, dtype, device):
        assert_near(actual, expected, tolerance * case.ell)


@pytest.mark.parametrize("half", HALF_TYPES, ids=str)
@every_case
def test_16_bit_series_are_summed_in_float32(case, half, device):
    # One rounding on output is all that may separate us from float64 sums.
    for actual, expected in all_operators(case, half, device):
        assert_near(actual, expected, 2 * HALF_TYPES[half])


@every_case
def test_fused_gradient_agrees_with_the_reference(case, dtype, device, tolerance):
    f = case.series(dtype, device).requires_grad_()
    lhs, w = case.segments(dtype, device), case.weights(dtype, device)
    at = layout(case, device)
    ops.squared_residual(f, lhs, w, scale=0.7, **at).backward()
    wide = f.detach().double().requires_grad_()
    reference.squared_residual(
        wide, lhs.double(), w.double(), scale=0.7, **at
    ).backward()
    assert_near(f.grad, wide.grad, 2 * tolerance * case.ell)


@every_case
def test_corr_t_is_the_adjoint_of_corr(case):
    x, y = case.series(torch.float64), case.segments(torch.float64)
    w, at = case.weights(torch.float64), layout(case)
    there = (ops.corr(x, w, **at) * y).sum()
    back = (x * ops.corr_t(y, w, n_samples=case.n_samples, **at)).sum()
    assert there.item() == pytest.approx(back.item(), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("name", ["several tiles", "wide state", "scattered rows"])
def test_results_have_the_same_bits_for_any_number_of_threads(name, dtype):
    case = CASES[name]
    f, lhs, w = case.series(dtype), case.segments(dtype), case.weights(dtype)

    def results():
        x = f.clone().requires_grad_()
        loss = ops.squared_residual(x, lhs, w, **layout(case))
        loss.backward()
        yield from (loss.detach(), x.grad)
        yield ops.corr(f, w, **layout(case))
        yield ops.corr_t(lhs, w, n_samples=case.n_samples, **layout(case))
        yield ops.corr_w(f, lhs, ell=case.ell, **layout(case))

    before = torch.get_num_threads()
    try:
        runs = []
        for threads in (1, 2, 8, 8):
            torch.set_num_threads(threads)
            runs.append(list(results()))
    finally:
        torch.set_num_threads(before)
    for run in runs[1:]:
        for one, other in zip(runs[0], run, strict=True):
            assert torch.equal(one, other)


def test_tiles_meet_without_a_seam():
    """A long record gives the bits that each of its parts gives alone."""
    case = CASES["several tiles"]
    f, w = case.series(torch.float32), case.weights(torch.float32)
    whole = ops.corr(f, w, q=2)
    for k in (0, 1, 777, case.n_segments - 1):
        part = f[:, 2 * k : 2 * k + case.ell + 1]
        assert torch.equal(ops.corr(part, w, q=2)[:, 0], whole[:, k])


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        lambda x: torch.stack([x, x], -1)[..., 0],
        lambda x: torch.cat([x[:, :1], x], 1)[:, 1:],
        lambda x: x[:, :, :1].expand(-1, -1, 3),
    ],
    ids=["transposed", "strided", "offset", "expanded"],
)
def test_views_give_what_their_copies_give(view):
    case = CASES["batch"]
    x, w = view(case.series(torch.float64)), case.weights(torch.float64)
    lhs = case.segments(torch.float64)
    copy = x.clone(memory_format=torch.contiguous_format)
    assert torch.equal(ops.corr(x, w, q=3), ops.corr(copy, w, q=3))
    one, other = x.detach().requires_grad_(), copy.detach().requires_grad_()
    ops.squared_residual(one, lhs, w, q=3).backward()
    ops.squared_residual(other, lhs, w, q=3).backward()
    assert torch.equal(one.grad, other.grad)


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    ell=st.integers(1, 40).map(lambda half: 2 * half),
    q=st.integers(1, 90),
    extra=st.integers(0, 150),
    state=st.integers(1, 70),
    batch=st.integers(1, 3),
)
def test_index_arithmetic_holds_for_any_layout(data, ell, q, extra, state, batch):
    n_samples = ell + 1 + extra
    starts = data.draw(
        st.none()
        | st.lists(st.integers(0, extra), min_size=1, max_size=30).map(
            lambda values: tuple(sorted(values))
        )
    )
    per_segment = data.draw(st.booleans())
    case = Case(n_samples, state, ell, q, batch, starts, per_segment)
    for actual, expected in all_operators(case, torch.float64):
        assert_near(actual, expected, 1e-11)


@pytest.mark.parametrize("level", ["baseline", "avx2"])
def test_every_instruction_set_agrees_with_the_reference(level):
    """In a process of its own, since the choice is made once a process."""
    program = """
import torch, operator_cases, test_ops, wpnode_ext
assert wpnode_ext.build_info()["cpu_capability"] in ("baseline", LEVEL)
for case in operator_cases.CASES.values():
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        for actual, expected in test_ops.all_operators(case, dtype):
            test_ops.assert_near(actual, expected, tolerance * case.ell)
"""
    here = str(Path(__file__).parent)
    environment = {
        "WPNODE_CPU_CAPABILITY": level,
        "PYTHONPATH": os.pathsep.join([here, os.environ["PYTHONPATH"]]),
    }
    result = subprocess.run(
        [sys.executable, "-P", "-c", program.replace("LEVEL", repr(level))],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
