"""Rules for the sources of the kernels: forbidden calls, and checks after a launch.

A launcher that allocates or waits cannot be captured in a CUDA graph; an atomic sum of
floating-point numbers has no fixed order; an unchecked launch fails in silence.
"""

import re

import pytest

from cuda_sim.toolchain import CSRC

SOURCES = sorted(path for path in (CSRC / "cuda").iterdir())
FORBIDDEN = {
    "allocation": r"\bcuda(Malloc|Free|HostAlloc)\w*\(",
    "waiting": r"\bcuda\w*Synchronize\(",
    "copies": r"\bcudaMem(cpy|set)\w*\(",
    "atomics": r"\batomic[A-Z]\w*\(",
    "a launch without the macro": r"<<<",
    "static shared memory": r"(?<!extern )__shared__",
    "torch": r"#include\s*<(torch|ATen|c10)/",
}


def code_of(path) -> str:
    return re.sub(r"//.*", "", path.read_text())


@pytest.mark.parametrize("what", FORBIDDEN)
def test_kernels_and_launchers_avoid(what: str) -> None:
    found = [
        path.name
        for path in SOURCES
        if path.name != "device.cuh" and re.search(FORBIDDEN[what], code_of(path))
    ]
    assert found == []


def test_every_launch_is_checked_and_goes_to_the_given_stream() -> None:
    launches = [
        match[1]
        for path in SOURCES
        if path.suffix == ".cu"
        for match in re.finditer(
            r"WPNODE_LAUNCH(?=(.*?;.*?return.*?;))", code_of(path), re.S
        )
    ]
    assert len(launches) == 9
    for text in launches:
        arguments, checked = text.split(";", 1)[0], text.rpartition("return")[2]
        assert re.search(r"\bstream\b", arguments), arguments
        assert checked == " static_cast<int>(cudaGetLastError());", text
