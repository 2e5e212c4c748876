"""The training loop: one for the strong, the weak and the weak-penalty method."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field as setting
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..closed_form import refit_head
from ..common.files import check_like, check_tensor
from ..coordinates.symmetry import Symmetry
from ..data import Series
from ..settings.config import TrainConfig, resolve
from ..settings.text import to_dict
from . import checkpoint
from .batches import Batch, Batches
from .distributed import ProcessGroup
from .objective import Objective
from .optimisers import make_optimiser, on_plateaus

Row = dict[str, float]


class Reporter(Protocol):
    """Receives every epoch; see :class:`wpnode_ext.training.log.RunLog`."""

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
    history: list[Row] = setting(default_factory=list)


class EpochSource(Protocol):
    """Batches of an epoch, decided by its number alone; each has ``to(device)``."""

    def epoch(self, number: int) -> Sequence[Any]: ...


class Schedule(Protocol):
    """Learning rates that follow the loss of every epoch."""

    def step(self, loss: float) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class TwoTerms(Protocol):
    """A module: ``objective(batch)`` gives two terms, `total` the sum to minimise."""

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
    groups: list[dict[str, Any]] = setting(default_factory=list)
    schedule: Callable[[Optimizer], Schedule] | None = None


@dataclass(frozen=True)
class Session:
    """The surroundings of a training run.

    Attributes:
        reporter: receives every epoch.
        folder: of the checkpoints; without it none are written.
        group: processes that train together; by default this one alone.
        extra: builtin types and tensors to keep in every checkpoint, e.g. the scaler.
    """

    reporter: Reporter | None = None
    folder: Path | None = None
    group: ProcessGroup | None = None
    extra: dict[str, Any] = setting(default_factory=dict)


Validation = Callable[[nn.Module], dict[str, float]]


class TrainingDiverged(RuntimeError):
    """Loss or gradients are no longer finite."""


class StopRequest:
    """The signal that asked the process to stop, if one did; true if there is one."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:  # asked twice: stop at once
            raise KeyboardInterrupt
        self.signal = number


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Catches SIGINT and SIGTERM inside the block; a second one interrupts at once.

    Outside the main thread signals cannot be caught, and nothing is.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, request._note) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Trainer:
    """Trains a field on a record; `field` ends with the best weights it had.

    A checkpoint holds all that later steps depend on, and batches depend on the seed
    and the epoch alone: a run that was killed and resumed gives the same bits as one
    that was not.

    Args:
        field: the field, a module ``field(t, u)``; trained in place.
        record: scaled data; they are used in the precision of the field's parameters.
        config: settings; None entries take the method's values.
        validate: gives ``val_error``, which decides the weights that are kept; without
            it the training loss does.
        symmetry: of the field; every batch is seen under one of its maps.
        task: batches and objective of another method, in place of those of `config`.
        session: reporter, folder and processes.
    """

    def __init__(
        self,
        field: nn.Module,
        record: Series,
        config: TrainConfig,
        *,
        validate: Validation | None = None,
        symmetry: Symmetry | None = None,
        task: Task | None = None,
        session: Session | None = None,
    ) -> None:
        self.config = resolve(config)
        self._session = session = session or Session()
        self.group = session.group or ProcessGroup(device=torch.device(config.device))
        parameters = [p for p in field.parameters() if p.requires_grad]
        if not parameters:
            raise ValueError("`field` must have parameters to train; it has none.")
        self.field = field.to(self.group.device)
        self._record = record.to(parameters[0].dtype, self.group.device)
        if self.config.compile:
            field.compile()
        self._symmetry, self._validate = symmetry, validate
        task = task or self._own_task()
        self._batches, self._objective = task.batches, task.objective
        self._model = self.group.wrap(self._objective)
        optim = self.config.optim
        groups = [{"params": parameters}, *task.groups]
        self._optimizer = make_optimiser(groups, optim)
        schedule = task.schedule or partial(on_plateaus, config=optim)
        self._scheduler = schedule(self._optimizer)
        device = self.group.device.type
        half = self.config.amp and device == "cuda"
        self._amp = torch.amp.GradScaler(device, enabled=half)
        self._half = torch.float16 if device == "cuda" else torch.bfloat16
        # All that the rest of the run depends on, besides weights and optimiser.
        self._at = {"epoch": 0, "step": 0, "sums": [0.0, 0.0, 0.0], "norm": 0.0}
        self._stopper = {"loss": math.inf, "idle": 0}
        self._best: dict[str, Any] = {"score": math.inf, "epoch": -1, "model": {}}
        self._saved_at = time.monotonic()
        self._asked_to_stop = False

    def _own_task(self) -> Task:
        """Batches and losses of the method in the settings."""
        record, config, symmetry = self._record, self.config, self._symmetry
        rank, world = self.group.rank, self.group.world
        return Task(
            Batches(record, config, symmetry=symmetry, rank=rank, world=world),
            Objective(self.field, record, config, symmetry),
        )

    def run(self) -> TrainResult:
        """Trains until the epochs, the patience or a signal ends it."""
        epochs, history = self.config.optim.epochs or 0, []
        reason = "epochs"
        if self._session.reporter is not None:
            self._session.reporter.begin(self._at["epoch"], epochs)
        self._save()
        with stop_requests() as stop:
            while self._at["epoch"] < epochs:
                if self._stopper["idle"] >= (self.config.optim.patience or epochs):
                    reason = "patience"
                    break
                row = self._run_epoch(stop)
                if row is None:
                    reason = "signal"
                    break
                history.append(row)
                if self._session.reporter is not None:
                    self._session.reporter.epoch(row)
                # Asked for in the last step of an epoch, perhaps its only one.
                if self._asked_to_stop and self._at["epoch"] < epochs:
                    reason = "signal"
                    break
            self._save()
        if reason != "signal" and self._best["model"]:
            self.field.load_state_dict(self._best["model"])
        if self._session.reporter is not None:
            self._session.reporter.end(reason)
        return TrainResult(
            epochs=self._at["epoch"],
            best_epoch=self._best["epoch"],
            best_score=self._best["score"],
            reason=reason,
            # Where another process of the group was asked, this one stops as well.
            signal=(stop.signal or signal.SIGTERM) if reason == "signal" else None,
            history=history,
        )

    def _run_epoch(self, stop: StopRequest) -> Row | None:
        """One epoch, or the rest of it; None if asked to stop before its end."""
        began = time.perf_counter()
        every, weak_form = self.config.optim.refit_every, self.config.weak
        if every and self._at["step"] == 0 and self._at["epoch"] % every == 0:
            where = {"p": weak_form.p, "ell": weak_form.ell, "q": weak_form.q}
            refit_head(self.field, self._record, **where, symmetry=self._symmetry)
        batches = self._batches.epoch(self._at["epoch"])
        for batch in batches[self._at["step"] :]:
            self._asked_to_stop = self._step(batch.to(self.group.device), bool(stop))
            self._at["step"] += 1
            if self._asked_to_stop and self._at["step"] < len(batches):
                return None
            if time.monotonic() - self._saved_at >= self.config.checkpoint_seconds:
                self._save()
        loss, weak, strong = (total / len(batches) for total in self._at["sums"])
        epoch = self._at["epoch"]
        row: Row = {
            "epoch": epoch,
            "loss": loss,
            "weak": weak,
            "strong": strong,
            "lr": self._optimizer.param_groups[0]["lr"],
            "grad_norm": self._at["norm"],
        }
        self._scheduler.step(loss)
        self._update_stopper(loss)
        self._at = {"epoch": epoch + 1, "step": 0, "sums": [0.0, 0.0, 0.0], "norm": 0.0}
        row |= self._judge(epoch, loss)
        row["seconds"] = time.perf_counter() - began
        return row

    def _step(self, batch: Batch, asked_to_stop: bool) -> bool:
        """One step of the optimiser; True if any process was asked to stop."""
        self._optimizer.zero_grad()
        device = self.group.device.type
        with torch.autocast(device, dtype=self._half, enabled=self.config.amp):
            weak, strong = self._model(batch)
        loss = self._objective.total(weak, strong)
        # Averaging over processes and this factor make a sum of their shares.
        self._amp.scale(loss * self.group.world).backward()
        values = torch.stack([loss, weak, strong]).detach().double()
        flag = values.new_tensor([float(asked_to_stop)])
        *values, stopped = self.group.sum(torch.cat([values, flag])).tolist()
        self._amp.unscale_(self._optimizer)
        norm = self._gradient_norm()
        if not math.isfinite(values[0]) or not (math.isfinite(norm) or self.config.amp):
            raise TrainingDiverged(
                f"training diverged in epoch {self._at['epoch']}: loss {values[0]:g}, "
                f"gradient norm {norm:g}. The last checkpoint is from before it. Lower "
                "`optim.lr`, set `optim.clip=1`, or use a shorter `strong.window`."
            )
        self._amp.step(self._optimizer)
        self._amp.update()
        self._at["sums"] = [
            a + b for a, b in zip(self._at["sums"], values, strict=True)
        ]
        self._at["norm"] = max(self._at["norm"], norm)
        return stopped > 0

    def _gradient_norm(self) -> float:
        """Norm of the gradients before they are clipped."""
        parameters = [p for p in self.field.parameters() if p.grad is not None]
        limit = self.config.optim.clip or math.inf
        norm: Tensor = torch.nn.utils.clip_grad_norm_(parameters, limit)
        return norm.item()

    def _update_stopper(self, loss: float) -> None:
        if loss < self._stopper["loss"] - (self.config.optim.min_delta or 0.0):
            self._stopper = {"loss": loss, "idle": 0}
        else:
            self._stopper["idle"] += 1

    def _judge(self, epoch: int, loss: float) -> Row:
        """Validation of this epoch, if it is due; keeps the best weights so far."""
        optim, result = self.config.optim, {}
        last = epoch + 1 == optim.epochs or self._stopper["idle"] >= (
            optim.patience or math.inf
        )
        score = loss
        if self._validate is not None:
            if (epoch + 1) % self.config.validation.every and not last:
                return {}
            result = self._validate(self.field)
            names = sorted(result)
            shared = self.group.share([result[name] for name in names])
            result = dict(zip(names, shared, strict=True))
            score = result["val_error"]
        if score < self._best["score"]:
            weights = checkpoint.weights_of(self.field)
            self._best = {"score": score, "epoch": epoch, "model": weights}
            if self._session.folder is not None and self.group.is_main:
                best = {
                    "config": to_dict(self.config),
                    **self._best,
                    **self._session.extra,
                }
                checkpoint.save(self._session.folder / "best.pt", "training", best)
        return result

    def _save(self) -> None:
        self._saved_at = time.monotonic()
        if self._session.folder is not None and self.group.is_main:
            checkpoint.save(
                self._session.folder / "last.pt", "training", self.state_dict()
            )

    def state_dict(self) -> dict[str, Any]:
        """All that the rest of the run depends on."""
        return {
            "config": to_dict(self.config),
            "model": checkpoint.weights_of(self.field),
            "optimizer": self._optimizer.state_dict(),
            "scheduler": self._scheduler.state_dict(),
            "amp": self._amp.state_dict(),
            "at": dict(self._at),
            "stopper": dict(self._stopper),
            "best": self._best,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where :meth:`state_dict` was taken.

        Raises:
            ValueError, KeyError, TypeError: the state is not one of this run.
        """
        self._check_state(state)
        self.field.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._scheduler.load_state_dict(state["scheduler"])
        self._amp.load_state_dict(state["amp"])
        self._at, self._stopper = dict(state["at"]), dict(state["stopper"])
        self._best = state["best"]

    def resume(self, path: str | Path) -> None:
        """Continues where a checkpoint was written.

        Raises:
            FileNotFoundError: there is no such file.
            CheckpointError: it is damaged, or of another run.
        """
        state = checkpoint.load(path, "training")
        with checkpoint.whole_file(path, "checkpoint of this run"):
            self.load_state_dict(state)

    def _check_state(self, state: dict[str, Any]) -> None:
        """Raises unless `state` has the form of the one that would be written now."""
        own = self.state_dict()
        for name in ("model", "scheduler", "amp", "at", "stopper"):
            check_like(state[name], own[name], name)
        best = {"score": 0.0, "epoch": 0, "model": state["best"]["model"]}
        check_like(state["best"], best, "best")
        if state["best"]["model"]:
            check_like(state["best"]["model"], own["model"], "best.model")
        optimizer = state["optimizer"]
        groups = own["optimizer"]["param_groups"]
        check_like(optimizer["param_groups"], groups, "optimizer.param_groups")
        weights = [w for group in self._optimizer.param_groups for w in group["params"]]
        for number, moments in optimizer["state"].items():
            for name, value in moments.items():
                where = f"optimizer.state[{number}].{name}"
                check_tensor(value, where)
                # A count of steps is one number.
                if value.dim() and value.shape != weights[number].shape:
                    raise ValueError(
                        f"{where} must have the shape of its weight; got "
                        f"{list(value.shape)}"
                    )
