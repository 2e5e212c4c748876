"""Files of tensors and builtin types, replaced as a whole or not at all."""

import hashlib
import io
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..common.archives import check_size
from ..common.files import replacing

FORMAT_VERSION = 1
# A torch file is a zip archive, which may end with a comment: here the checksum of all
# that comes before it. Torch reads such files like others.
_MARK = b"wpnode_ext sha256 "
_COMMENT = len(_MARK) + 64
_BUILTIN = (str, bytes, bool, int, float, type(None))
_WRAPPERS = ("module.", "_orig_mod.")


class CheckpointError(ValueError):
    """A file that is not a checkpoint of this package, or not a whole one."""


def save(path: str | Path, kind: str, state: dict[str, Any]) -> None:
    """Writes `state` with its checksum, as a whole or not at all.

    Args:
        path: file to write or replace.
        kind: of the file, e.g. "training" or "model"; :func:`load` checks it.
        state: nested dictionaries and lists of tensors and builtin types, which
            ``torch.load(weights_only=True)`` reads without running code.
    """
    whole = {"format": f"wpnode_ext {kind}", "format_version": FORMAT_VERSION, **state}
    _check_builtin(whole, "state")
    buffer = io.BytesIO()
    torch.save(whole, buffer)
    # The length of the comment is the last entry of the archive.
    content = buffer.getvalue()[:-2] + struct.pack("<H", _COMMENT)
    with replacing(path, "wb") as file:
        file.write(content)
        file.write(_MARK + hashlib.sha256(content).hexdigest().encode())


def load(path: str | Path, kind: str) -> dict[str, Any]:
    """The state in a file of :func:`save`, on the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: it is damaged, altered, foreign, of another kind or newer.
    """
    path = Path(path)
    try:
        state = _read(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}.") from None
    except OSError:
        raise
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
    number = state.get("format_version")
    if type(number) is not int:
        raise CheckpointError(f"{path} must say its format version; it has {number!r}.")
    if number > FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {number}; this release reads up to "
            f"{FORMAT_VERSION}. Update wpnode_ext."
        )
    return state


@contextmanager
def whole_file(path: str | Path, kind: str) -> Iterator[None]:
    """Turns errors inside the block, about entries of a file, into CheckpointError.

    Args:
        path: the file.
        kind: of the file, for the message.
    """
    try:
        yield
    except CheckpointError:
        raise
    except KeyError as error:
        name = error.args[0] if error.args else error
        raise CheckpointError(
            f"{path} is not a whole {kind}: {name} is missing or unknown."
        ) from error
    # Entries of a wrong type or shape fail wherever they are first used.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(f"{path} is not a valid {kind}: {reason}") from error


def _read(path: Path) -> Any:
    check_size(path.stat().st_size, path)
    whole = path.read_bytes()
    content, comment = whole[:-_COMMENT], whole[-_COMMENT:]
    if not comment.startswith(_MARK):
        raise ValueError("it has no checksum")
    if comment[len(_MARK) :].decode() != hashlib.sha256(content).hexdigest():
        raise ValueError("its contents are not those of its checksum")
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        check_size(sum(entry.file_size for entry in archive.infolist()), path)
    return torch.load(io.BytesIO(whole), map_location="cpu", weights_only=True)


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
