"""Compiles the CUDA kernels for every target and writes cuda_static.md.

    python benchmarks/cuda_static.py            # all targets, needs nvcc and g++
    python benchmarks/cuda_static.py 80 90      # some

Warnings are errors. Exits with status 1 if a kernel spills registers or uses local
memory, or if registers or shared memory keep the kernels of a default problem from half
of the threads of a multiprocessor.
"""

import hashlib
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python_tests"))

from cuda_shapes import OPERATORS, PURPOSES, SHAPES, Shape  # noqa: E402

from cuda_sim import kernels  # noqa: E402
from cuda_sim.kernels import Segments, Weights  # noqa: E402

CSRC = ROOT / "csrc"
BUILD = ROOT / "build" / "cuda_static"
REPORT = Path(__file__).with_name("cuda_static.md")
FLAGS = [
    *("-std=c++20", "-O3", f"-I{CSRC}", "-Xptxas=-v", "-Werror=all-warnings"),
    "-Xcompiler=-Wall,-Wextra",
]
REGISTERS = 65536  # of a multiprocessor; granted to warps in units of 256


@dataclass(frozen=True)
class Target:
    """Limits of one multiprocessor."""

    number: int
    threads: int
    shared: int  # bytes
    reserved: int = 1024  # shared bytes the system takes from each block


TARGETS = (
    Target(75, 1024, 64 * 1024, 0),
    Target(80, 2048, 164 * 1024),
    Target(86, 1536, 100 * 1024),
    Target(89, 1536, 100 * 1024),
    Target(90, 2048, 228 * 1024),
    Target(100, 2048, 228 * 1024),
    Target(103, 2048, 228 * 1024),
    Target(110, 1536, 228 * 1024),
    Target(120, 1536, 100 * 1024),
    Target(121, 1536, 100 * 1024),
)
CPP_NAMES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
}
KERNELS = {
    "corr": "residual_kernel",
    "weak_loss": "residual_kernel",
    "weak_loss_grad": "loss_gradient_kernel",
    "corr_t": "adjoint_kernel",
    "corr_w": "shared_kernel",
}


@dataclass(frozen=True)
class Usage:
    registers: int
    stack: int
    spills: int


def sources() -> list[Path]:
    return sorted((CSRC / "cuda").glob("*.cu"))


def compile_one(source: Path, code: str, arch: str) -> str:
    """What ptxas says; kept under a hash of everything that matters."""
    headers = b"".join(
        path.read_bytes()
        for folder in ("cuda", "core")
        for path in sorted((CSRC / folder).glob("*.[hc]*"))
        if path.suffix in (".h", ".cuh")
    )
    flags = [*FLAGS, f"-gencode=arch={arch},code={code}"]
    key = hashlib.sha256(headers + source.read_bytes() + " ".join(flags).encode())
    log = BUILD / f"{source.stem}-{code}-{key.hexdigest()[:16]}.log"
    if not log.exists():
        target = log.with_suffix(".o")
        command = ["nvcc", *flags, "-c", str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            output = done.stderr + done.stdout
            raise RuntimeError(f"{' '.join(command)}\n{output[:4000]}")
        target.unlink()
        log.write_text(done.stderr + done.stdout)
    return log.read_text()


def parse(text: str) -> dict[str, Usage]:
    """Usage by demangled name, e.g. ``residual_kernel<float, 4, 0>``."""
    found = re.findall(
        r"Compiling entry function '(\S+)'.*?(\d+) bytes stack frame, "
        r"(\d+) bytes spill stores.*?Used (\d+) registers",
        text,
        re.DOTALL,
    )
    names = subprocess.run(
        ["c++filt"],
        input="\n".join(mangled for mangled, *_ in found),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    usage = {}
    for name, (_, stack, spills, registers) in zip(names, found, strict=True):
        short = re.sub(r"\(wpnode::cuda::WeightMode\)", "", name)
        short = re.search(r"(\w+_kernel(?:<[^()]*>)?)\(", short)
        assert short, name
        usage[short[1]] = Usage(int(registers), int(stack), int(spills))
    return usage


def occupancy(target: Target, registers: int, threads: int, shared: int) -> float:
    warp_registers = -(-registers * 32 // 256) * 256
    by_registers = REGISTERS // warp_registers // (threads // 32)
    by_shared = target.shared // (shared + target.reserved)
    blocks = min(by_registers, by_shared, target.threads // threads)
    return blocks * threads / target.threads


def instance(shape: Shape, operator: str) -> tuple[str, dict[str, int]]:
    """The kernel a default problem runs, and its plan."""
    plan = kernels.plan(
        Segments(shape.ell, shape.q),
        Weights(torch.ones(shape.ell + 1)),
        PURPOSES[operator],
        shape.dtype,
        (1, shape.samples, shape.state),
    )
    arguments = f"{CPP_NAMES[shape.dtype]}, {plan['vector']}, {plan['mode']}"
    return f"{KERNELS[operator]}<{arguments}>", plan


REPORT_TEXT = """\
# The CUDA kernels as compiled

Written by `python benchmarks/cuda_static.py` with {version}: every kernel for
sm_{targets} and PTX, warnings as errors. No GPU was involved.

## Default problems

Share of a multiprocessor's threads that its registers and shared memory allow. The bar
is 50 %.

| problem | operator | kernel | threads | shared bytes | {numbers} |
| --- | --- | --- | --- | --- | {rules} |
{defaults}

## All kernels

Registers a thread, the largest over all targets; no kernel spills or uses local memory.
Template arguments: storage type, elements a lane moves at once, and how the kernel
comes by its weights (0 one row in shared memory, 1 a row per segment, 2 generated from
times, 3 from global memory).

| kernel | registers |
| --- | --- |
{kernels}
"""


def main() -> int:
    if not shutil.which("nvcc"):
        print("skipped: no nvcc on PATH")
        return 0
    wanted = [int(number) for number in sys.argv[1:]]
    targets = [t for t in TARGETS if not wanted or t.number in wanted]
    BUILD.mkdir(parents=True, exist_ok=True)
    jobs = [
        (s, f"sm_{t.number}", f"compute_{t.number}") for t in targets for s in sources()
    ]
    last = f"compute_{targets[-1].number}"
    jobs += [(source, last, last) for source in sources()]
    with ThreadPoolExecutor(2) as pool:
        logs = list(pool.map(lambda job: compile_one(*job), jobs))
    usage: dict[int, dict[str, Usage]] = {}
    for (_, code, _), log in zip(jobs, logs, strict=True):
        if code.startswith("sm_"):
            usage.setdefault(int(code[3:]), {}).update(parse(log))

    problems = [
        f"{name} on sm_{number}: {u.spills} bytes spilled, {u.stack} bytes of stack"
        for number, by_name in usage.items()
        for name, u in by_name.items()
        if u.spills or u.stack
    ]
    defaults = []
    for shape in SHAPES:
        for operator in OPERATORS:
            name, plan = instance(shape, operator)
            shares = {
                t.number: occupancy(
                    t, usage[t.number][name].registers, plan["threads"], plan["shared"]
                )
                for t in targets
            }
            problems += [
                f"{shape.name} {operator} on sm_{number}: {share:.0%} of the threads"
                for number, share in shares.items()
                if share < 0.5
            ]
            cells = [shape.name, operator, f"`{name}`", plan["threads"], plan["shared"]]
            cells += [f"{share:.0%}" for share in shares.values()]
            defaults.append(f"| {' | '.join(map(str, cells))} |")
    names = sorted({name for by_name in usage.values() for name in by_name})
    most = {n: max(u[n].registers for u in usage.values() if n in u) for n in names}
    version = subprocess.run(
        ["nvcc", "--version"], capture_output=True, text=True
    ).stdout
    text = REPORT_TEXT.format(
        version="nvcc " + version.rpartition("release ")[2].split(",")[0],
        targets=", ".join(str(t.number) for t in targets),
        numbers=" | ".join(f"sm_{t.number}" for t in targets),
        rules=" | ".join("---" for _ in targets),
        defaults="\n".join(defaults),
        kernels="\n".join(f"| `{name}` | {most[name]} |" for name in names),
    )
    if not wanted:
        REPORT.write_text(text)
    print(f"{len(names)} kernels, {len(targets)} targets, {len(problems)} problems")
    print("\n".join(problems))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
