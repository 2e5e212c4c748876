"""The plan that cuts a problem into blocks, and its memory traffic."""

import random

import pytest
import torch

from cuda_sim import kernels, toolchain
from cuda_sim.kernels import PURPOSES, Segments, Traffic, Weights

pytestmark = pytest.mark.skipif(
    not toolchain.have_compiler(), reason=f"needs {toolchain.COMPILER}"
)

SHARED_LIMIT = 48 * 1024  # what every device grants without asking
ONE_ROW = Weights(torch.ones(1))
ROWS = Weights(torch.ones(1, 1))
TIMES = Weights(times=torch.ones(1, dtype=torch.float64), p=8)
FROM_GLOBAL = 3


@pytest.mark.parametrize("purpose", PURPOSES)
@pytest.mark.parametrize(
    ("state", "aligned", "dtype", "vector"),
    [
        (18432, True, torch.float32, 4),
        (18432, True, torch.float64, 2),
        (18432, True, torch.bfloat16, 4),
        (18432, False, torch.float32, 1),
        (18433, True, torch.float32, 1),
        (64, True, torch.float32, 4),
        (3, True, torch.float32, 1),
        (16, True, torch.float32, 1),
        (40, True, torch.bfloat16, 4),
        (32, True, torch.bfloat16, 1),
    ],
)
def test_wide_aligned_rows_move_as_vectors(purpose, state, aligned, dtype, vector):
    plan = kernels.plan(
        Segments(8, 1), ONE_ROW, purpose, dtype, (1, 500, state), aligned
    )
    assert plan["vector"] == vector


@pytest.mark.parametrize("purpose", PURPOSES)
@pytest.mark.parametrize(
    "weights", [ONE_ROW, ROWS, TIMES], ids=["one", "rows", "times"]
)
def test_any_problem_has_a_plan_within_the_limits(purpose, weights):
    draw = random.Random(7)
    for _ in range(300):
        longest = 1024 if weights is TIMES else 20000
        ell = 2 * int(draw.choice([1, 4, 25, 40, draw.random() * longest / 2]))
        q = draw.choice([1, 2, 3, ell, 2 * ell + 1, 100])
        samples = ell + 1 + draw.choice([0, 5, 1000, 10**6])
        shape = (draw.choice([1, 3]), samples, draw.choice([1, 3, 40, 129, 18432]))
        dtype = draw.choice(list(kernels.DTYPES))
        segments = Segments(ell, q)
        plan = kernels.plan(segments, weights, purpose, dtype, shape)
        assert plan["shared"] <= SHARED_LIMIT
        assert plan["threads"] in (128, 256, 512)
        assert 1 <= plan["batch"] <= segments.count(samples)
        if purpose != "adjoint" and plan["mode"] != FROM_GLOBAL:
            assert plan["ring_rows"] >= ell + 1
        if weights is TIMES:
            assert plan["mode"] != FROM_GLOBAL


@pytest.mark.parametrize("state", [32, 64])
def test_the_vector_path_moves_little_and_never_conflicts(state):
    samples, segments = 2000, Segments(8, 1)
    x = torch.ones(1, samples, state)
    lhs = torch.ones(1, segments.count(samples), state)
    weights = Weights(torch.ones(9))
    runs = {
        "corr": lambda: kernels.corr(x, weights, segments),
        "corr_t": lambda: kernels.corr_t(lhs, weights, segments, samples),
        "corr_w": lambda: kernels.corr_w(lhs, x, segments, per_segment=False),
        "weak_loss": lambda: kernels.weak_loss(lhs, x, weights, segments, 1.0),
        "grad": lambda: kernels.weak_loss_grad(lhs, x, weights, segments, 1.0),
    }
    for name, run in runs.items():
        with Traffic() as traffic:
            run()
        least = 4 * (x.numel() * (2 if name == "grad" else 1) + lhs.numel())
        assert traffic.global_bytes <= 1.3 * least, name
        assert traffic.conflicts == 0, name


@pytest.mark.parametrize(
    ("state", "dtype", "shift", "width"),
    [
        (64, torch.float32, 0, 16),
        (40, torch.float64, 0, 16),
        (64, torch.bfloat16, 0, 16),
        (64, torch.float16, 0, 16),
        (124, torch.bfloat16, 0, 8),  # rows of 248 bytes
        (4, torch.float32, 0, 16),
        (2, torch.float64, 0, 16),
        (16, torch.bfloat16, 0, 16),
        (3, torch.float32, 0, 4),
        (64, torch.float32, 1, 4),
        (16, torch.float64, 1, 8),
    ],
)
def test_rows_are_read_16_bytes_at_a_time_where_alignment_allows(
    state, dtype, shift, width
):
    samples, segments = 3000, Segments(8, 1)
    weights = Weights(torch.ones(9, dtype=kernels.accumulator(dtype)))
    room = torch.ones(samples * state + shift, dtype=dtype)
    x = room[shift:].view(1, samples, state)
    with Traffic() as traffic:
        y = kernels.corr(x, weights, segments)
    assert (y == 9).all()
    loads = traffic.total["global_loads"]
    bytes_of_a_lane = loads["bytes"] / loads["requests"] / 32
    # Requests at the ends of a stretch, and those for weights, are smaller.
    assert 0.55 * width < bytes_of_a_lane <= width


def test_sampled_blocks_count_for_all():
    x, weights = torch.ones(1, 20_000, 32), Weights(torch.ones(9))
    totals = []
    for sampling in (1, 7):
        with Traffic(sampling) as traffic:
            kernels.corr(x, weights, Segments(8, 1))
        totals.append(traffic.global_bytes)
    assert totals[1] == pytest.approx(totals[0], rel=0.02)
