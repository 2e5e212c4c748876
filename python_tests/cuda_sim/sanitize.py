"""Runs the CUDA operators under sanitizers and writes benchmarks/cuda_sanitize.md.

    python python_tests/cuda_sim/sanitize.py

The sources are those nvcc compiles; the simulator takes the place of the device. The
problems are the table all operators are tested with (operator_cases.py) and some made
for the kernels (driver.cpp). Derivatives of every order are the same operators again.
"""

import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cuda_sim import toolchain  # noqa: E402
from operator_cases import CASES, Case  # noqa: E402

DRIVER = Path(__file__).with_name("driver.cpp")
REPORT = toolchain.ROOT / "benchmarks" / "cuda_sanitize.md"
RUNS = {None: [], "address": [], "thread": ["few"]}
NAMES = {
    None: "none",
    "address": "address and undefined behaviour",
    "thread": "thread",
}
REPORT_TEXT = """\
# The CUDA kernels under sanitizers

Written by `make cuda-sim-sanitize` ({compiler}): every launcher, from the sources nvcc
compiles, in three orders of threads and blocks. Given problems are the table all
operators are tested with; added ones are unaligned, with generated weights, with
starts out of order, and on a grid of one block. Results are compared with plain loops.

| sanitizer | run | result |
| --- | --- | --- |
{rows}
"""


def line(case: Case) -> str:
    """A problem as the driver reads it."""
    sizes = (case.batch, case.n_samples, case.state, case.ell, case.q)
    starts = case.starts
    listed = ("uniform",) if starts is None else (len(starts), *starts)
    return " ".join(map(str, (*sizes, int(case.per_segment), *listed))) + "\n"


def run(sanitizer: str | None, arguments: list[str], table: str) -> tuple[bool, str]:
    """Whether all was well, and what the driver said last."""
    begun = time.monotonic()
    program = toolchain.build(
        "driver", [*toolchain.kernel_sources(), DRIVER], sanitizer=sanitizer
    )
    built = time.monotonic()
    done = subprocess.run(
        [program, *arguments], input=table, text=True, stdout=subprocess.PIPE
    )
    print(
        f"{done.stdout}{NAMES[sanitizer]}: {'failed' if done.returncode else 'clean'} "
        f"(build {built - begun:.0f} s, run {time.monotonic() - built:.0f} s)",
        flush=True,
    )
    return done.returncode == 0, (done.stdout.splitlines() or ["no output"])[-1]


def main() -> int:
    table = "".join(map(line, CASES.values()))
    results = {
        sanitizer: run(sanitizer, arguments, table)
        for sanitizer, arguments in RUNS.items()
    }
    version = subprocess.run(
        [toolchain.COMPILER, "--version"], capture_output=True, text=True
    ).stdout.splitlines()[0]
    rows = "\n".join(
        f"| {NAMES[sanitizer]} | {said} | {'clean' if good else 'failed'} |"
        for sanitizer, (good, said) in results.items()
    )
    partial = REPORT.with_suffix(".partial")
    partial.write_text(REPORT_TEXT.format(compiler=version, rows=rows))
    partial.replace(REPORT)
    return int(not all(good for good, _ in results.values()))


if __name__ == "__main__":
    sys.exit(main())
