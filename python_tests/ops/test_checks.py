"""The operators refuse invalid arguments, and name them."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import wpnode_ext as wp
from wpnode_ext import ops
from wpnode_ext.ops import checks, reference


def loss(f=None, v=None, **options):
    v = torch.zeros(100, 3) if v is None else v
    f = torch.zeros_like(v) if f is None else f
    return wp.weak_loss(f, v, **{"dt": 0.1, "ell": 10, **options})


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"ell": 51}, ValueError, "`ell` must be an even integer >= 2; got 51."),
        ({"q": 0}, ValueError, "`q` must be an integer >= 1; got 0."),
        ({"p": 0}, ValueError, "`p` must"),
        ({"dt": 0.0}, ValueError, "`dt` must"),
        ({"dt": float("nan")}, ValueError, "`dt` must"),
        ({"dt": None}, ValueError, "One of `dt` and `t` must be given"),
        ({"t": torch.arange(100.0)}, ValueError, "Only one of `dt` and `t`"),
        ({"dim": 2}, ValueError, "`dim` must be an axis of `v`, which has 2; got 2."),
        ({"reduction": "avg"}, ValueError, "`reduction` must be 'mean', 'sum' or 'no"),
        ({"backend": "gpu"}, ValueError, "`backend` must be 'fused' or 'reference'"),
        (
            {"ell": 120},
            ValueError,
            r"`v` has 100 samples, fewer than the ell \+ 1 = 121 a segment needs; "
            "use a smaller `ell`.",
        ),
        (
            {"mask": torch.zeros(99, dtype=torch.bool)},
            ValueError,
            r"`mask` must have shape \[100\], \[100\] or \[100, 3\]; got \[99\].",
        ),
        (
            {"mask": torch.zeros(100)},
            TypeError,
            r"`mask` must be bool \(True = missing\); got torch.float32.",
        ),
        (
            {"mask": torch.arange(100) % 7 == 0},
            ValueError,
            r"no segment of ell \+ 1 = 11 samples is free of gaps",
        ),
        (
            {"store_weights": False},
            ValueError,
            "`store_weights=False` must come with irregular times",
        ),
        ({"starts": torch.tensor([95])}, ValueError, "`starts` must lie in 0 .. 89"),
        ({"lengths": [100, 5]}, ValueError, "`lengths` must be positive and add up"),
    ],
)
def test_bad_options_are_named(options, error, words):
    with pytest.raises(error, match=words):
        loss(**options)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (torch.arange(100.0).flip(0), "strictly increasing; got 98.0 at index 1 after"),
        (torch.arange(100).div(2, rounding_mode="floor"), "strictly increasing; got 0"),
        (torch.full((100,), torch.nan), "`t` must be finite; got nan at index 0"),
    ],
    ids=["unsorted", "repeated", "nan"],
)
def test_bad_times_are_named(times, words):
    with pytest.raises(ValueError, match=words):
        loss(dt=None, t=times)


def test_field_and_data_must_match():
    v = torch.zeros(100, 3)
    words = r"`f` must match `v`; got float64 \[100, 3\] on cpu and float32 \[100, 3\]"
    with pytest.raises(ValueError, match=words):
        loss(f=v.double(), v=v)
    with pytest.raises(ValueError, match=r"got float32 \[99, 3\] on cpu and float32"):
        loss(f=v[1:], v=v)
    with pytest.raises(
        ValueError, match=r"\[100, 3\] on meta and float32 \[100, 3\] on"
    ):
        loss(f=v.to("meta"), v=v)


def test_integer_data_are_refused():
    with pytest.raises(TypeError, match="`v` must be float64, .* got torch.int64"):
        loss(v=torch.zeros(100, 3, dtype=torch.int64), f=torch.zeros(100, 3))


def test_nan_in_the_data_asks_for_a_mask():
    v = torch.zeros(100, 3)
    v[50, 1] = torch.nan
    with pytest.raises(ValueError, match="Pass `mask=` to leave missing samples out"):
        loss(v=v)


def test_cuda_data_on_a_cpu_build_say_how_to_rebuild(monkeypatch):
    monkeypatch.setattr(checks, "HAS_CUDA", False)
    words = (
        "wpnode_ext was built without CUDA; `v` is on cuda:0. Reinstall with "
        "WPNODE_CUDA=ON or move the data to the CPU."
    )
    with FakeTensorMode(allow_non_fake_inputs=True):
        v = torch.empty(100, 3, device="cuda")
        with pytest.raises(RuntimeError, match=words):
            loss(v=v)


@pytest.mark.parametrize(
    ("x", "w", "error", "words"),
    [
        (
            torch.zeros(50, 3),
            torch.zeros(11),
            ValueError,
            r"shape \[batch, rows, state\]",
        ),
        ([1.0], torch.zeros(11), TypeError, "`x` must be a tensor; got list"),
        (
            torch.zeros(1, 50, 3),
            torch.zeros(11, dtype=torch.float64),
            TypeError,
            "`w` must be torch.float32 for torch.float32 series; got torch.float64. "
            "Build weights in float64 and cast them last.",
        ),
        (
            torch.zeros(1, 50, 3),
            torch.full((11,), torch.nan),
            ValueError,
            "`w` must be finite; got NaN or infinity.",
        ),
        (
            torch.zeros(1, 50, 3),
            torch.zeros(11, device="meta"),
            ValueError,
            "`w` must be on the device of the series; got meta and cpu.",
        ),
        (
            torch.zeros(1, 50, 3),
            torch.zeros(1, 2, 3),
            ValueError,
            "`w` must have shape",
        ),
    ],
)
def test_operators_name_arguments_that_do_not_fit(x, w, error, words):
    with pytest.raises(error, match=words):
        ops.corr(x, w)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (((1, 50, 3), (60,), None), "the series has 50 samples, fewer than the ell"),
        (((1, 50, 3), (4, 11), None), "`w` has 4 rows for 40 segments"),
        (((1, 50, 3), (11,), [5, 3]), "`starts` must be non-decreasing"),
        (((1, 50, 3), (11,), [0, 40]), "`starts` must lie in 0 .. 39"),
        (((1, 50, 3), (11,), [2**63 - 5]), "`starts` must lie in 0 .. 39"),
        (((1, 50, 3), (11,), [-(2**63), 0]), "`starts` must lie in 0 .. 39"),
        (((2**40, 2**20, 0), (11,), None), r"arrays must have at most 2\^56 elements"),
    ],
)
def test_operators_never_leave_their_memory(arguments, words):
    x_shape, w_shape, starts = arguments
    starts = None if starts is None else torch.tensor(starts)
    with pytest.raises((ValueError, RuntimeError), match=words):
        ops.corr(torch.zeros(x_shape), torch.zeros(w_shape), starts=starts)


LARGEST = 2**63 - 1


@pytest.mark.parametrize("start", [LARGEST, LARGEST - 5, -LARGEST - 1])
@pytest.mark.parametrize("name", ["corr", "corr_t", "corr_w", "weak_loss"])
def test_no_start_wraps_round(name, start):
    x, y, w = torch.zeros(1, 50, 3), torch.zeros(1, 1, 3), torch.zeros(11)
    starts, op = torch.tensor([start]), torch.ops.wpnode
    arguments = {
        "corr": (x, w, starts, 1),
        "corr_t": (y, w, starts, 1, 50),
        "corr_w": (x, y, starts, 1, 10, False),
        "weak_loss": (x, y, w, starts, 1, 1.0),
    }
    with pytest.raises(ValueError, match="`starts` must lie in 0 .. 39"):
        getattr(op, name)(*arguments[name])


@pytest.mark.parametrize("q", [50, 2**31, 2**62, LARGEST - 1, LARGEST])
@pytest.mark.parametrize("state", [3, 40])
def test_a_step_past_the_end_leaves_one_segment(q, state):
    x, w = torch.randn(2, 50, state), torch.randn(11)
    y = ops.corr(x, w, q=q)
    assert torch.equal(y, ops.corr(x, w, q=50))
    assert torch.allclose(y, reference.corr(x, w, q=q), atol=1e-5)
    back = ops.corr_t(y, w, n_samples=50, q=q)
    assert torch.equal(back, ops.corr_t(y, w, n_samples=50, q=50))
    assert torch.equal(ops.corr_w(x, y, ell=10, q=q), ops.corr_w(x, y, ell=10, q=50))
    loss = ops.squared_residual(x, y, w, q=q)
    assert torch.equal(loss, ops.squared_residual(x, y, w, q=50))
    v = x[0]
    plan = wp.WeakPlan(v, dt=0.1, ell=10, q=q, starts=torch.tensor([0]))
    assert plan.starts is None and plan.n_segments == 1
    assert wp.WeakPlan(v, dt=0.1, ell=10, q=q, lengths=[20, 30]).n_segments == 2


@pytest.mark.parametrize("value", [-LARGEST - 1, -1, 2**56, LARGEST - 1, LARGEST])
def test_no_number_of_samples_or_nodes_wraps_round(value):
    x, y = torch.zeros(1, 50, 3), torch.zeros(1, 0, 3)
    none, w = torch.zeros(0, dtype=torch.int64), torch.zeros(11)
    with pytest.raises(ValueError, match="must"):
        ops.corr_t(y, w, n_samples=value, starts=none)
    with pytest.raises(ValueError, match="`ell` must"):
        ops.corr_w(x, y, ell=value, starts=none)
    with pytest.raises(ValueError, match="`ell` must"):
        wp.segment_weights(8, value, 0.1)
    t = torch.arange(50, dtype=torch.float64)
    with pytest.raises(ValueError, match="`ell` must"):
        torch.ops.wpnode.segment_rows(t, none, 1, 8, value, 1)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x, w: ops.corr(x, w, q=2**63), "q"),
        (lambda x, w: ops.corr_t(x, w, n_samples=2**63), "n_samples"),
        (lambda x, w: ops.corr_w(x, x, ell=2**63), "ell"),
        (lambda x, w: wp.segment_weights(8, 2**64, 0.1), "ell"),
        (lambda x, w: wp.segment_weights(-(2**64), 10, 0.1), "p"),
        (lambda x, w: wp.WeakPlan(x[0], dt=0.1, ell=10, q=2**64), "q"),
    ],
)
def test_integers_of_more_than_64_bits_are_named(call, name):
    with pytest.raises(ValueError, match=f"`{name}` must fit into 64 bits; got"):
        call(torch.zeros(1, 50, 3), torch.zeros(11))


def test_empty_arrays_with_huge_axes_end_at_once():
    # 2^50 batch elements without a channel: nothing to add up.
    x, y = torch.zeros(2**50, 20, 0), torch.zeros(2**50, 10, 0)
    gw = ops.corr_w(x, y, ell=10)
    assert gw.shape == (11,) and not gw.any()
    none, w = torch.zeros(0, dtype=torch.int64), torch.zeros(2**20)
    f = torch.ones(1, 4, 3, requires_grad=True)
    loss = ops.squared_residual(f, torch.zeros(1, 0, 3), w, starts=none)
    loss.backward()
    assert loss == 0 and f.grad is not None and not f.grad.any()
