"""Progress for people, metrics for programs."""

import csv
import logging
import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from ..common.files import named_errors, printable, replacing
from .trainer import Row

COLUMNS: tuple[str, ...] = (
    "epoch",
    "loss",
    "weak",
    "strong",
    "lr",
    "grad_norm",
    "val_error",
    "val_time",
    "seconds",
)
# Without a terminal a line of progress is written at most this often.
_LINE_SECONDS = 20.0

logger = logging.getLogger("wpnode_ext")


class RunLog:
    """Writes every epoch to a bar or lines, a CSV file and TensorBoard.

    Use it as a context manager: it closes its files whatever happens.

    Args:
        metrics: CSV file with one row an epoch; continued where a run is resumed.
        log: text file for the lines that are not progress.
        tensorboard: folder for TensorBoard; needs the extra ``train``.
        progress: a bar on a terminal, lines elsewhere; nothing if False.
        stream: where progress goes, standard error by default.
    """

    def __init__(
        self,
        *,
        metrics: str | Path | None = None,
        log: str | Path | None = None,
        tensorboard: str | Path | None = None,
        progress: bool = True,
        stream: TextIO | None = None,
    ) -> None:
        self._metrics_path = None if metrics is None else Path(metrics)
        self._log_path = None if log is None else Path(log)
        self._tensorboard_path = tensorboard
        self._progress = progress
        self._stream = stream or sys.stderr
        self._file: TextIO | None = None
        self._log: TextIO | None = None
        self._bar: Any = None
        self._writer: Any = None
        self._shown: Row = {}
        self._told_at = 0.0

    def __enter__(self) -> Self:
        if self._log_path is not None:
            self._log_path.parent.mkdir(parents=True, exist_ok=True)
            _end_line(self._log_path)
            self._log = self._log_path.open("a", encoding="utf-8")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.say(f"{type(error).__name__}: {error}")
        for open_thing in (self._bar, self._writer, self._file, self._log):
            if open_thing is not None:
                open_thing.close()
        self._bar = self._writer = self._file = self._log = None

    def say(self, text: str) -> None:
        """One line, in the log file and where progress is shown."""
        if self._log is not None and self._log_path is not None:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S")
            with named_errors(self._log_path):
                self._log.write(f"{stamp} {printable(text)}\n")
                self._log.flush()
        if self._bar is not None:
            self._bar.write(printable(text, keep="\n"), file=self._stream)
        elif self._progress:
            print(printable(text, keep="\n"), file=self._stream, flush=True)

    def begin(self, epoch: int, epochs: int) -> None:
        """Opens the files; rows of epochs that will be repeated are dropped."""
        self._epochs = epochs
        if self._metrics_path is not None:
            _keep_rows(self._metrics_path, epoch)
            self._file = self._metrics_path.open("a", newline="", encoding="utf-8")
        if self._tensorboard_path is not None:
            self._writer = _tensorboard(self._tensorboard_path, epoch)
        if self._progress and self._stream.isatty():
            self._bar = _bar(epoch, epochs, self._stream)

    def epoch(self, row: Row) -> None:
        if self._file is not None and self._metrics_path is not None:
            writer = csv.DictWriter(self._file, COLUMNS, restval="")
            known = {name: _text(row[name]) for name in COLUMNS if name in row}
            with named_errors(self._metrics_path):
                writer.writerow(known)
                self._file.flush()
        if self._writer is not None:
            for name, value in row.items():
                self._writer.add_scalar(name, value, int(row["epoch"]))
        self._shown |= row
        if self._bar is not None:
            self._bar.set_postfix_str(self._summary(), refresh=False)
            self._bar.update()
        elif self._progress and time.monotonic() - self._told_at > _LINE_SECONDS:
            self._told_at = time.monotonic()
            self.say(f"epoch {int(row['epoch']) + 1}/{self._epochs}  {self._summary()}")

    def end(self, reason: str) -> None:
        why = {
            "epochs": "all epochs are done",
            "patience": "the loss stopped falling",
            "signal": "a signal asked to stop; the run can be resumed",
        }
        done = int(self._shown.get("epoch", -1)) + 1
        self.say(f"training ended after {done} epochs: {why.get(reason, reason)}")

    def _summary(self) -> str:
        parts = [f"loss {self._shown['loss']:.3e}", f"lr {self._shown['lr']:.1e}"]
        if "val_error" in self._shown:
            parts.append(f"validation {self._shown['val_error']:.4f}")
        return "  ".join(parts)


def read_metrics(path: str | Path) -> list[Row]:
    """The rows of a metrics file.

    Incomplete rows are left out: a process that is killed, or a full disk, may leave
    one at the end.
    """
    rows = []
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        # Half a number is still a number: only the end of the line shows a whole row.
        lines = [line for line in file if line.endswith("\n")]
    try:
        for cells in csv.DictReader(lines):
            row = _row(cells)
            if row is not None:
                rows.append(row)
    except csv.Error as error:
        raise ValueError(f"{path} is no table of metrics; {error}.") from None
    return rows


def _row(cells: dict[Any, Any]) -> Row | None:
    """The numbers of a line; None where it is not one of ours."""
    if None in cells.values() or None in cells:
        return None
    try:
        row = {name: float(cell) for name, cell in cells.items() if cell}
    except ValueError:
        return None
    return row if {"epoch", "loss", "lr"} <= row.keys() else None


def _end_line(path: Path) -> None:
    """Ends the last line of a text file where a killed process did not."""
    if path.exists() and path.stat().st_size:
        with path.open("rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


def _keep_rows(path: Path, epochs: int) -> None:
    """Leaves the header and the rows of the first `epochs` epochs in the file."""
    rows = read_metrics(path) if path.exists() else []
    with replacing(path, newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            if row["epoch"] < epochs:
                writer.writerow({name: _text(value) for name, value in row.items()})


def _text(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _bar(epoch: int, epochs: int, stream: TextIO) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        logger.warning("no progress bar: pip install 'wpnode_ext[train]' for tqdm.")
        return None
    return tqdm(total=epochs, initial=epoch, unit="epoch", file=stream)


def _tensorboard(folder: str | Path, epoch: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        logger.warning("no TensorBoard: pip install 'wpnode_ext[train]' for it.")
        return None
    return SummaryWriter(str(folder), purge_step=epoch)
