"""Runs the tests as other machines would: fewer instructions, more threads, a load.

    python python_tests/machines.py
    python python_tests/machines.py default:baseline:1 avx512:avx512:2:busy

A machine is written ``torch:package:threads``: the vector instructions that torch's
kernels may use, those that this package's may use, and the number of threads; ``:busy``
adds two processes that only compute. ``default`` restricts NumPy and the C library to
the architecture's baseline too. Logs go to ``build/machines``.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

LOGS = Path("build/machines")
TORCH, PACKAGE = ("default", "avx2", "avx512"), ("baseline", "avx2", "avx512")
BUSY = "default:avx512:1:busy"
# Prints the instructions that each library uses, one a line.
CAPABILITIES = """
import torch, wpnode_ext
print(torch.backends.cpu.get_cpu_capability().lower())
print(wpnode_ext.build_info()["cpu_capability"])
"""


@dataclass(frozen=True)
class Machine:
    """Instructions, threads and load of a run; in text ``torch:package:threads``."""

    torch: str
    package: str
    threads: int = 1
    busy: bool = False

    @classmethod
    def of(cls, text: str) -> "Machine":
        found = re.fullmatch(
            rf"({'|'.join(TORCH)}):({'|'.join(PACKAGE)}):([1-9]\d*)(:busy)?", text
        )
        if found is None:
            raise ValueError(
                f"a machine must be written torch:package:threads, e.g. {BUSY} or "
                f"avx2:baseline:2; got {text!r}."
            )
        return cls(found[1], found[2], int(found[3]), bool(found[4]))

    def __str__(self) -> str:
        text = f"{self.torch}:{self.package}:{self.threads}"
        return text + ":busy" * self.busy

    def environment(self) -> dict[str, str]:
        """The environment of a process on this machine."""
        limits = {
            "ATEN_CPU_CAPABILITY": self.torch,
            "WPNODE_CPU_CAPABILITY": self.package,
            "WPNODE_TEST_THREADS": str(self.threads),
        }
        if self.torch == "default":
            name = "NPY_DISABLE_CPU_FEATURES"
            limits[name] = os.environ.get(name) or " ".join(numpy_features())
            limits["GLIBC_TUNABLES"] = "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F"
        return os.environ | limits

    def missing(self) -> str:
        """Instructions of this machine that the processor lacks, as text."""
        command = [sys.executable, "-W", "ignore", "-c", CAPABILITIES]
        run = subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, check=True
        )
        wanted = {"torch": self.torch, "the package": self.package}
        pairs = zip(wanted.items(), run.stdout.split(), strict=True)
        return ", ".join(f"{name} has no {w}" for (name, w), has in pairs if w != has)


def numpy_features() -> list[str]:
    """NumPy's names of the instructions it may use beyond its baseline."""
    try:
        from numpy._core import _multiarray_umath as umath
    except ImportError:  # NumPy 1
        from numpy.core import _multiarray_umath as umath
    found = umath.__cpu_features__
    return [name for name in umath.__cpu_dispatch__ if found.get(name)]


def every_machine() -> list[Machine]:
    names = product(TORCH, PACKAGE, (1, 2))
    return [*(Machine(*name) for name in names), Machine.of(BUSY)]


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keeps some processes computing."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def run_suite(machine: Machine, arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Pytest's last line, and its lines about tests that failed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{machine}.log".replace(":", "-")
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider"]
    with log.open("w") as file, load(2 if machine.busy else 0):
        subprocess.run(
            [*command, *arguments],
            env=machine.environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    lines = log.read_text().splitlines() or ["no output"]
    failures = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if not failures and not re.search(r"\d+ passed", lines[-1]):
        failures = [f"pytest ended without a result: {lines[-1]}"]
    return lines[-1], failures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("machines", nargs="*", metavar="MACHINE")
    parser.add_argument(
        "--pytest", default="-m 'not slow'", help="arguments of pytest, in one string"
    )
    given = parser.parse_args(arguments)
    try:
        wanted = [Machine.of(text) for text in given.machines]
    except ValueError as error:
        parser.error(str(error))
    rows, failed = [], False
    for machine in wanted or every_machine():
        if missing := machine.missing():
            rows.append(f"{machine!s:24} skipped: {missing}")
            continue
        print(f"{machine!s:24} {time.strftime('%H:%M:%S')} ...", flush=True)
        result, failures = run_suite(machine, shlex.split(given.pytest))
        rows += [f"{machine!s:24} {result}", *(f"    {line}" for line in failures)]
        failed |= bool(failures)
        print(rows[-1 - len(failures)], flush=True)
    print("", *rows, sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
