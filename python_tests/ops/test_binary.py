"""The compiled module: its libraries, its build information, its instruction sets."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import wpnode_ext
from wpnode_ext.ops import backend

BINARY = Path(backend._C.__file__ or "")


def run_tool(*command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]} (binutils)")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def dynamic_entries(tag: str) -> list[str]:
    table = run_tool("readelf", "--dynamic", "--wide", str(BINARY))
    return re.findall(rf"\({tag}\).*\[(.*)\]", table)


def test_no_symbol_of_the_unstable_abi_is_needed() -> None:
    undefined = run_tool("nm", "-D", "-C", "--undefined-only", str(BINARY))
    assert "aoti_torch" in undefined, "nothing of torch is used: wrong binary"
    unstable = [
        line
        for line in undefined.splitlines()
        if re.search(r"\b(c10|at|torch)::", line)
    ]
    assert unstable == []


def test_libtorch_cpu_is_the_only_library_of_torch_or_cuda_needed() -> None:
    needed = dynamic_entries("NEEDED")
    ours = [name for name in needed if re.match(r"lib(torch|c10|cu|nv|gomp)", name)]
    assert ours == ["libtorch_cpu.so"]


def test_no_symbol_of_torch_is_weak() -> None:
    # One from torch's CUDA library would stay null: the loader looks only into the
    # libraries this module needs, and that one must not be among them.
    undefined = run_tool("nm", "-D", "--undefined-only", str(BINARY))
    assert re.findall(r" w (\w*torch\w*)", undefined) == []


def test_torch_libraries_are_looked_for_next_to_the_package() -> None:
    paths = dynamic_entries("RUNPATH") + dynamic_entries("RPATH")
    assert paths == ["$ORIGIN/../torch/lib"]


def test_only_the_module_entry_point_is_exported() -> None:
    defined = run_tool("nm", "-D", "--defined-only", str(BINARY))
    names = [line.split()[-1] for line in defined.splitlines()]
    assert "PyInit__C" in names
    assert [name for name in names if "wpnode" in name] == []


def test_wide_instructions_stay_inside_the_functions_chosen_at_run_time() -> None:
    # An inline function shared by several files is kept once, from any of them. Taken
    # from a file compiled for AVX it would crash machines without AVX.
    listing = run_tool("objdump", "-d", "-C", "--no-show-raw-insn", str(BINARY))
    function, wide = "", set()
    for line in listing.splitlines():
        if line.endswith(">:"):
            function = line
        elif re.search(r"%[yz]mm\d", line) and function:
            wide.add(function)
    if not any("wpnode::" in name for name in re.findall(r"<(.*)>:", listing)):
        pytest.skip("the binary is stripped; functions have no names")
    assert [
        name for name in wide if "wpnode::cpu::(anonymous namespace)" not in name
    ] == []


def test_device_code_is_there_exactly_when_cuda_is_claimed() -> None:
    sections = run_tool("readelf", "--sections", "--wide", str(BINARY))
    assert (".nv_fatbin" in sections) == wpnode_ext.build_info()["cuda"]


def test_build_info_describes_the_build_and_the_running_torch() -> None:
    info = wpnode_ext.build_info()
    assert info["torch_running"] == torch.__version__
    assert info["cuda_running"] == torch.version.cuda
    assert re.match(r"\d+\.\d+", info["torch_built_against"])
    assert info["torch_abi_target"] == "2.10"
    assert re.match(r"(GNU|Clang|AppleClang) \d+", info["compiler"])
    assert info["instruction_sets"][0] == "baseline"
    assert info["cpu_capability"] in info["instruction_sets"]
    assert bool(info["cuda_architectures"]) == info["cuda"]
    assert (info["cuda_version"] is not None) == info["cuda"]


def test_the_version_is_the_one_of_the_project_file() -> None:
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    found = re.search(r'^version = "(.*)"$', project.read_text(), re.MULTILINE)
    assert found and wpnode_ext.__version__ == found[1]
