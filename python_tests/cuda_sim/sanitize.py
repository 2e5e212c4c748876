"""Runs the CUDA operators under the address, undefined and thread sanitizers.

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
RUNS = {None: [], "address": [], "thread": ["few"]}


def line(case: Case) -> str:
    """A problem as the driver reads it."""
    starts = case.starts
    listed = (
        "uniform" if starts is None else f"{len(starts)} {' '.join(map(str, starts))}"
    )
    sizes = (case.batch, case.n_samples, case.state, case.ell, case.q)
    return f"{' '.join(map(str, sizes))} {int(case.per_segment)} {listed}\n"


def main() -> int:
    table = "".join(map(line, CASES.values()))
    failed = False
    for sanitizer, arguments in RUNS.items():
        begun = time.monotonic()
        program = toolchain.build(
            "driver", [*toolchain.kernel_sources(), DRIVER], sanitizer=sanitizer
        )
        built = time.monotonic()
        status = subprocess.run(
            [program, *arguments], input=table, text=True
        ).returncode
        failed |= status != 0
        print(
            f"{sanitizer or 'no'} sanitizer: {'failed' if status else 'clean'} "
            f"(build {built - begun:.0f} s, run {time.monotonic() - built:.0f} s)",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
