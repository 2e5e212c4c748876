"""Files: written as a whole or not at all, checked when read, named in errors.

A file is written under a temporary name beside its own and renamed. A process that is
killed on the way leaves the temporary file behind; the next one that writes the same
file removes it. A file that is being written is locked, and a leftover is not: the
kernel releases the locks of a process that has died.
"""

import errno
import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

# Remedies for the failures that users can remedy.
_REMEDIES = {
    errno.ENOSPC: "make room on the disk, or write elsewhere",
    errno.EDQUOT: "your quota is used up: make room, or write elsewhere",
    errno.EACCES: "change its permissions, or choose another file",
    errno.EPERM: "change its permissions, or choose another file",
    errno.EROFS: "choose a file on a disk that can be written to",
    errno.EISDIR: "name a file, not a folder",
    errno.ENOTDIR: "part of its path is a file, not a folder",
    errno.EEXIST: "choose another name",
    errno.ENAMETOOLONG: "choose a shorter name",
}
# Last part of the names of temporary files.
_ENDING = ".wpnode-tmp"
# Types of entries that count as numbers.
_NUMBERS = (bool, int, float)
# Error numbers of file systems that offer no locks.
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF)


@contextmanager
def named_errors(path: str | Path) -> Iterator[None]:
    """Gives errors of the system the name of the file they are about.

    A write that fails because the disk is full, for instance, does not say where.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            reason = error.strerror or str(error)
            raise OSError(error.errno or errno.EIO, reason, str(path)) from error
        raise


def reason_of(error: OSError) -> str:
    """An error of the system in one line: the file, the failure, the remedy."""
    if error.strerror is None:
        return str(error)
    text = error.strerror.lower()
    name = error.filename
    if name is not None:
        shown = os.fsdecode(name) if isinstance(name, bytes) else str(name)
        text = f"{shown}: {text}"
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{text}; {remedy}." if remedy else f"{text}."


def checked_path(path: str | Path, name: str) -> Path:
    """`path` as a Path; raises ValueError if no file can have that name."""
    if not str(path):
        raise ValueError(f"`{name}` must name a file; it is empty.")
    if "\0" in str(path):
        raise ValueError(f"`{name}` must hold no NUL character; got {str(path)!r}.")
    return Path(path)


@contextmanager
def replacing(path: str | Path, mode: str = "w", **options: Any) -> Iterator[IO[Any]]:
    """A file that takes the place of `path` when the block ends without an error.

    Args:
        path: file to write or replace; its folder is made where it is missing. A
            link stays, and its target is replaced. Devices and pipes cannot be
            replaced; they are written to.
        mode: "w" for text in UTF-8, "wb" for bytes.
        **options: of :func:`open`.

    Raises:
        OSError: with the name of the file, also where the disk is full.
    """
    path = checked_path(path, "path")
    if "b" not in mode:
        options = {"encoding": "utf-8"} | options
    with named_errors(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
        if path.exists() and not path.is_file():
            with open(path, mode, **options) as file:
                yield file
            return
        path = Path(os.path.realpath(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent, path.name)
        temporary, descriptor = _begin(path)
        try:
            with open(descriptor, mode, **options) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file as a whole or not at all."""
    with replacing(path) as file:
        file.write(text)


def read_json(path: Path) -> dict[str, Any]:
    """The dictionary in a JSON file; an error names the file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be a JSON file; {error}.") from None
    if not isinstance(found, dict):
        raise ValueError(
            f"{path} must hold names with values; got {type(found).__name__}."
        )
    return found


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Removes temporary files of processes that have died from a folder.

    Args:
        folder: where the files are written.
        name: file whose temporary files are removed; default all files.
    """
    prefix = "." if name is None else _prefix(name)
    try:
        entries = os.listdir(folder)
    except OSError:
        return
    for entry in entries:
        if entry.startswith(prefix) and entry.endswith(_ENDING):
            with suppress(OSError), open(folder / entry, "rb+") as file:
                if lock(file.fileno(), wait=False):
                    (folder / entry).unlink()


def lock(descriptor: int, *, wait: bool) -> bool | None:
    """Locks an open file until it is closed, or until the process ends.

    Returns:
        True; False if another process holds the lock and `wait` is False; None if the
        file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return None
    return True


def _begin(path: Path) -> tuple[Path, int]:
    """A new temporary file beside `path`, open and locked."""
    while True:
        token = secrets.token_hex(4)
        temporary = path.with_name(f"{_prefix(path.name)}{token}{_ENDING}")
        how = os.O_RDWR | os.O_CREAT | os.O_EXCL
        descriptor = os.open(temporary, how, 0o666)
        lock(descriptor, wait=True)
        # Another process may have removed it as a leftover before it was locked.
        if os.fstat(descriptor).st_nlink:
            return temporary, descriptor
        os.close(descriptor)


def _prefix(name: str) -> str:
    """First part of the names of temporary files, which have at most 255 bytes."""
    return f".{name.encode(errors='surrogateescape')[:200].decode(errors='ignore')}."


def printable(text: object, *, keep: str = "") -> str:
    r"""`text` with control characters as escapes, ``\x1b`` for instance.

    A name may hold characters that a terminal obeys: colours, cursor moves, marks that
    turn the direction of the text, half of a surrogate pair.

    Args:
        text: the text to show.
        keep: characters that stay as they are.
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in plain)


def check_like(given: Any, own: Any, where: str) -> None:
    """Raises ValueError unless `given` has the form of `own`.

    Dictionaries have the same keys, lists the same length, tensors the same shape and
    type; a number may be any number. If `own` is None, or an empty dictionary or list,
    every value passes.
    """
    if own is None or own == {} or own == []:
        return
    if isinstance(own, Mapping):
        if not isinstance(given, Mapping) or given.keys() != own.keys():
            raise ValueError(f"{where} must have the entries {_names(own)}")
        for name, value in own.items():
            check_like(given[name], value, f"{where}.{name}")
    elif isinstance(own, list | tuple):
        if not isinstance(given, list | tuple) or len(given) != len(own):
            raise ValueError(f"{where} must be a list of {len(own)} entries")
        for number, value in enumerate(own):
            check_like(given[number], value, f"{where}[{number}]")
    elif isinstance(own, Tensor):
        check_tensor(given, where)
        if given.shape != own.shape or given.dtype != own.dtype:
            raise ValueError(
                f"{where} must be {own.dtype} of shape {list(own.shape)}; got "
                f"{given.dtype} of shape {list(given.shape)}"
            )
    elif isinstance(own, _NUMBERS):
        if not isinstance(given, _NUMBERS):
            raise ValueError(f"{where} must be a number; got {type(given).__name__}")
    elif type(given) is not type(own):
        raise ValueError(
            f"{where} must be {type(own).__name__}; got {type(given).__name__}"
        )


def check_tensor(value: Any, where: str) -> None:
    """Raises unless `value` is a plain tensor that holds all the numbers it shows.

    A tensor with strides of zero shows more numbers than it stores, so a copy of it may
    not fit into memory.
    """
    if type(value) not in (Tensor, torch.nn.Parameter):
        raise ValueError(f"{where} must be a tensor; got {type(value).__name__}")
    plain = value.layout == torch.strided and value.device.type == "cpu"
    size = value.numel() * value.element_size()
    if not plain or size > value.untyped_storage().nbytes():
        raise ValueError(f"{where} must be a dense tensor that holds its numbers")


def check_weights(value: Any, where: str) -> None:
    """Raises unless `value` is a dictionary of tensors."""
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{where} must be a dictionary of tensors; got {type(value).__name__}"
        )
    for name, weight in value.items():
        if not isinstance(name, str):
            raise ValueError(f"{where} must have names as keys; got {name!r}")
        check_tensor(weight, f"{where}.{name}")


def _names(own: Mapping[Any, Any]) -> str:
    return ", ".join(map(str, own))
