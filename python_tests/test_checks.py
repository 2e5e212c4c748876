"""What is refused, and in which words."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import wpnode_ext as wp
from wpnode_ext import _checks, ops


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
    monkeypatch.setattr(_checks, "HAS_CUDA", False)
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
def test_operators_name_what_does_not_fit(x, w, error, words):
    with pytest.raises(error, match=words):
        ops.corr(x, w)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (((1, 50, 3), (60,), None), "the series has 50 samples, fewer than the ell"),
        (((1, 50, 3), (4, 11), None), "`w` has 4 rows for 40 segments"),
        (((1, 50, 3), (11,), [5, 3]), "`starts` must be non-decreasing"),
        (((1, 50, 3), (11,), [0, 40]), "`starts` must lie in 0 .. 39"),
    ],
)
def test_operators_never_leave_their_memory(arguments, words):
    x_shape, w_shape, starts = arguments
    starts = None if starts is None else torch.tensor(starts)
    with pytest.raises((ValueError, RuntimeError), match=words):
        ops.corr(torch.zeros(x_shape), torch.zeros(w_shape), starts=starts)
