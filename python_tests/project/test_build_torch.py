"""The build finds the torch to compile against without importing it."""

import os
import re
import subprocess
import venv
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
TORCH_FOLDER = Path(torch.__file__).parent


def make_torch(folder: Path, version: str = "2.13.0+cpu") -> Path:
    """A folder that looks like an installed torch to the build."""
    stable = folder / "torch" / "include" / "torch" / "csrc" / "stable"
    stable.mkdir(parents=True)
    (stable / "library.h").touch()
    (folder / "torch" / "version.py").write_text(f"__version__ = '{version}'\n")
    (folder / "torch" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    return folder / "torch"


@pytest.fixture
def isolated_python(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """Python of a fresh environment, and variables that isolate it as pip does.

    pip starts the backend with the target's interpreter, but with a sitecustomize that
    takes the target's packages off the import path.
    """
    target = tmp_path / "target"
    venv.create(target, with_pip=False, symlinks=True)
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (overlay / "sitecustomize.py").write_text(
        "import sys\n"
        "sys.path = [p for p in sys.path if not p.endswith('site-packages')]\n"
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WPNODE_")}
    environment = {**kept, "PYTHONPATH": str(overlay), "PYTHONNOUSERSITE": "1"}
    return target / "bin" / "python", environment


def site_packages(python: Path) -> Path:
    (found,) = (python.parent.parent / "lib").glob("python*/site-packages")
    return found


def ask_for_torch(
    python: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    command = [str(python), str(ROOT / "_build" / "torch_on_disk.py")]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )


def test_torch_of_the_target_is_found_despite_isolation(isolated_python) -> None:
    python, environment = isolated_python
    expected = make_torch(site_packages(python))
    unseen = subprocess.run([str(python), "-c", "import torch"], env=environment)
    assert unseen.returncode != 0, "the isolation of this test does not isolate"
    assert ask_for_torch(python, environment).stdout.strip() == str(expected)


def test_torch_from_a_pth_file_is_found(isolated_python) -> None:
    python, environment = isolated_python
    elsewhere = python.parent.parent / "elsewhere"
    expected = make_torch(elsewhere)
    (site_packages(python) / "more.pth").write_text(f"{elsewhere}\n")
    assert ask_for_torch(python, environment).stdout.strip() == str(expected)


def test_named_torch_folder_precedes_the_installed_one(
    isolated_python, tmp_path: Path
) -> None:
    python, environment = isolated_python
    make_torch(site_packages(python))
    named = make_torch(tmp_path / "named")
    environment["WPNODE_TORCH_DIR"] = str(named)
    assert ask_for_torch(python, environment).stdout.strip() == str(named)


@pytest.mark.parametrize("version", [None, "2.9.1"], ids=["none", "too old"])
def test_old_or_missing_torch_is_not_found(
    isolated_python, version: str | None
) -> None:
    python, environment = isolated_python
    if version is not None:
        make_torch(site_packages(python), version)
    answer = ask_for_torch(python, environment)
    assert (answer.returncode, answer.stdout) == (1, "")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("scikit_build_core")
    monkeypatch.syspath_prepend(str(ROOT / "_build"))
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("WPNODE_CUDA", raising=False)
    import backend

    return backend


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_torch_is_a_build_requirement_only_when_none_is_installed(
    backend, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    get_requires = getattr(backend, f"get_requires_for_build_{kind}")

    def wanted() -> list[str]:
        return [name for name in get_requires() if name.startswith("torch")]

    monkeypatch.setattr(backend, "find_torch", lambda: TORCH_FOLDER)
    assert wanted() == []
    monkeypatch.setattr(backend, "find_torch", lambda: None)
    pinned = re.findall(r"^torch==.*$", (ROOT / "constraints.txt").read_text(), re.M)
    assert wanted() == pinned


def test_torch_requirement_without_a_pin_is_the_minimum(
    backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(backend, "_CONSTRAINTS", tmp_path / "constraints.txt")
    assert backend.torch_requirement() == "torch>=2.10"


def test_build_without_torch_names_what_to_install(
    backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(backend, "find_torch", lambda: None)
    with pytest.raises(RuntimeError, match=r"No torch to build against.*torch>=2\.10"):
        backend.build_wheel(str(tmp_path))


def test_config_settings_precede_the_variable_and_the_default(
    backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "cmake.define.WPNODE_CUDA"
    assert backend._with_defines(None)[key] == "AUTO"
    monkeypatch.setenv("WPNODE_CUDA", "ON")
    assert backend._with_defines(None)[key] == "ON"
    assert backend._with_defines({key: "OFF"})[key] == "OFF"
