"""Reads files of arrays, and refuses those that declare more than memory holds.

A file of a few kilobytes may declare any number of values, and a compressed one may
hold them: sizes are checked before anything is expanded. The limit is the memory of the
machine, or that of the control group of the process if it is less.
"""

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

# Bytes taken at a time from a compressed stream that is only measured.
_PIECE = 1 << 20
# Files with the limits of a control group, of its second and its first version.
_GROUP_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
# Of a MATLAB file of version 5 to 7: its header, which ends with the order of bytes,
# the tag of an element, the type of a compressed one.
_MAT_HEADER, _MAT_TAG, _MAT_COMPRESSED = 128, 8, 15
_MAT_ORDERS: dict[bytes, Literal["little", "big"]] = {
    b"\0\1IM": "little",
    b"\1\0MI": "big",
}


class TooLargeError(ValueError):
    """A file that declares more than the memory can hold."""


def memory_limit() -> int:
    """Bytes that a file may declare at most."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in _GROUP_LIMITS:
        try:
            limits.append(int(Path(name).read_text()))
        except (OSError, ValueError):  # none, or "max"
            continue
    return min(limits)


def check_size(declared: int, path: str | Path) -> None:
    """Raises if the declared bytes are more than the memory can hold."""
    limit = memory_limit()
    if declared > limit:
        raise TooLargeError(
            f"{path} declares {_gigabytes(declared)} of data, more than the "
            f"{_gigabytes(limit)} of memory there are. It is damaged, or must be read "
            "in parts."
        )


def check_archive(path: Path) -> None:
    """Raises if the members of a zip file are larger than the memory together."""
    with zipfile.ZipFile(path) as archive:
        check_size(sum(entry.file_size for entry in archive.infolist()), path)


def check_mat(path: Path) -> None:
    """Raises if a MATLAB file expands to more than the memory can hold."""
    total, limit = 0, memory_limit()
    with path.open("rb") as file:
        order = _MAT_ORDERS.get(file.read(_MAT_HEADER)[-4:])
        if order is None:
            return  # another version, which is not compressed, or not a MATLAB file
        while len(tag := file.read(_MAT_TAG)) == _MAT_TAG and total <= limit:
            kind = int.from_bytes(tag[:4], order)
            size = int.from_bytes(tag[4:], order)
            if kind == _MAT_COMPRESSED:
                total += _expanded(file.read(size), limit - total)
            else:
                total += size
                file.seek(size, os.SEEK_CUR)
    check_size(total, path)


def read_npy(path: Path) -> NDArray[Any]:
    """The array of a ``.npy`` file.

    Raises:
        ValueError: the file is damaged, or holds Python objects.
    """
    with path.open("rb") as file:
        _check_header(file, path.stat().st_size, path)
        file.seek(0)
        return np.load(file)


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a ``.npz`` file by name; raises like :func:`read_npy`."""
    check_archive(path)
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.filename.endswith(".npy"):
                with archive.open(entry) as member:
                    _check_header(member, entry.file_size, path)
    with np.load(path) as arrays:
        return dict(arrays)


def _check_header(file: Any, size: int, path: Path) -> None:
    """Raises unless a file in numpy's format is as long as its header declares."""
    found = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(found)
    if read is None:
        return  # numpy itself reads other versions, or refuses them
    shape, _, kind = read(file)
    if kind.hasobject:
        raise ValueError(
            "it holds Python objects, which may run code and are not read; save "
            "arrays of numbers"
        )
    declared = kind.itemsize
    for length in shape:
        declared *= length
    check_size(declared, path)
    if declared > size:
        raise ValueError(f"its header declares {declared} bytes, and it has {size}")


def _expanded(compressed: bytes, limit: int) -> int:
    """Bytes of a compressed stream, counted until they exceed a limit."""
    stream, total = zlib.decompressobj(), 0
    rest = compressed
    while rest and total <= limit and not stream.eof:
        total += len(stream.decompress(rest, _PIECE))
        rest = stream.unconsumed_tail
    return total


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.3g} GB"
