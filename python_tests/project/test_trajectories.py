"""Shared trajectories have the same bits everywhere and solve their equations."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import trajectories
from machines import Machine
from trajectories import (
    add_noise,
    kuramoto_sivashinsky,
    lorenz63,
    lorenz63_at,
    lorenz96,
    normal,
)
from wpnode_ext.systems import KuramotoSivashinsky, Lorenz63, Lorenz96, System

# Checksums of float64 bits. After a deliberate change of a trajectory, update them and
# run the suite with some other draws.
SHARED: dict[str, tuple[Callable[[], Tensor], str]] = {
    "noise": (lambda: normal(1000, 3, seed=1), "3cb6d26aa9d85785"),
    "lorenz63": (lambda: lorenz63(10_000, 0.01), "7f1cb05cdcb0ae69"),
    "lorenz63 every 0.02": (lambda: lorenz63(4000, 0.02), "d282e28aee2e00f1"),
    "lorenz63 at some times": (
        lambda: lorenz63_at((0.0, 0.1, 0.123, 4.0)),
        "b5343bdd1b33e805",
    ),
    "noisy lorenz63": (
        lambda: add_noise(lorenz63(4000, 0.01), 0.05, seed=1)[0],
        "69691d0ed1d222d2",
    ),
    "lorenz96": (lambda: lorenz96(2000, 0.02, sites=8, seed=1), "03a4e65f5a331553"),
    "kuramoto_sivashinsky": (
        lambda: kuramoto_sivashinsky(900, 0.25, points=32, seed=3),
        "00096c829b231a9a",
    ),
}


def checksum(u: Tensor) -> str:
    return hashlib.sha256(u.numpy().astype("<f8").tobytes()).hexdigest()[:16]


@pytest.fixture
def draw_zero() -> None:
    if trajectories.DRAW:
        pytest.skip("WPNODE_TEST_DRAW asks for other trajectories")


@pytest.mark.parametrize("name", SHARED)
def test_shared_trajectories_keep_their_bits(name, draw_zero) -> None:
    make, expected = SHARED[name]
    assert checksum(make()) == expected


PRINT_CHECKSUMS = """
import test_trajectories
for make, _ in test_trajectories.SHARED.values():
    print(test_trajectories.checksum(make()))
"""


def test_bits_do_not_depend_on_vector_instructions(draw_zero) -> None:
    """The other process forbids optional instructions to torch, NumPy and libc."""
    environment = Machine.of("default:baseline:1").environment()
    here = str(Path(__file__).parent)
    environment["PYTHONPATH"] = os.pathsep.join([here, environment["PYTHONPATH"]])
    command = [sys.executable, "-W", "ignore", "-c", PRINT_CHECKSUMS]
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [expected for _, expected in SHARED.values()]


@pytest.mark.parametrize(
    ("u", "dt", "system", "bound"),
    [
        (lambda: lorenz63(101, 0.01), 0.01, Lorenz63(), 1e-9),
        (lambda: lorenz63(21, 0.05), 0.05, Lorenz63(), 1e-9),
        (lambda: lorenz96(51, 0.02, sites=8), 0.02, Lorenz96(d=8), 1e-9),
        (
            lambda: lorenz96(51, 0.02, sites=5, forcing=8.0),
            0.02,
            Lorenz96(d=5, forcing=8.0),
            1e-9,
        ),
        # Both integrate with steps of fourth order.
        (
            lambda: kuramoto_sivashinsky(5, 0.25),
            0.25,
            KuramotoSivashinsky(),
            2e-6,
        ),
        (
            lambda: kuramoto_sivashinsky(5, 0.25, points=32),
            0.25,
            KuramotoSivashinsky(n_points=32),
            2e-6,
        ),
    ],
)
def test_trajectories_follow_an_integrator_for_one_unit_of_time(
    u: Callable[[], Tensor], dt: float, system: System, bound: float
) -> None:
    path = u()
    reference = system.simulate(len(path), dt, u0=path[0])
    assert (path - reference).abs().max() < bound


def test_irregular_times_sample_the_uniform_trajectory() -> None:
    uniform = lorenz63(101, 0.01)
    found = lorenz63_at((0.0, 0.105, 0.2, 0.77, 1.0))
    torch.testing.assert_close(found[[0, 2, 3, 4]], uniform[[0, 20, 77, 100]])


def test_longer_trajectory_begins_with_the_shorter_one() -> None:
    assert torch.equal(lorenz63(300, 0.01, seed=5), lorenz63(500, 0.01, seed=5)[:300])
    assert not torch.equal(lorenz63(300, 0.01, seed=5), lorenz63(300, 0.01, seed=6))


def test_noise_is_standard_normal_and_changes_between_calls() -> None:
    first, second = normal(100_000), normal(100_000)
    # Standard errors: 0.003 of the mean, 0.002 of the deviation.
    assert abs(first.mean()) < 0.02 and abs(first.std() - 1) < 0.015
    assert not torch.equal(first, second)
    v, sigma = add_noise(torch.full((20_000, 2), 3.0).double(), 0.1)
    assert sigma.tolist() == [pytest.approx(0.3)] * 2
    assert (v - 3).std().item() == pytest.approx(0.3, rel=0.03)
