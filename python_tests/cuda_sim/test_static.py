"""The checks of compiled kernels find every fault, or say what they lack."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from cuda_sim.toolchain import ROOT

BENCHMARKS = ROOT / "benchmarks" / "cuda"
# What ptxas prints for one kernel, and how nvcc mangles its name.
RESIDUAL = (
    "_ZN6wpnode4cuda15residual_kernelIfLi4ELNS0_10WeightModeE0EEEvNS0_5ShapeE",
    "residual_kernel<float, 4, 0>",
)
PTXAS = """\
ptxas info    : Compiling entry function '{name}' for 'sm_80'
ptxas info    : Function properties for {name}
    {stack} bytes stack frame, {spills} bytes spill stores, 0 bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers, 1024 bytes cmem[0]
"""
GOOD_PTX = """
ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];
ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r1];
st.global.v4.f32 [%rd1], {%f1, %f2, %f3, %f4};
"""


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch):
    def load(name: str) -> ModuleType:
        monkeypatch.syspath_prepend(BENCHMARKS)
        return importlib.import_module(name)

    return load


@pytest.mark.parametrize(
    ("number", "registers", "threads", "shared", "share"),
    [
        # 65536 registers: 64 a thread leave 1024 threads, whatever the most may be.
        (75, 64, 256, 0, 1024 / 1024),
        (80, 64, 256, 0, 1024 / 2048),
        (86, 64, 256, 0, 1024 / 1536),
        # 65 are granted as 72: 7 warps a quarter, 28 in all, three blocks of 8.
        (80, 65, 256, 0, 768 / 2048),
        # Shared memory: 164 KB hold three blocks of 48 KB and 1 KB each.
        (80, 32, 256, 48 * 1024, 768 / 2048),
        # 64 KB hold one such block, where the system takes nothing.
        (75, 32, 256, 48 * 1024, 256 / 1024),
        (90, 32, 512, 0, 1),
    ],
)
def test_occupancy_follows_the_limits(
    benchmark, number, registers, threads, shared, share
):
    targets = benchmark("targets")
    target = next(t for t in targets.TARGETS if t.number == number)
    assert targets.occupancy(target, registers, threads, shared) == share


def test_registers_spills_and_stack_are_read(benchmark):
    text = PTXAS.format(name=RESIDUAL[0], stack=24, spills=16, registers=64)
    found = benchmark("static").parse("nvcc says nothing else\n" + text)
    assert list(found) == [RESIDUAL[1]]
    usage = found[RESIDUAL[1]]
    assert (usage.registers, usage.stack, usage.spills) == (64, 24, 16)


@pytest.mark.parametrize(
    ("gone", "missing"),
    [
        ("", []),
        ("ld.shared.v4", ["vector load from shared memory"]),
        ("st.global.v4", ["vector store"]),
        ("ld.global.nc.v4", ["vector load", "load of 16 bytes"]),
    ],
)
def test_scattered_vectors_are_seen_in_the_ptx(benchmark, gone, missing):
    body = GOOD_PTX.replace(gone, "nothing") if gone else GOOD_PTX
    ptx = f".visible .entry {RESIDUAL[0]}(\n{body}"
    found = benchmark("static").check_vectors(ptx)
    assert found == [f"{RESIDUAL[1]} has no {what}" for what in missing]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("static.py", "no nvcc on PATH; the CUDA kernels were not compiled"),
        ("link.py", "no nvcc on PATH"),
    ],
)
def test_scripts_say_what_they_miss(script: str, words: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, BENCHMARKS / script],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, f"skipped: {words}\n"), done.stderr


@pytest.mark.skipif(bool(torch.version.cuda), reason="torch is a CUDA build")
def test_linking_says_that_a_torch_is_not_a_cuda_build(tmp_path: Path):
    compiler = tmp_path / "nvcc"  # never called
    compiler.touch(mode=0o755)
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "link.py", "--python", sys.executable],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("skipped: the torch of")
    assert done.stdout.endswith("is not a CUDA build\n"), done.stdout
