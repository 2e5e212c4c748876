"""One process at a time in a run folder."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..common.files import lock, named_errors

NAME = ".lock"
# Folders this process holds, by the numbers of their file systems and of their files.
_held: set[tuple[int, int]] = set()

logger = logging.getLogger("wpnode_ext")


class RunFolderBusyError(RuntimeError):
    """Another process works in the run folder."""


@contextmanager
def run_lock(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Holds a folder until the block ends or the process does, however that happens.

    The process that holds a folder may take it again inside.

    Args:
        folder: made where it is missing; a file in it carries the lock.
        wait: for the process that holds it, instead of failing.

    Raises:
        RunFolderBusyError: another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    with named_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        status = os.fstat(descriptor)
        place = (status.st_dev, status.st_ino)
        if place in _held:
            yield
            return
        held = lock(descriptor, wait=wait)
        if held is False:
            raise RunFolderBusyError(
                f"another process works in {folder}. Wait until it ends, stop it, or "
                "choose another name (`name=`)."
            )
        if held is None:
            logger.warning(
                "%s is on a file system without locks: let one process at a time "
                "work in it.",
                folder,
            )
        _held.add(place)
        try:
            yield
        finally:
            _held.discard(place)
    finally:
        # This gives the lock up.
        os.close(descriptor)
