"""Runs the CUDA operators under sanitizers and writes benchmarks/cuda/sanitize.md.

    python python_tests/cuda_sim/sanitize.py            # all of them
    python python_tests/cuda_sim/sanitize.py address    # or none, thread; no report

The sources are those nvcc compiles; the simulator takes the place of the device. The
problems are the table all operators are tested with (operator_cases.py) and some made
for the kernels (driver.cpp). Derivatives of every order are the same operators again.
What passed is kept in build/cuda_sim: a run that was stopped goes on where it was.
"""

import argparse
import hashlib
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cuda_sim import toolchain  # noqa: E402
from operator_cases import CASES, Case  # noqa: E402

DRIVER = Path(__file__).with_name("driver.cpp")
REPORT = toolchain.ROOT / "benchmarks" / "cuda" / "sanitize.md"
RUNS = {"none": [], "address": [], "thread": ["few"]}
NAMES = {
    "none": "none",
    "address": "address and undefined behaviour",
    "thread": "thread",
}
REPORT_TEXT = """\
# The CUDA kernels under sanitizers

Written by `make cuda-sim-sanitize` ({compiler}): every launcher, from the sources nvcc
compiles, in up to three orders of threads and blocks. Given problems are the table all
operators are tested with; added ones are unaligned, with generated weights, with
starts out of order, and on a grid of one block. Results are compared with plain loops.

| sanitizer | run | result |
| --- | --- | --- |
{rows}
"""


def line(case: Case) -> str:
    """The line by which the driver reads a problem."""
    sizes = (case.batch, case.n_samples, case.state, case.ell, case.q)
    starts = case.starts
    listed = ("uniform",) if starts is None else (len(starts), *starts)
    return " ".join(map(str, (*sizes, int(case.per_segment), *listed))) + "\n"


def run(name: str, table: str) -> tuple[bool, str]:
    """Returns whether the run succeeded, and the last line of the driver."""
    program = toolchain.build(
        "driver",
        [*toolchain.kernel_sources(), DRIVER],
        sanitizer=None if name == "none" else name,
    )
    key = hashlib.sha256(table.encode()).hexdigest()[:16]
    kept = program.with_name(f"{program.name}-{key}.passed")
    begun = time.monotonic()
    if kept.exists():
        status, output = 0, kept.read_text()
    else:
        done = subprocess.run(
            [program, *RUNS[name]], input=table, text=True, stdout=subprocess.PIPE
        )
        status, output = done.returncode, done.stdout
        if status == 0:
            partial = kept.with_suffix(".partial")
            partial.write_text(output)
            partial.replace(kept)
    print(
        f"{output}{NAMES[name]}: {'failed' if status else 'clean'} "
        f"({time.monotonic() - begun:.0f} s)",
        flush=True,
    )
    return status == 0, (output.splitlines() or ["no output"])[-1]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"some of {list(RUNS)}; else all")
    names = parser.parse_args().names
    if unknown := set(names) - set(RUNS):
        parser.error(f"names must be some of {list(RUNS)}; got {sorted(unknown)}")
    table = "".join(map(line, CASES.values()))
    results = {name: run(name, table) for name in names or RUNS}
    if not names:
        version = subprocess.run(
            [toolchain.COMPILER, "--version"], capture_output=True, text=True
        ).stdout.splitlines()[0]
        rows = "\n".join(
            f"| {NAMES[name]} | {said} | {'clean' if good else 'failed'} |"
            for name, (good, said) in results.items()
        )
        partial = REPORT.with_suffix(".partial")
        partial.write_text(REPORT_TEXT.format(compiler=version, rows=rows))
        partial.replace(REPORT)
    return int(not all(good for good, _ in results.values()))


if __name__ == "__main__":
    sys.exit(main())
