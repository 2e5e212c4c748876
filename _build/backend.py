"""PEP 517 hooks: scikit-build-core, told where the user's torch lies.

Build isolation hides the installed torch from the build, and listing torch as a build
requirement would download another one next to it. Only headers and one library of torch
are needed, and those can be read from disk; so torch becomes a build requirement in the
one case where the target environment has none.
"""

import os
from pathlib import Path

from scikit_build_core import build as _skbuild
from scikit_build_core.build import (
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

from torch_on_disk import MINIMUM, find_torch

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ConfigSettings = dict[str, list[str] | str]

_CONSTRAINTS = Path(__file__).resolve().parent.parent / "constraints.txt"


def torch_requirement() -> str:
    """Requirement for a torch to build against when none is installed.

    pip does not hand ``-c constraints.txt`` on to build environments, and the newest
    torch may weigh gigabytes; hence the tested pin. Any torch from the ABI target on
    can load the result, whichever one supplied the headers.
    """
    minimum = ".".join(map(str, MINIMUM))
    if _CONSTRAINTS.is_file():
        for line in _CONSTRAINTS.read_text(encoding="utf-8").splitlines():
            if line.startswith("torch=="):
                return line.split("#")[0].strip()
    return f"torch>={minimum}"


def _with_torch(requirements: list[str]) -> list[str]:
    if find_torch() is None:
        return [*requirements, torch_requirement()]
    return requirements


def _with_defines(config_settings: ConfigSettings | None) -> ConfigSettings:
    """Settings of the caller plus the defines CMake must not remember by itself.

    The build folder outlives a build, and with it CMake's cache: what is not passed
    anew would keep the value of the build before.
    """
    settings = dict(config_settings or {})
    torch = find_torch()
    if torch is None:
        raise RuntimeError(
            "No torch to build against was found. Install torch>="
            f"{'.'.join(map(str, MINIMUM))} first, or build with pip's default "
            "isolation, which fetches one."
        )
    settings.setdefault("cmake.define.WPNODE_TORCH_DIR", str(torch))
    cuda = os.environ.get("WPNODE_CUDA") or "AUTO"
    settings.setdefault("cmake.define.WPNODE_CUDA", cuda)
    return settings


def get_requires_for_build_wheel(
    config_settings: ConfigSettings | None = None,
) -> list[str]:
    return _with_torch(_skbuild.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(
    config_settings: ConfigSettings | None = None,
) -> list[str]:
    return _with_torch(_skbuild.get_requires_for_build_editable(config_settings))


def build_wheel(
    wheel_directory: str,
    config_settings: ConfigSettings | None = None,
    metadata_directory: str | None = None,
) -> str:
    settings = _with_defines(config_settings)
    return _skbuild.build_wheel(wheel_directory, settings, metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: ConfigSettings | None = None,
    metadata_directory: str | None = None,
) -> str:
    settings = _with_defines(config_settings)
    return _skbuild.build_editable(wheel_directory, settings, metadata_directory)
