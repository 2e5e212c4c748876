"""Neural fields that the package's training loop fits to another objective."""

from abc import abstractmethod
from dataclasses import asdict, dataclass, replace
from math import cos, pi
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..data import Series
from ..fields import MLPField
from ..settings.config import OptimConfig
from ..systems import preset
from ..training import ForecastValidation, Trainer
from ..training.log import RunLog
from ..training.trainer import Session, Task, TrainResult
from .base import Baseline, Learned


@dataclass(kw_only=True, eq=False)
class NodeBaseline(Baseline):
    """A network ``f(u)`` that is trained under an objective of the method.

    The weights that are kept are those of the best forecasts of held-out data, as in
    :class:`~wpnode_ext.WPNODE`.

    Args:
        hidden, activation: of the network; the default is the same for all methods.
        epochs, lr: of Adam.
        patience: epochs without gain after which training ends; None: never.
        clip: largest norm of a gradient.

    Attributes:
        result_: how training ended.
    """

    hidden: tuple[int, ...] = (200, 200)
    activation: str = "gelu"
    epochs: int = 500
    lr: float = 2e-3
    patience: int | None = None
    clip: float | None = None

    @classmethod
    def _settings_for(cls, system: str) -> dict[str, Any]:
        return {"hidden": tuple(preset(system).hidden)}

    @abstractmethod
    def _task(self, field: nn.Module, series: Series) -> Task:
        """Batches and objective for scaled, float64 data."""

    def _learn(self, series: Series, validation: Series | None) -> Learned:
        series, held = self._split(series, validation)
        recipe: dict[str, Any] = {
            "dim": series.v.shape[1],
            "hidden": list(self.hidden),
            "activation": self.activation,
        }
        field = MLPField(**recipe, generator=self._generator())
        validate = None
        if held is not None:
            validate = ForecastValidation(held.to(torch.float32))
        optim = OptimConfig(
            lr=self.lr,
            epochs=self.epochs,
            patience=self.patience or self.epochs,
            min_delta=0.0,
            clip=self.clip,
        )
        config = replace(self._settings(), method="strong", optim=optim)
        with RunLog(progress=self.verbose) as log:
            self.result_ = Trainer(
                field,
                series.to(torch.float32),
                config,
                validate=validate,
                task=self._task(field, series),
                session=Session(reporter=log),
            ).run()
        if self.result_.signal is not None:
            raise KeyboardInterrupt
        self.cost_.epochs = self.result_.epochs
        return field.double(), recipe

    @classmethod
    def _build(cls, recipe: dict[str, Any]) -> nn.Module:
        return MLPField(**recipe)

    def _fitted(self) -> dict[str, Any]:
        return super()._fitted() | {"result_": asdict(self.result_)}

    def _set_fitted(self, found: dict[str, Any]) -> None:
        if "result_" in found:
            found = found | {"result_": TrainResult(**found["result_"])}
        super()._set_fitted(found)


class CosineSchedule:
    """Learning rates that rise linearly, then fall as half a cosine.

    Args:
        optimizer: whose rates, of all groups, are scaled.
        epochs: of the whole run.
        warm: share of them in which rates rise.
        least: factor at the end.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        epochs: int,
        *,
        warm: float = 0.0,
        least: float = 1e-2,
    ) -> None:
        self._optimizer, self._epochs = optimizer, max(1, epochs)
        self._warm, self._least = warm, least
        self._rates = [group["lr"] for group in optimizer.param_groups]
        self._at = 0
        self._set()

    def step(self, loss: float) -> None:
        self._at += 1
        self._set()

    def state_dict(self) -> dict[str, Any]:
        return {"at": self._at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._at = state["at"]
        self._set()

    def _set(self) -> None:
        share = min(1.0, self._at / self._epochs)
        if share < self._warm:
            factor = self._least + (1 - self._least) * share / self._warm
        else:
            fallen = (share - self._warm) / max(1 - self._warm, 1e-9)
            factor = self._least + (1 - self._least) * (1 + cos(pi * fallen)) / 2
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = factor * rate
