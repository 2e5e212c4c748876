"""Empty problems, limits, bad arguments and bad starts."""

import ctypes

import numpy as np
import pytest
import torch

from cuda_sim import kernels, oracle, toolchain
from cuda_sim.kernels import Segments, Traffic, Weights

pytestmark = pytest.mark.skipif(
    not toolchain.have_compiler(), reason=f"needs {toolchain.COMPILER}"
)


def draw(*shape: int, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.manual_seed(0))


@pytest.mark.parametrize(
    ("batch", "samples", "state"), [(0, 20, 3), (2, 20, 0), (2, 4, 3), (2, 0, 3)]
)
def test_empty_problems_give_zeros(batch, samples, state):
    segments = Segments(ell=4, q=1)
    count = segments.count(samples)
    x, y = draw(batch, samples, state), draw(batch, count, state)
    weights = Weights(draw(5))
    assert kernels.corr(x, weights, segments).shape == (batch, count, state)
    assert not kernels.corr_t(y, weights, segments, samples).any()
    assert not kernels.corr_w(y, x, segments, per_segment=False).any()
    assert kernels.corr_w(y, x, segments, per_segment=True).shape == (count, 5)
    assert kernels.weak_loss(y, x, weights, segments, 1.0) == 0
    loss, grad = kernels.weak_loss_grad(y, x, weights, segments, 1.0)
    assert loss == 0
    assert not grad.any()


@pytest.mark.parametrize("state", [3, 40])
@pytest.mark.parametrize("max_blocks", [1, 3])
def test_a_small_grid_walks_over_all_tiles(state, max_blocks):
    x = draw(3, 400, state)
    w = draw(9)
    wide, narrow = Segments(8, 2), Segments(8, 2, max_blocks=max_blocks)
    y = oracle.corr(x, w, wide)
    weights = Weights(w)
    assert torch.equal(kernels.corr(x, weights, narrow), kernels.corr(x, weights, wide))
    assert torch.equal(
        kernels.corr_t(y, weights, narrow, 400), kernels.corr_t(y, weights, wide, 400)
    )
    for per_segment in (False, True):
        assert torch.equal(
            kernels.corr_w(y, x, narrow, per_segment),
            kernels.corr_w(y, x, wide, per_segment),
        )
    for got, want in zip(
        kernels.weak_loss_grad(y, x, weights, narrow, 1.0),
        kernels.weak_loss_grad(y, x, weights, wide, 1.0),
        strict=True,
    ):
        assert torch.equal(got, want)


@pytest.mark.parametrize("per_segment", [False, True], ids=["one-row", "rows"])
@pytest.mark.parametrize("ell", [700, 6000, 13000])
def test_segments_too_long_for_shared_memory(ell, per_segment):
    x = draw(1, ell + 8, 2)
    segments = Segments(ell, 3)
    w = draw(*([segments.count(ell + 8)] if per_segment else []), ell + 1)
    lhs = draw(1, 3, 2)
    weights = Weights(w)
    torch.testing.assert_close(
        kernels.corr(x, weights, segments), oracle.corr(x, w, segments)
    )
    loss, grad = kernels.weak_loss_grad(lhs, x, weights, segments, 0.5)
    want_loss, want_grad = oracle.weak_loss(lhs, x, w, segments, 0.5)
    torch.testing.assert_close(loss, want_loss)
    torch.testing.assert_close(grad, want_grad)
    torch.testing.assert_close(
        kernels.corr_w(lhs, x, segments, per_segment),
        oracle.corr_w(lhs, x, segments, per_segment),
    )


@pytest.mark.parametrize("state", [3, 40])
def test_starts_outside_the_series_give_nan_and_touch_nothing_else(state):
    samples, ell = 60, 10
    good = torch.tensor([0, 3, 20, 49])
    bad = torch.tensor([-(2**40), -1, 0, 3, 20, 49, 50, 59, 2**40])
    x, w = draw(2, samples, state), Weights(draw(ell + 1))
    y = kernels.corr(x, w, Segments(ell, starts=bad))
    assert torch.equal(y[:, 2:6], kernels.corr(x, w, Segments(ell, starts=good)))
    assert y[:, [0, 1, 6, 7, 8]].isnan().all()

    # The adjoint is NaN at the samples of such a segment, and nowhere else.
    ones = torch.ones(2, 9, state, dtype=torch.float64)
    back = kernels.corr_t(ones, w, Segments(ell, starts=bad), samples)
    want = kernels.corr_t(
        ones[:, :4].contiguous(), w, Segments(ell, starts=good), samples
    )
    assert back[:, :10].isnan().all() and back[:, 50:].isnan().all()
    assert torch.equal(back[:, 10:50], want[:, 10:50])

    lhs = torch.zeros_like(y)
    loss, _ = kernels.weak_loss_grad(lhs, x, w, Segments(ell, starts=bad), 1.0)
    assert loss.isnan()
    assert kernels.weak_loss(lhs, x, w, Segments(ell, starts=bad), 1.0).isnan()
    assert kernels.corr_w(lhs, x, Segments(ell, starts=bad), False).isnan().all()
    gw = kernels.corr_w(lhs + 1, x, Segments(ell, starts=bad), True)
    want = kernels.corr_w(lhs[:, :4] + 1, x, Segments(ell, starts=good), True)
    assert torch.equal(gw[2:6], want)
    assert gw[[0, 1, 6, 7, 8]].isnan().all()


def test_a_series_shorter_than_a_segment_gives_nan_for_listed_starts():
    segments = Segments(10, starts=torch.tensor([0, 1]))
    y = kernels.corr(draw(1, 5, 3), Weights(draw(11)), segments)
    assert y.isnan().all()


@pytest.mark.parametrize("state", [3, 40])
@pytest.mark.parametrize("kind", ["one row", "rows", "times", "long rows"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_starts_in_a_series_without_samples_give_nan(kind, state, dtype):
    ell = 13_000 if kind == "long rows" else 10
    segments = Segments(ell, starts=torch.tensor([0, 0, 5]))
    x, y = draw(2, 0, state, dtype=dtype), draw(2, 3, state, dtype=dtype)
    lhs = draw(2, 3, state).to(kernels.accumulator(dtype))
    if kind == "times":
        weights = Weights(times=torch.zeros(1, dtype=torch.float64), p=4)
    else:
        w = draw(*([3] if kind == "rows" else []), ell + 1)
        weights = Weights(w.to(lhs.dtype))
    assert kernels.corr(x, weights, segments).isnan().all()
    assert kernels.corr_t(y, weights, segments, 0).shape == (2, 0, state)
    assert kernels.weak_loss(lhs, x, weights, segments, 1.0).isnan()
    loss, grad = kernels.weak_loss_grad(lhs, x, weights, segments, 1.0)
    assert loss.isnan() and grad.shape == x.shape
    for per_segment in (False, True):
        assert kernels.corr_w(y, x, segments, per_segment).isnan().all()


@pytest.mark.parametrize("q", [12, 2**30, 2**31 + 1, 2**63 - 1])
def test_a_step_past_the_end_leaves_one_segment(q):
    x, lhs, w = draw(2, 12, 3), draw(2, 1, 3), Weights(draw(11))
    near, far = Segments(10, 12), Segments(10, q)
    y = kernels.corr(x, w, far)
    assert torch.equal(y, kernels.corr(x, w, near))
    assert torch.equal(kernels.corr_t(y, w, far, 12), kernels.corr_t(y, w, near, 12))
    for per_segment in (False, True):
        gw = kernels.corr_w(y, x, far, per_segment)
        assert torch.equal(gw, kernels.corr_w(y, x, near, per_segment))
    for one, other in zip(
        kernels.weak_loss_grad(lhs, x, w, far, 1.0),
        kernels.weak_loss_grad(lhs, x, w, near, 1.0),
        strict=True,
    ):
        assert torch.equal(one, other)


LARGEST = 2**63 - 1


@pytest.mark.parametrize("value", [-LARGEST - 1, -1, 2**31, 2**56 + 1, LARGEST])
@pytest.mark.parametrize(
    "field", ["batch", "samples", "state", "segments", "ell", "max_blocks"]
)
def test_launchers_refuse_sizes_no_memory_holds(field, value):
    """Pointers are null: a launcher that does not check sizes would crash."""
    problem = Segments(4, q=1).struct(torch.float32, 2**10, 50, 2**16)
    if field == "batch" and value == 2**31:
        value = 2**40
    setattr(problem, field, value)
    lib, weights = kernels.library(), Weights(draw(5).float())
    struct, none = weights.struct(), ctypes.c_void_p(None)
    one = ctypes.c_double(1.0)
    sizes = ctypes.byref(problem), ctypes.byref(struct)
    assert lib.sim_corr(*sizes, none, none) == 1
    assert lib.sim_corr_t(*sizes, none, none) == 1
    assert lib.sim_weak_loss_workspace(*sizes) == 0
    assert lib.sim_weak_loss(*sizes, none, none, one, none, none) == 1
    assert lib.sim_weak_loss_grad_workspace(*sizes) == 0
    assert lib.sim_weak_loss_grad(*sizes, none, none, one, none, none, none) == 1
    for per_segment in (ctypes.c_bool(False), ctypes.c_bool(True)):
        assert lib.sim_corr_w_workspace(sizes[0], per_segment) == 0
        assert lib.sim_corr_w(sizes[0], per_segment, none, none, none, none) == 1
    if field in ("ell", "max_blocks"):
        assert lib.sim_weights(sizes[0], none, one, 4, 1, none, none) == 1


@pytest.mark.parametrize("state", [3, 40])
def test_a_bad_sample_spoils_only_the_segments_that_contain_it(state):
    x = draw(1, 100, state)
    x[0, 50] = torch.inf
    y = kernels.corr(x, Weights(torch.ones(9, dtype=torch.float64)), Segments(8, 1))
    spoiled = ~y.isfinite().all(-1)[0]
    assert spoiled.nonzero().flatten().tolist() == list(range(42, 51))


def test_samples_no_segment_covers_have_no_gradient():
    x, lhs, w = draw(1, 50, 3), draw(1, 2, 3), Weights(draw(5))
    _, grad = kernels.weak_loss_grad(lhs, x, w, Segments(4, 30), 1.0)
    covered = [*range(5), *range(30, 35)]
    assert grad[0, covered].all()
    grad[0, covered] = 0
    assert not grad.any()


def test_offsets_beyond_31_bits():
    # Two segments at the ends of 5 GB, most of which is never touched: of the kernels
    # that write every sample only the first and the last block run.
    samples, state, ell = 2**17, 18_432, 8
    segments, w = Segments(ell, q=samples - 1 - ell), draw(ell + 1).float()
    weights, half = Weights(w), torch.float16
    x = torch.from_numpy(np.zeros((1, samples, state), np.float16))  # pages on demand
    assert (samples - 1 - ell) * state > 2**31
    x[0, -ell - 1 :] = draw(ell + 1, state).half()
    part, one = x[:, -ell - 1 :].clone(), Segments(ell)

    y = kernels.corr(x, weights, segments)
    assert not y[0, 0].any()
    assert torch.equal(y[:, 1:], kernels.corr(part, weights, one))
    gw = kernels.corr_w(y, x, segments, per_segment=False)
    torch.testing.assert_close(gw, kernels.corr_w(y[:, 1:].clone(), part, one, False))

    lhs = draw(1, 2, state).float()
    back, slope = torch.empty_like(x), torch.empty_like(x)
    for purpose, run in {
        "adjoint": lambda: kernels.corr_t(y, weights, segments, samples, back),
        "loss_gradient": lambda: kernels.weak_loss_grad(
            lhs, x, weights, segments, 1.0, slope
        ),
    }.items():
        plan = kernels.plan(segments, weights, purpose, half, (1, samples, state))
        with Traffic(sampling=plan["tiles"] - 1):
            run()
    last = (slice(None), slice(-ell - 1, None), slice(-8, None))
    want = kernels.corr_t(y[:, 1:].clone(), weights, one, ell + 1)
    assert torch.equal(back[last], want[..., -8:])
    _, want = kernels.weak_loss_grad(lhs[:, 1:].clone(), part, weights, one, 1.0)
    torch.testing.assert_close(slope[last], want[..., -8:])


@pytest.mark.parametrize(
    "segments", [Segments(ell=-1), Segments(ell=4, q=0), Segments(ell=4, max_blocks=0)]
)
def test_launchers_refuse_impossible_sizes(segments, monkeypatch):
    monkeypatch.setattr(Segments, "count", lambda self, samples: 3)
    with pytest.raises(ValueError, match="error 1"):
        kernels.corr(draw(1, 9, 2), Weights(draw(5)), segments)


def test_launchers_refuse_segments_beyond_the_series(monkeypatch):
    monkeypatch.setattr(Segments, "count", lambda self, samples: 6)
    with pytest.raises(ValueError, match="error 1"):
        kernels.corr(draw(1, 9, 2), Weights(draw(5)), Segments(ell=4))


@pytest.mark.parametrize("p", [0, 65])
def test_launchers_refuse_weights_they_cannot_generate(p):
    times = torch.arange(9, dtype=torch.float64)
    with pytest.raises(ValueError, match="error 1"):
        kernels.corr(draw(1, 9, 2), Weights(times=times, p=p), Segments(ell=4))
