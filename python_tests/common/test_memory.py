"""Freed memory is reused: pages are cleared once, not at every call."""

import importlib
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, torch
from wpnode_ext import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        # 64 MiB: beyond what glibc would learn to keep by itself.
        torch.ones(1 << 24).add(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
faults()
before = faults()
kept = keep_freed_memory()
faults()
print(int(kept), before, faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_large_arrays_are_not_mapped_anew() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    kept, before, after = map(int, done.stdout.split())
    if not kept:
        pytest.skip("another C library than glibc")
    if before < 10 * 16384:
        pytest.skip("pages of this system are not 4 KiB")
    # Two arrays of 16384 pages a call, all of them new before.
    assert after < before / 4


def test_the_command_takes_it_for_its_own_process_only(monkeypatch, capsys) -> None:
    cli = importlib.import_module("wpnode_ext.cli.main")
    called = []
    monkeypatch.setattr(cli, "keep_freed_memory", lambda: called.append(True))
    assert cli.main(["info"]) == 0
    assert not called
    monkeypatch.setattr(sys, "argv", ["wpnode", "info"])
    assert cli.main() == 0
    assert called == [True]
