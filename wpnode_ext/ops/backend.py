"""Loads the compiled module `_C` and reports how it was built."""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

_MINIMUM_TORCH = (2, 10)
_REINSTALL = "Reinstall with `pip install --force-reinstall --no-deps .`"


def _import_torch() -> ModuleType:
    # First, because it loads the libraries the compiled module is linked against.
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise ImportError(
            f"wpnode_ext needs torch, which cannot be imported: {error}. "
            "Install it, e.g. `pip install 'torch>=2.10'`."
        ) from error
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < _MINIMUM_TORCH:
        raise ImportError(
            f"wpnode_ext needs torch >= 2.10; got {torch.__version__}. "
            "Upgrade it, e.g. `pip install 'torch>=2.10'`."
        )
    return torch


def _import_compiled(name: str, torch_version: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(
            f"The compiled module {name} is missing in {Path(__file__).parent}. The "
            "package was not installed, or for another Python, or a source folder "
            "hides the installed one. From the source folder run `pip install .` "
            "(`pip install -e .` to develop)."
        ) from error
    except ImportError as error:
        raise ImportError(
            f"The compiled module {name} does not load under torch {torch_version}: "
            f"{error}. {_REINSTALL} in this environment."
        ) from error


torch = _import_torch()
_C = _import_compiled("wpnode_ext._C", torch.__version__)


def build_info() -> dict[str, Any]:
    """Facts about this build and the torch it runs on.

    Returns:
        A dictionary, the first thing to paste into a bug report:
        ``torch_built_against`` and ``torch_running`` (versions), ``torch_abi_target``
        (oldest torch the binary loads under), ``compiler``, ``build_type``,
        ``instruction_sets`` compiled in, ``cpu_capability`` chosen on this machine,
        ``cuda`` (True if kernels were compiled), ``cuda_version`` (of nvcc, or None),
        ``cuda_architectures``, ``cuda_running`` (CUDA version of the running torch, or
        None).
    """
    return {
        **_C.build_info(),
        "torch_running": torch.__version__,
        "cuda_running": torch.version.cuda,
        "cpu_capability": _C.cpu_capability(),
    }
