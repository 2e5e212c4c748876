"""``runs/<name>/``: settings, versions, metrics, log, checkpoints, figures."""

import json
import logging
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from ..common.files import lock, named_errors, remove_leftovers, write_text
from ..ops.backend import build_info
from .distributed import ProcessGroup
from .log import RunLog

_PACKAGES = ("wpnode_ext", "torch", "numpy", "scipy", "torchdiffeq", "omegaconf")

LOCK = ".lock"
# Folders this process holds, by the numbers of their file systems and of their files.
_held: set[tuple[int, int]] = set()

logger = logging.getLogger("wpnode_ext")


class RunFolder:
    """The files of one training run; never overwritten silently.

    Attributes:
        config, env, metrics, log: paths of ``config.yaml``, ``env.json``,
            ``metrics.csv`` and ``log.txt``.
        checkpoints, figures: folders.
        last: the checkpoint a run is resumed from.
        model: the trained model, one file.
        states: refined states, where the run has such.

    One process at a time works in it, see :meth:`locked`. Every file is replaced as a
    whole: a process that is killed leaves a folder that `resume` continues, or, where
    there is no ``config.yaml`` yet, one that a run can be started in.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.env = self.path / "env.json"
        self.metrics = self.path / "metrics.csv"
        self.log = self.path / "log.txt"
        self.checkpoints = self.path / "checkpoints"
        self.figures = self.path / "figures"
        self.last = self.checkpoints / "last.pt"
        self.model = self.path / "model.pt"
        self.states = self.path / "states.npz"

    def member(self, number: int) -> Path:
        """Folder of the checkpoints of a member of the ensemble."""
        return self.checkpoints / f"member_{number:03d}"

    def create(self, *, overwrite: bool = False) -> "RunFolder":
        """Makes the folders; refuses a path that holds a run already."""
        if self.config.exists() and not overwrite:
            raise FileExistsError(
                f"{self.path} holds a run already; resume it (`--resume`), choose "
                "another name (`name=`), or replace it (`--overwrite`)."
            )
        if overwrite:
            # The settings first: a run that is killed here can be started anew.
            old_files = (self.config, self.metrics, self.log, self.last, self.model)
            for old in (*old_files, self.states):
                old.unlink(missing_ok=True)
            (self.checkpoints / "best.pt").unlink(missing_ok=True)
            for member in self.checkpoints.glob("member_*"):
                shutil.rmtree(member)
        for folder in (self.checkpoints, self.figures):
            folder.mkdir(parents=True, exist_ok=True)
        return self

    def require(self) -> "RunFolder":
        """Raises unless there is a run here."""
        if not self.config.exists():
            raise FileNotFoundError(
                f"{self.path} holds no run: there is no {self.config.name} in it. "
                "Start it with `wpnode train` and its settings."
            )
        return self

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes out; removes half-written files of killed ones."""
        with run_lock(self.path):
            for folder in (self.path, self.figures, self.checkpoints):
                remove_leftovers(folder)
            for member in self.checkpoints.glob("member_*"):
                remove_leftovers(member)
            yield

    def write_config(self, config: Any) -> None:
        """The resolved settings as YAML; Literal and nested values as plain text."""
        from omegaconf import OmegaConf

        write_text(self.config, OmegaConf.to_yaml(OmegaConf.structured(config)))

    def write_environment(self, **more: Any) -> None:
        """Writes versions, machine, commit of the working directory, and `more`."""
        write_text(self.env, json.dumps(environment() | more, indent=2) + "\n")


@dataclass(frozen=True)
class Run:
    """Where a fit runs, and who sees its progress.

    Attributes:
        folder: for checkpoints, metrics, states and the log, or None.
        resume: whether the run in this folder is continued.
        group: processes that train together.
        verbose: whether progress is shown.
        begin: called by the main process before learning, with settings from which a
            run that is killed can be started again.
    """

    folder: RunFolder | None = None
    resume: bool = False
    group: ProcessGroup = ProcessGroup()
    verbose: bool = False
    begin: Callable[[Any], None] = lambda settings: None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Holds the folder, in the main process, until the block ends."""
        with ExitStack() as stack:
            with self.group.main_first("open the run folder"):
                if self.group.is_main and self.folder is not None:
                    stack.enter_context(self.folder.locked())
            yield

    def started(self, settings: Any) -> None:
        """Calls `begin` in the main process; the others wait for it."""
        with self.group.main_first("begin the run"):
            if self.group.is_main:
                self.begin(settings)

    def keep(self, write: Callable[[RunFolder], None]) -> None:
        """Calls `write` with the folder, in the main process, if there is a folder."""
        if self.folder is not None and self.group.is_main:
            write(self.folder)

    def log(self, *, metrics: bool = False, tensorboard: bool = False) -> RunLog:
        """Progress and the log of the run; silent in processes other than the main one.

        Args:
            metrics: whether every epoch becomes a row of the table of metrics.
            tensorboard: whether the run writes for TensorBoard as well.
        """
        if not self.group.is_main:
            return RunLog(progress=False)
        folder = self.folder
        if folder is None:
            return RunLog(progress=self.verbose)
        return RunLog(
            log=folder.log,
            progress=self.verbose,
            metrics=folder.metrics if metrics else None,
            tensorboard=folder.path / "tensorboard" if tensorboard else None,
        )

    @property
    def checkpoints(self) -> Path | None:
        """Folder of the checkpoints of the run."""
        return None if self.folder is None else self.folder.checkpoints

    def checkpoint(self, folder: Path | None) -> Path | None:
        """The checkpoint to continue from, the same on every process; None: begin.

        A run that was killed before its first checkpoint begins again.
        """
        last = None if folder is None else folder / "last.pt"
        there = self.resume and last is not None and last.exists()
        # The main process may write its first checkpoint before another one looks.
        return last if self.group.share([float(there)])[0] else None


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
    path = folder / LOCK
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


def environment() -> dict[str, Any]:
    """Versions, machine and commit: a result depends on them besides its settings."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda_devices": [
            torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())
        ],
        "commit": _commit(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "build": {key: str(value) for key, value in build_info().items()},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Commit of the working directory: the user's own project, where it has one."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
            timeout=5,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
