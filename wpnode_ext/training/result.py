"""What a training run tells: every epoch, and how it ended."""

from dataclasses import dataclass, field
from typing import Protocol

Row = dict[str, float]


class Reporter(Protocol):
    """Hears of every epoch; see :class:`wpnode_ext.training.log.RunLog`."""

    def begin(self, epoch: int, epochs: int) -> None: ...

    def epoch(self, row: Row) -> None: ...

    def end(self, reason: str) -> None: ...


@dataclass
class TrainResult:
    """How a training run ended.

    Attributes:
        epochs: epochs completed, over all sessions of a resumed run.
        best_epoch, best_score: when the weights that were kept were reached, and their
            validation error (training loss where there is no validation).
        reason: "epochs", "patience" or "signal".
        signal: number of the signal that stopped the run, or None.
        history: one row an epoch of this session.
    """

    epochs: int
    best_epoch: int
    best_score: float
    reason: str
    signal: int | None = None
    history: list[Row] = field(default_factory=list)
