"""Builds the extension with its CUDA kernels against a CUDA build of torch.

    python benchmarks/cuda/link.py                           # installs such a torch
    python benchmarks/cuda/link.py --python env/bin/python   # uses one that is there

Needs nvcc but no GPU; the torch it installs into build/cuda_link takes gigabytes. Exits
with status 1 unless the extension compiles, links, imports, computes on the CPU, has an
implementation of every operator for CUDA, and leaves CUDA work without a driver to
torch's own message. Where nvcc or that torch cannot be had it says why and exits with
status 0. TORCH_CUDA_ARCH_LIST chooses the architectures, 8.0+PTX if unset.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "cuda_link"
REPORT = Path(__file__).with_name("link.md")
TORCH = "torch==2.14.1"
TESTS = ("test_binary.py", "test_ops.py", "test_autograd.py", "test_losses.py")
KERNELS = (
    "residual_kernel",
    "adjoint_kernel",
    "loss_gradient_kernel",
    "shared_kernel",
    "per_segment_kernel",
    "weights_kernel",
    "scale_kernel",
    "finish_kernel",
    "finish_columns_kernel",
)
# Runs in the environment of the CUDA torch and prints one finding a line.
PROBE = """
import ctypes, os
import torch
import wpnode_ext as wp

info = wp.build_info()
assert info["cuda"], info
print(f"built against torch {info['torch_built_against']} with CUDA "
      f"{info['cuda_version']} for {info['cuda_architectures']}; runs under torch "
      f"{info['torch_running']} (CUDA {info['cuda_running']})")

v, f = torch.randn(2, 500, 3, dtype=torch.float64)
fused, stock = (
    wp.weak_loss(f, v, dt=0.1, backend=name) for name in ("fused", "reference")
)
torch.testing.assert_close(fused, stock)
print("the loss on the CPU equals that of stock torch")

names = ("corr", "corr_t", "corr_w", "weak_loss", "weak_loss_grad", "segment_rows",
         "weak_loss_at", "weak_loss_grad_at")
for name in names:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    assert has(f"wpnode::{name}", "CUDA"), name
print(f"all {len(names)} operators have an implementation for CUDA")

library = ctypes.CDLL("libtorch_cuda.so", os.RTLD_LAZY | os.RTLD_NOLOAD)
library.aoti_torch_get_current_cuda_stream
print("torch's CUDA library tells the current stream")

if torch.cuda.is_available():
    print("a GPU is there: refusal without a driver not tried")
else:
    try:
        wp.weak_loss(f.cuda(), v.cuda(), dt=0.1)
    except (RuntimeError, AssertionError) as error:
        text = str(error).splitlines()[0]
        assert "NVIDIA" in text, text
        print(f"without a GPU, CUDA work is refused: {text}")
    else:
        raise SystemExit("CUDA work without a GPU was not refused")
"""


class Unavailable(Exception):
    """The machine lacks something that this check needs."""


def run(*command: str | Path, **variables: str) -> str:
    """Output of a command in a folder that hides no installed package."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=BUILD,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        text = done.stdout + done.stderr
        raise RuntimeError(f"{' '.join(map(str, command[:6]))}\n{text[-4000:]}")
    return done.stdout


def environment(requirement: str) -> Path:
    """The interpreter of an environment with a CUDA torch, created if missing."""
    python = BUILD / "venv" / "bin" / "python"
    if not python.exists():
        run(sys.executable, "-m", "venv", BUILD / "venv")
    try:
        run(python, "-m", "pip", "install", "--quiet", requirement)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise Unavailable(f"{requirement} cannot be installed: {reason}") from error
    return python


def cuda_version(python: Path) -> str:
    version = run(python, "-c", "import torch; print(torch.version.cuda or '')").strip()
    if not version:
        raise Unavailable(f"the torch of {python} is not a CUDA build")
    return version


def install(python: Path, architectures: str) -> None:
    run(
        *(python, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps"),
        *("-C", f"build-dir={BUILD / 'tree'}", ROOT),
        WPNODE_CUDA="ON",
        TORCH_CUDA_ARCH_LIST=architectures,
    )
    extras = ("pytest", "hypothesis", "mpmath", "beartype")
    needs = ("numpy", "scipy", "torchdiffeq", "jaxtyping")
    run(python, "-m", "pip", "install", "--quiet", *needs, *extras)


def find_cuobjdump(python: Path) -> str | None:
    """Path of a tool: from the toolkit, or the copy that triton contains."""
    inside = "lib/python*/site-packages/triton/backends/nvidia/bin/cuobjdump"
    brought = [str(path) for path in python.parent.parent.glob(inside)]
    return next(filter(None, [shutil.which("cuobjdump"), *brought]), None)


def kernels_in(binary: Path, cuobjdump: str) -> dict[str, list[str]]:
    """Names of the kernels by architecture."""
    text = run(cuobjdump, "--dump-elf-symbols", binary)
    found: dict[str, list[str]] = {}
    arch = ""
    for line in text.splitlines():
        if match := re.match(r"arch = (\w+)", line):
            arch = match[1]
        elif "STO_ENTRY" in line:
            found.setdefault(arch, []).append(line.split()[-1])
    return found


def check_device_code(python: Path) -> str:
    where = "import wpnode_ext.ops.backend as b; print(b._C.__file__)"
    binary = Path(run(python, "-P", "-c", where).strip())
    size = f"{binary.stat().st_size / 1e6:.1f} MB"
    cuobjdump = find_cuobjdump(python)
    if cuobjdump is None:
        if ".nv_fatbin" not in run("readelf", "--sections", "--wide", binary):
            raise RuntimeError(f"{binary} holds no device code")
        return f"the module ({size}) holds device code (no cuobjdump to list it)"
    found = kernels_in(binary, cuobjdump)
    if not found:
        raise RuntimeError(f"{binary} holds no device code")
    for arch, names in found.items():
        missing = [k for k in KERNELS if not any(k in name for name in names)]
        if missing:
            raise RuntimeError(f"no {', '.join(missing)} for {arch} in {binary}")
    ptx = run(cuobjdump, "--list-ptx", binary).count("PTX file")
    counts = ", ".join(f"{len(names)} for {arch}" for arch, names in found.items())
    return f"kernels in the module ({size}): {counts}; {ptx} PTX files"


def check(python: Path) -> list[str]:
    architectures = os.environ.get("TORCH_CUDA_ARCH_LIST") or "8.0+PTX"
    cuda_version(python)
    begun = time.monotonic()
    install(python, architectures)
    print(f"compiled, linked and installed in {time.monotonic() - begun:.0f} s")
    findings = ["compiled, linked and installed"]
    findings += run(python, "-P", "-c", PROBE).splitlines()
    findings.append(check_device_code(python))
    tests = [ROOT / "python_tests" / name for name in TESTS]
    output = run(python.parent / "pytest", "-q", "-m", "not slow", *tests)
    summary = re.sub(r" in [\d.]+s.*", "", output.strip().splitlines()[-1])
    findings.append(f"tests {', '.join(TESTS)}: {summary}")
    return findings


REPORT_TEXT = """\
# The CUDA build of the extension, without a GPU

Written by `python benchmarks/cuda/link.py`:

{findings}
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", type=Path, help="interpreter that has a CUDA torch")
    parser.add_argument("--torch", default=TORCH, help="requirement to install")
    arguments = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    try:
        if not shutil.which("nvcc"):
            raise Unavailable("no nvcc on PATH")
        python = arguments.python or environment(arguments.torch)
        # Not resolved: the symbolic link identifies the environment.
        findings = check(python.absolute())
    except Unavailable as reason:
        print(f"skipped: {reason}")
        return 0
    except RuntimeError as error:
        print(f"failed: {error}")
        return 1
    print("\n".join(findings))
    partial = REPORT.with_suffix(".partial")
    partial.write_text(
        REPORT_TEXT.format(findings="\n".join(f"- {finding}." for finding in findings))
    )
    partial.replace(REPORT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
