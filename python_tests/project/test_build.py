"""The build: choice of CUDA, architectures, contents of a wheel."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
TORCH_FOLDER = Path(torch.__file__).parent


def tool(name: str) -> str:
    beside_python = str(Path(sys.executable).parent)
    found = shutil.which(name, path=beside_python + os.pathsep + os.environ["PATH"])
    if found is None:
        pytest.skip(f"needs {name}")
    if name == "cmake":
        words = subprocess.run([found, "--version"], capture_output=True, text=True)
        version = tuple(int(n) for n in words.stdout.split()[2].split(".")[:2])
        if version < (3, 26):
            pytest.skip(f"needs cmake 3.26 or newer; {found} is older")
    return found


def configure(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Configures the project in ``folder`` with no nvcc on PATH."""
    pytest.importorskip("pybind11")
    folders = os.environ["PATH"].split(os.pathsep)
    visible = [f for f in folders if not (Path(f) / "nvcc").exists()]
    hidden = ("WPNODE_CUDA", "CUDACXX", "CUDA_HOME", "CUDA_PATH")
    kept = {k: v for k, v in os.environ.items() if k not in hidden}
    return subprocess.run(
        [
            tool("cmake"),
            *("-S", str(ROOT), "-B", str(folder), "-G", "Ninja"),
            f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-DWPNODE_TORCH_DIR={TORCH_FOLDER}",
        ],
        env={**kept, "PATH": os.pathsep.join(visible), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def plain(text: str) -> str:
    """Joins the lines into which CMake wraps long messages."""
    return " ".join(text.split())


def test_cuda_on_without_nvcc_fails_with_a_remedy(tmp_path: Path) -> None:
    done = configure(tmp_path, WPNODE_CUDA="ON")
    assert done.returncode != 0
    message = plain(done.stderr)
    assert (
        "WPNODE_CUDA=ON needs a working nvcc, but there is none: no nvcc in PATH."
        in (message)
    )
    assert "put nvcc on PATH (or set CUDA_HOME or CUDACXX)" in message
    assert "build for the CPU with WPNODE_CUDA=OFF." in message


def test_cuda_auto_without_nvcc_builds_for_the_cpu_with_one_message(
    tmp_path: Path,
) -> None:
    done = configure(tmp_path)
    assert done.returncode == 0, done.stderr
    messages = [line for line in done.stdout.splitlines() if "CPU build" in line]
    assert messages == [
        "-- wpnode_ext: CPU build, no nvcc in PATH "
        "(WPNODE_CUDA=AUTO; set WPNODE_CUDA=ON to insist)."
    ]


def test_nvcc_that_cannot_compile_is_rejected(tmp_path: Path) -> None:
    broken = tmp_path / "nvcc"
    broken.write_text("#!/bin/sh\necho 'no licence today' >&2\nexit 1\n")
    broken.chmod(0o755)
    done = configure(tmp_path / "on", WPNODE_CUDA="ON", CUDACXX=str(broken))
    assert done.returncode != 0
    assert "nvcc cannot compile a kernel: no licence today" in plain(done.stderr)


def test_misspelt_cuda_choice_is_rejected(tmp_path: Path) -> None:
    done = configure(tmp_path, WPNODE_CUDA="MAYBE")
    assert done.returncode != 0
    assert "`WPNODE_CUDA` must be AUTO, ON or OFF; got MAYBE." in plain(done.stderr)


def run_cmake_script(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.cmake"
    module = ROOT / "cmake" / "cuda_architectures.cmake"
    script.write_text(f'include("{module}")\n{code}\nmessage("${{result}}")\n')
    return subprocess.run(
        [tool("cmake"), "-P", str(script)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8.0", "80-real"),
        ("8.0 9.0+PTX", "80-real;90-real;90-virtual"),
        ("7.5;8.6,12.0+PTX", "75-real;86-real;120-real;120-virtual"),
        ("9.0a", "90a-real"),
    ],
)
def test_arch_list_has_the_spelling_of_torch(
    tmp_path: Path, text: str, expected: str
) -> None:
    done = run_cmake_script(tmp_path, f'wpnode_parse_arch_list("{text}" result)')
    assert done.stderr.strip() == expected


def test_unknown_architecture_is_rejected_by_name(tmp_path: Path) -> None:
    done = run_cmake_script(tmp_path, 'wpnode_parse_arch_list("Hopper" result)')
    assert done.returncode != 0
    assert 'must hold entries such as 8.0 or 9.0+PTX; got "Hopper".' in plain(
        done.stderr
    )


def test_default_architectures_are_those_nvcc_lists(tmp_path: Path) -> None:
    nvcc = tmp_path / "nvcc"
    known = " ".join(f"sm_{n}" for n in (50, 75, 80, 86, 87, 89, 90))
    nvcc.write_text(f"#!/bin/sh\nprintf '%s\\n' {known}\n")
    nvcc.chmod(0o755)
    done = run_cmake_script(tmp_path, f'wpnode_default_architectures("{nvcc}" result)')
    expected = "75-real;80-real;86-real;89-real;90-real;90-virtual"
    assert done.stderr.strip() == expected


@pytest.mark.slow
def test_wheel_contains_only_the_package_and_loads(tmp_path: Path) -> None:
    pytest.importorskip("scikit_build_core")
    tree = tmp_path / "tree"
    # Other tests and tools write these folders at the same time.
    leave_out = shutil.ignore_patterns(".*", "build", "runs", "*.so", "__pycache__")
    shutil.copytree(ROOT, tree, ignore=leave_out)
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation"]
    environment = {**os.environ, "WPNODE_CUDA": "OFF"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    target = tmp_path / "installed"
    command = [*pip, "--target", str(target), str(tree)]
    subprocess.run(command, check=True, env=environment, capture_output=True)

    top = sorted(path.name for path in target.iterdir())
    assert top == ["bin", "wpnode_ext", "wpnode_ext-0.1.0.dist-info"]
    assert [path.name for path in (target / "bin").iterdir()] == ["wpnode"]
    suffixes = {path.suffix for path in (target / "wpnode_ext").rglob("*.*")}
    assert suffixes <= {".py", ".pyc", ".typed", ".so"}

    code = "import wpnode_ext as w; print(w.__file__, w.build_info()['torch_running'])"
    # -S -E hide an editable install of this environment.
    paths = [str(target), str(TORCH_FOLDER.parent)]
    probe = f"import sys; sys.path[:0] = {paths}; {code}"
    answer = subprocess.run(
        [sys.executable, "-S", "-E", "-P", "-c", probe],
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split() == [
        str(target / "wpnode_ext" / "__init__.py"),
        torch.__version__,
    ]
