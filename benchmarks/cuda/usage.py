"""Registers, stack and spills of each kernel, from the output of ptxas."""

import re
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Usage:
    registers: int
    stack: int
    spills: int


def kernel_names(mangled: list[str]) -> list[str]:
    """Short forms, e.g. ``residual_kernel<float, 4, 0>``."""
    demangled = subprocess.run(
        ["c++filt"],
        input="\n".join(mangled),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    names = []
    for name in demangled:
        plain = name.replace("(wpnode::cuda::WeightMode)", "")
        short = re.search(r"(\w+_kernel(?:<[^()]*>)?)\(", plain)
        assert short, name
        names.append(short[1])
    return names


def parse(text: str) -> dict[str, Usage]:
    """Usage by kernel, from the output of ptxas."""
    found = re.findall(
        r"Compiling entry function '(\S+)'.*?(\d+) bytes stack frame, "
        r"(\d+) bytes spill stores.*?Used (\d+) registers",
        text,
        re.DOTALL,
    )
    names = kernel_names([mangled for mangled, *_ in found])
    return {
        name: Usage(int(registers), int(stack), int(spills))
        for name, (_, stack, spills, registers) in zip(names, found, strict=True)
    }
