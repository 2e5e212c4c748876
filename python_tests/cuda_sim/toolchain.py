"""Compiles CUDA sources with g++ against the simulator beside this file.

Objects are kept in ``build/cuda_sim`` under a hash of everything they depend on, so a
second run compiles nothing.
"""

import hashlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "cuda_sim"
COMPILER = os.environ.get("CXX", "g++")

FLAGS = ["-std=c++20", "-O1", "-g1", "-fPIC", "-Wall", "-Wextra", "-Werror"]
FLAGS += ["-Wno-unknown-pragmas"]  # `#pragma unroll` is for nvcc
SANITIZERS = {
    None: [],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "thread": ["-fsanitize=thread"],
}
DEFINES = {None: [], "address": ["-DCUDA_SIM_ASAN"], "thread": ["-DCUDA_SIM_TSAN"]}

SIMULATOR = sorted((HERE / "simulator").glob("*.cpp"))


def kernel_sources() -> list[Path]:
    """The sources of the CUDA operators and what they need from the core."""
    return [
        *sorted((CSRC / "cuda").glob("*.cu")),
        *sorted((CSRC / "core").glob("*.cpp")),
    ]


def have_compiler() -> bool:
    return shutil.which(COMPILER) is not None


def _headers_digest() -> bytes:
    digest = hashlib.sha256()
    folders = [CSRC / "core", CSRC / "cuda", HERE / "simulator", HERE]
    for folder in folders:
        for path in sorted([*folder.glob("*.h"), *folder.glob("*.cuh")]):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.digest()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")


def _compile(
    source: Path, sanitizer: str | None, headers: bytes, extra: tuple[str, ...]
) -> Path:
    # The simulator's own state is not the program's: its files stay uninstrumented.
    flags = [*FLAGS, *extra, *DEFINES[sanitizer], f"-I{CSRC}", f"-I{HERE}"]
    if source.parent != HERE / "simulator":
        flags += SANITIZERS[sanitizer]
    key = hashlib.sha256(
        headers + source.read_bytes() + " ".join([COMPILER, *flags]).encode()
    )
    target = BUILD / f"{source.stem}-{key.hexdigest()[:16]}.o"
    if not target.exists():
        partial = target.with_suffix(f".{os.getpid()}.o")
        _run([COMPILER, *flags, "-x", "c++", "-c", str(source), "-o", str(partial)])
        partial.replace(target)
    return target


def build(
    name: str,
    sources: list[Path],
    *,
    sanitizer: str | None = None,
    shared: bool = False,
    extra: tuple[str, ...] = (),
    jobs: int = 2,
) -> Path:
    """Compiles ``sources`` and the simulator into a program or a shared library."""
    BUILD.mkdir(parents=True, exist_ok=True)
    headers = _headers_digest()
    with ThreadPoolExecutor(jobs) as pool:
        objects = list(
            pool.map(
                lambda source: _compile(source, sanitizer, headers, extra),
                [*sources, *SIMULATOR],
            )
        )
    key = hashlib.sha256(" ".join(path.name for path in objects).encode())
    target = BUILD / f"{name}-{key.hexdigest()[:16]}{'.so' if shared else ''}"
    if not target.exists():
        partial = target.with_suffix(f".{os.getpid()}")
        _run(
            [
                COMPILER,
                *SANITIZERS[sanitizer],
                *(["-shared"] if shared else []),
                *map(str, objects),
                "-o",
                str(partial),
            ]
        )
        partial.replace(target)
    return target
