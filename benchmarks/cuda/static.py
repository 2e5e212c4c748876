"""Compiles the CUDA kernels for every target and writes static.md.

    python benchmarks/cuda/static.py            # all targets, needs nvcc and g++
    python benchmarks/cuda/static.py 80 90      # some, and no report
    python benchmarks/cuda/static.py --jobs 1   # one compiler at a time

Warnings are errors. Exits with status 1 if a kernel spills registers or uses local
memory, if registers or shared memory allow fewer than half of the threads of a
multiprocessor in a default problem, if a kernel of the vector path does not move its
vectors in one instruction, or if a kernel cannot read rows 16 bytes at a time. Results
are kept in build/cuda_static, where an interrupted run continues.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python_tests"))

from shapes import OPERATORS, SHAPES, Shape  # noqa: E402
from targets import TARGETS, Target, occupancy  # noqa: E402
from usage import Usage, kernel_names, parse  # noqa: E402

CSRC = ROOT / "csrc"
BUILD = ROOT / "build" / "cuda_static"
REPORT = Path(__file__).with_name("static.md")
FLAGS = [
    *("-std=c++20", "-O3", f"-I{CSRC}", "-Xptxas=-v", "-Werror=all-warnings"),
    "-Xcompiler=-Wall,-Wextra",
]

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
ADJOINT = KERNELS["corr_t"]
WEIGHT_GRADIENT = KERNELS["corr_w"]
FROM_GLOBAL = 3  # how the kernel comes by its weights: without shared memory


def sources() -> list[Path]:
    return sorted((CSRC / "cuda").glob("*.cu"))


def compile_one(source: Path, code: str, arch: str, product: str) -> str:
    """Output of ptxas or, for a virtual architecture, the PTX.

    The file's name has a hash of sources and flags. `product` is nvcc's option for its
    output: objects with host code for the first target, device code for the others.
    """
    headers = b"".join(
        path.read_bytes()
        for folder in ("cuda", "core")
        for path in sorted((CSRC / folder).glob("*.[hc]*"))
        if path.suffix in (".h", ".cuh")
    )
    flags = [*FLAGS, f"-gencode=arch={arch},code={code}"]
    key = hashlib.sha256(headers + source.read_bytes() + " ".join(flags).encode())
    kept = BUILD / f"{source.stem}-{code}-{key.hexdigest()[:16]}.txt"
    if not kept.exists():
        target = kept.with_suffix(".partial")
        command = ["nvcc", *flags, product, str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True)
        output = done.stderr + done.stdout
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}\n{output[:4000]}")
        if product != "-ptx":
            target.write_text(output)
        target.replace(kept)
        print(f"{source.name} for {code}", flush=True)
    return kept.read_text()


def check_vectors(ptx: str) -> list[str]:
    """Kernels that do not move their vectors, or rows of 16 bytes, in one instruction.

    All kernels but the adjoint copy rows of the series into shared memory, 16 bytes at
    a time.
    """
    parts = re.split(r"\.entry\s+(\S+?)\(", ptx)
    problems = []
    for name, body in zip(kernel_names(parts[1::2]), parts[2::2], strict=True):
        instance = re.fullmatch(r"(\w+)<\w+, (\d), (\d)>", name)
        if not instance or name.startswith("per_segment"):
            continue
        kernel, width, mode = instance[1], int(instance[2]), int(instance[3])
        wanted = {}
        if width > 1:
            vector = rf"\.v{width}\.\w+"
            wanted["vector load"] = rf"ld\.global(\.nc)?{vector}"
            wanted["vector load from shared memory"] = rf"ld\.shared{vector}"
            if kernel != WEIGHT_GRADIENT:  # writes sums of blocks
                wanted["vector store"] = rf"st\.global{vector}"
        if kernel != ADJOINT and mode != FROM_GLOBAL:
            wanted["load of 16 bytes"] = r"ld\.global(\.nc)?\.(v4\.\w32|v2\.\w64)"
        problems += [
            f"{name} has no {access}"
            for access, pattern in wanted.items()
            if not re.search(pattern, body)
        ]
    return problems


def instance(shape: Shape, operator: str) -> tuple[str, dict[str, int]]:
    """The kernel that a default problem runs, and its plan."""
    plan = shape.plan(operator)
    arguments = f"{CPP_NAMES[shape.dtype]}, {plan['vector']}, {plan['mode']}"
    return f"{KERNELS[operator]}<{arguments}>", plan


def judge_defaults(
    targets: list[Target], usage: dict[int, dict[str, Usage]]
) -> tuple[list[str], list[str]]:
    """Rows of the table of default problems, and the problems found."""
    rows, problems = [], []
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
            rows.append(row(*cells, *(f"{share:.0%}" for share in shares.values())))
    return rows, problems


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


REPORT_TEXT = """\
# The CUDA kernels as compiled

Written by `python benchmarks/cuda/static.py` with {version}: every kernel for
sm_{targets} and PTX, warnings as errors. No GPU was involved.

Problems found: {problems}.

## Default problems

Share of a multiprocessor's threads that its registers and shared memory allow. The bar
is 50 %.

| problem | operator | kernel | threads | shared bytes | {numbers} |
| --- | --- | --- | --- | --- | {rules} |
{defaults}

## All kernels

Registers a thread by target, and bytes spilled or in local memory, the largest over all
targets; the bar is 0. Shared memory is dynamic and at most 48 KB. In the PTX, kernels
of the vector path must read and write their vectors in one instruction, and kernels
that keep rows in shared memory must read them 16 bytes at a time.
Template arguments: storage type, elements a lane moves at once, and how the kernel
comes by its weights (0 one row in shared memory, 1 a row per segment, 2 generated from
times, 3 from global memory).

| kernel | {numbers} | spilled |
| --- | {rules} | --- |
{kernels}
"""


def report(
    usage: dict[int, dict[str, Usage]], defaults: list[str], problems: list[str]
) -> str:
    version = subprocess.run(
        ["nvcc", "--version"], capture_output=True, text=True
    ).stdout
    lines = []
    for name in sorted({name for by_name in usage.values() for name in by_name}):
        here = [by_name[name] for by_name in usage.values()]
        spilled = max(u.spills + u.stack for u in here)
        lines.append(row(f"`{name}`", *(u.registers for u in here), spilled))
    return REPORT_TEXT.format(
        version="nvcc " + version.rpartition("release ")[2].split(",")[0],
        targets=", ".join(map(str, usage)),
        problems="; ".join(problems) or "none",
        numbers=" | ".join(f"sm_{number}" for number in usage),
        rules=" | ".join("---" for _ in usage),
        defaults="\n".join(defaults),
        kernels="\n".join(lines),
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    numbers = [t.number for t in TARGETS]
    parser.add_argument("targets", nargs="*", type=int, help=f"some of {numbers}")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time")
    arguments = parser.parse_args()
    wanted = arguments.targets or numbers
    if unknown := set(wanted) - set(numbers):
        parser.error(f"targets must be some of {numbers}; got {sorted(unknown)}")
    targets = [t for t in TARGETS if t.number in wanted]
    if not shutil.which("nvcc"):
        print("skipped: no nvcc on PATH; the CUDA kernels were not compiled")
        return 0
    BUILD.mkdir(parents=True, exist_ok=True)
    last = f"compute_{targets[-1].number}"
    codes = [(f"sm_{t.number}", f"compute_{t.number}", "-cubin") for t in targets]
    codes[0] = (*codes[0][:2], "-c")
    codes.append((last, last, "-ptx"))
    jobs = [(source, *code) for code in codes for source in sources()]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        texts = list(pool.map(lambda job: compile_one(*job), jobs))
    usage: dict[int, dict[str, Usage]] = {}
    problems = []
    for (_, code, *_), text in zip(jobs, texts, strict=True):
        if code == last:
            problems += check_vectors(text)
        else:
            usage.setdefault(int(code[3:]), {}).update(parse(text))
    problems += [
        f"{name} on sm_{number}: {u.spills} bytes spilled, {u.stack} bytes of stack"
        for number, by_name in usage.items()
        for name, u in by_name.items()
        if u.spills or u.stack
    ]
    defaults, too_few = judge_defaults(targets, usage)
    problems += too_few
    if not arguments.targets:
        partial = REPORT.with_suffix(".partial")
        partial.write_text(report(usage, defaults, problems))
        partial.replace(REPORT)
    count = len(next(iter(usage.values())))
    print(f"{count} kernels, {len(targets)} targets, {len(problems)} problems")
    print("\n".join(problems))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
