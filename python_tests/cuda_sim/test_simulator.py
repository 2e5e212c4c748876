"""The simulator follows the CUDA language and rejects wrong kernels."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from cuda_sim import toolchain

pytestmark = pytest.mark.skipif(
    not toolchain.have_compiler(), reason=f"needs {toolchain.COMPILER}"
)

SOURCE = Path(__file__).with_name("simulator_kernels.cu")
ORDERS = (0, 1, 7)  # ascending, descending, random with seed 7


@pytest.fixture(scope="session", params=[None, "address", "thread"])
def sanitizer(request: pytest.FixtureRequest) -> str | None:
    return request.param


def run(name: str, order: int = 0, sanitizer: str | None = None, stdin: bytes = b""):
    program = toolchain.build("simulator_kernels", [SOURCE], sanitizer=sanitizer)
    return subprocess.run(
        [program, name, str(order)], input=stdin, capture_output=True, check=False
    )


def numbers(name: str, order: int = 0, sanitizer: str | None = None) -> np.ndarray:
    done = run(name, order, sanitizer)
    assert done.returncode == 0, done.stderr.decode()
    return np.array(done.stdout.split(), dtype=float)


def reversed_rounds() -> np.ndarray:
    return np.arange(1.0, 129.0).reshape(2, 64)[:, ::-1].ravel()


@pytest.mark.parametrize("order", ORDERS)
def test_right_kernels_pass_every_check(order: int, sanitizer: str | None):
    assert numbers("reversed", order, sanitizer) == pytest.approx(reversed_rounds())
    assert numbers("atomic_grid_sum", order, sanitizer) == 256 * 257 / 2
    halves = [32 * 33 / 2, 32 * 33 / 2 + 32 * 32]
    assert numbers("warp_sum", order, sanitizer) == pytest.approx(halves)


def test_threads_also_switch_without_assembler():
    program = toolchain.build(
        "simulator_kernels", [SOURCE], extra=("-DCUDA_SIM_UCONTEXT",)
    )
    for name in ("reversed", "warp_sum", "votes"):
        output = subprocess.check_output([program, name, "7"]).split()
        assert np.array(output, dtype=float) == pytest.approx(numbers(name, 7))


def test_votes_and_shuffles_follow_the_language():
    # Thread 32: lane 0 of the second warp of 64 threads.
    # ballot of odd lanes, any(thread 3), all(odd), block count of odd threads,
    # block or(thread 5), block and(not thread 5), xor 1, up 1 (own value), lane 2 of 8.
    assert numbers("votes").tolist() == [1, 0, 0, 32, 1, 0, 33, 32, 34]


def test_shared_memory_starts_as_nan_in_every_block():
    assert np.isnan(numbers("poison")).all()


def test_launch_beyond_the_limits_sets_the_error_once():
    assert numbers("too_many_threads").tolist() == [9, 0]


@pytest.mark.parametrize("name", ["missing_barrier", "write_after_read"])
def test_missing_barrier_shows_as_dependence_on_thread_order(name: str):
    results = [numbers(name, order) for order in ORDERS]
    right = [np.array_equal(result, reversed_rounds()) for result in results]
    assert not all(right)


@pytest.mark.parametrize(
    "name", ["missing_barrier", "write_after_read", "plain_grid_sum"]
)
@pytest.mark.parametrize("order", ORDERS)
def test_thread_sanitizer_sees_races(name: str, order: int):
    done = run(name, order, "thread")
    assert b"ThreadSanitizer: data race" in done.stderr
    assert b"simulator_kernels.cu" in done.stderr


@pytest.mark.parametrize("name", ["beyond_shared", "beyond_global"])
def test_address_sanitizer_sees_access_out_of_bounds(name: str):
    done = run(name, sanitizer="address")
    assert b"AddressSanitizer: heap-buffer-overflow" in done.stderr
    assert name.encode() in done.stderr


def test_undefined_behaviour_sanitizer_sees_misaligned_vectors():
    done = run("unchecked_misaligned_float4", sanitizer="address")
    assert b"misaligned address" in done.stderr


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("misaligned_float4", "misaligned access at simulator_kernels.cu"),
        ("returned_lane_in_mask", "mask of a warp collective has returned"),
        ("caller_outside_mask", "called by a lane its mask leaves out"),
        ("different_masks", "pass different masks"),
        ("shuffle_from_outside_mask", "reads from a lane its mask leaves out"),
        ("barrier_after_return", "divergent barrier"),
        ("barriers_in_both_branches", "divergent barrier"),
        ("collective_beside_barrier", "divergent barrier"),
    ],
)
def test_simulator_objects(name: str, words: str, order: int):
    done = run(name, order)
    assert done.stdout.startswith(b"error: "), done.stdout
    assert words in done.stdout.decode()


@pytest.mark.parametrize(
    ("name", "sectors"),
    [
        ("contiguous_loads", 4),  # 32 floats from a multiple of 32 bytes
        ("shifted_loads", 5),
        ("scattered_loads", 32),  # one float every 32 bytes
        ("same_loads", 1),
    ],
)
def test_sectors_of_one_request_are_counted(name: str, sectors: int):
    requests, asked, counted, _ = numbers(name)[:4]
    assert (requests, asked, counted) == (1, 128, sectors)


@pytest.mark.parametrize(
    ("name", "conflicts"),
    [
        ("shared_stride_1", 0),
        ("shared_stride_2", 1),
        ("shared_stride_32", 31),
        ("vector_rows_contiguous", 0),
        ("vector_rows_apart", 4),  # each of four phases asks two rows of one bank group
    ],
)
def test_bank_conflicts_are_counted(name: str, conflicts: int):
    loads, stores = numbers(name)[4:8], numbers(name)[8:12]
    assert stores[3] == conflicts
    assert loads[3] == 0  # broadcast of one word to groups of lanes


def test_halves_convert_as_torch_converts_them():
    floats = torch.randn(20_000, generator=torch.manual_seed(0))
    scales = torch.tensor([1.0, 1e-8, 1e-5, 1e-4, 65504.0, 1e38])
    samples = (floats[:, None] * scales).flatten()
    edges = torch.tensor([0.0, -0.0, 65519.9, 65520.0, 6e-8, 3e-8, 2.98e-8, torch.inf])
    # Every half and the midpoints between neighbours: the ties.
    ties = torch.arange(0, 0x7C00, dtype=torch.int16).view(torch.float16).float()
    samples = torch.cat([samples, edges, -edges, ties, (ties[1:] + ties[:-1]) / 2])
    done = run("halves", stdin=samples.numpy().tobytes())
    widened = np.frombuffer(done.stdout[: 4 * 65536], dtype=np.float32)
    bits = torch.arange(-32768, 32768, dtype=torch.int16).roll(32768)
    assert np.array_equal(
        widened, bits.view(torch.float16).float().numpy(), equal_nan=True
    )
    narrowed = np.frombuffer(done.stdout[4 * 65536 :], dtype=np.int16).reshape(-1, 2)
    assert np.array_equal(narrowed[:, 0], samples.half().view(torch.int16).numpy())
    assert np.array_equal(narrowed[:, 1], samples.bfloat16().view(torch.int16).numpy())
