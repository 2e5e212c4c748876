"""Find the folder of an installed torch without importing it.

Run as a script it prints the folder, or nothing and exit status 1.
"""

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

MINIMUM = (2, 10)

# -E drops PYTHONPATH, through which pip places a build in isolation; -P keeps the
# current folder off the path. What is left is the environment that runs this Python.
_ASK = (
    "-E",
    "-P",
    "-c",
    "import importlib.util as u; s = u.find_spec('torch');"
    "print(s.origin if s and s.origin else '')",
)


def _importable() -> Path | None:
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).parent if spec and spec.origin else None


def _target_environment() -> Path | None:
    """Torch as this interpreter sees it outside of the isolation."""
    answer = subprocess.run(
        [sys.executable, *_ASK], capture_output=True, text=True, check=False
    )
    origin = answer.stdout.strip()
    return Path(origin).parent if origin else None


def candidates() -> Iterator[Path]:
    """Folders where torch may be, most trusted first."""
    if named := os.environ.get("WPNODE_TORCH_DIR"):
        yield Path(named)
    if importable := _importable():
        yield importable
    paths = sysconfig.get_paths()
    yield Path(paths["platlib"]) / "torch"
    yield Path(paths["purelib"]) / "torch"
    if outside := _target_environment():
        yield outside


def version_of(folder: Path) -> tuple[int, int] | None:
    """Major and minor version of the torch in ``folder``; None if it is none."""
    try:
        text = (folder / "version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"__version__ = ['\"](\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def is_usable(folder: Path) -> bool:
    """Whether ``folder`` holds the stable-ABI headers of a torch new enough."""
    version = version_of(folder)
    header = folder / "include" / "torch" / "csrc" / "stable" / "library.h"
    return version is not None and version >= MINIMUM and header.is_file()


def find_torch() -> Path | None:
    """First usable torch folder, or None."""
    return next((folder for folder in candidates() if is_usable(folder)), None)


if __name__ == "__main__":
    found = find_torch()
    if found is None:
        sys.exit(1)
    print(found)
