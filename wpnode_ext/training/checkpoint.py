"""Files of tensors and builtin types, replaced as a whole or not at all."""

import contextlib
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

FORMAT_VERSION = 1
_BUILTIN = (str, bytes, bool, int, float, type(None))
_WRAPPERS = ("module.", "_orig_mod.")


class CheckpointError(ValueError):
    """A file that is not a checkpoint of this package, or not a whole one."""


def save(path: str | Path, kind: str, state: dict[str, Any]) -> None:
    """Writes `state` under a temporary name and renames it: never half a file.

    Args:
        path: file to write or replace.
        kind: what the file is, checked when it is read ("training", "model").
        state: nested dictionaries and lists of tensors and builtin types, which
            ``torch.load(weights_only=True)`` reads without running code.
    """
    path = Path(path)
    whole = {"format": f"wpnode_ext {kind}", "format_version": FORMAT_VERSION, **state}
    _check_builtin(whole, "state")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            torch.save(whole, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def load(path: str | Path, kind: str) -> dict[str, Any]:
    """What :func:`save` wrote, on the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: the file is damaged, foreign, of another kind or newer.
    """
    path = Path(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}.") from None
    except Exception as error:  # an unpickler fails on foreign bytes in any way
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"{path} cannot be read: damaged, or not a file of wpnode_ext ({reason})."
        ) from error
    expected = f"wpnode_ext {kind}"
    found = state.get("format") if isinstance(state, dict) else None
    if found != expected:
        what = repr(found) if found is not None else "no file of wpnode_ext"
        raise CheckpointError(f"{path} must be a {expected} file; it is {what}.")
    if state["format_version"] > FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {state['format_version']}; this release reads "
            f"up to {FORMAT_VERSION}. Update wpnode_ext."
        )
    return state


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """The state dict on the CPU, without the prefixes of DDP and ``torch.compile``."""
    weights = {}
    for name, value in module.state_dict().items():
        for wrapper in _WRAPPERS:
            name = name.replace(wrapper, "") if name.startswith(wrapper) else name
        weights[name] = value.detach().cpu().clone()
    return weights


def _check_builtin(value: Any, where: str) -> None:
    if isinstance(value, Tensor) or type(value) in _BUILTIN:
        return
    if type(value) is dict or hasattr(value, "items"):
        for key, inner in value.items():
            _check_builtin(inner, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for number, inner in enumerate(value):
            _check_builtin(inner, f"{where}[{number}]")
    else:
        raise TypeError(
            f"`{where}` must be a tensor or a builtin type; got {type(value).__name__}."
        )
