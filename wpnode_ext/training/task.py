"""What the training loop is given in place of the losses of the package."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor
from torch.optim import Optimizer


class EpochSource(Protocol):
    """Batches of an epoch, decided by its number alone; each has ``to(device)``."""

    def epoch(self, number: int) -> Sequence[Any]: ...


class Schedule(Protocol):
    """Learning rates; told the loss of every epoch."""

    def step(self, loss: float) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class TwoTerms(Protocol):
    """A module: ``objective(batch)`` gives two terms, `total` what is minimised."""

    def __call__(self, batch: Any) -> tuple[Tensor, Tensor]: ...

    def total(self, weak: Tensor, strong: Tensor) -> Tensor: ...


@dataclass
class Task:
    """Batches and objective of another method.

    Attributes:
        batches: of every epoch.
        objective: a module that holds the field.
        groups: parameters besides those of the field, with options of the optimiser.
        schedule: makes the learning rates of an optimiser; plateaus by default.
    """

    batches: EpochSource
    objective: Any
    groups: list[dict[str, Any]] = field(default_factory=list)
    schedule: Callable[[Optimizer], Schedule] | None = None
