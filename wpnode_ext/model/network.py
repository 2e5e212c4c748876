"""Training by gradients as the estimator runs it: network, states, ensemble."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..data import Series
from ..settings.config import TrainConfig
from ..training.distributed import ProcessGroup
from ..training.log import RunLog
from ..training.run_folder import RunFolder
from ..training.states_file import RefinedStates, write_states
from ..training.trainer import Trainer, TrainResult
from .members import resampled
from .prepare import Prepared, make_record
from .refined_network import refine_member, refine_network


@dataclass(frozen=True)
class TrainedNetwork:
    """What training gave besides the weights, which are in the field.

    Attributes:
        result: how training ended; a signal during the ensemble counts as well.
        refined: states trained with the network, or None.
        members: networks that suit the data about as well.
    """

    result: TrainResult
    refined: RefinedStates | None
    members: list[nn.Module]


@dataclass(frozen=True)
class Place:
    """Where a network is trained, and who hears of it.

    Attributes:
        folder: of the run, or None.
        resume: whether the run in it is continued.
        group: processes that train together.
        verbose: show progress.
    """

    folder: RunFolder | None
    resume: bool
    group: ProcessGroup
    verbose: bool

    def log(self, **files: Any) -> RunLog:
        """Progress and the log of the run, on the process that speaks for all."""
        main = self.group.is_main
        file = self.folder.log if main and self.folder is not None else None
        return RunLog(log=file, progress=self.verbose and main, **files)

    def checkpoint(self, folder: Path | None) -> Path | None:
        """What training goes on from; None where it begins.

        A run that was killed before its first checkpoint begins again.
        """
        last = None if folder is None else folder / "last.pt"
        there = self.resume and last is not None and last.exists()
        # The main process may write its first checkpoint before another one looks.
        return last if self.group.share([float(there)])[0] else None


def train_network(
    field: nn.Module,
    make: Callable[[int], nn.Module],
    whole: Series,
    training: Series,
    data: Prepared,
    config: TrainConfig,
    place: Place,
) -> TrainedNetwork:
    """Trains a network, then its states and its ensemble where these are asked for.

    A member is another network, first weights and order of the batches by another seed,
    trained with the same settings on blocks of the record drawn with replacement. The
    held-out data that choose the weights are the same.

    Args:
        field: the network, with its first weights; changed in place.
        make: the network with the first weights of a seed.
        whole: all observations, in their own units; states are refined for these.
        training: the part of them that is learned from.
        data: the same, scaled, and the held-out part.
        config: resolved settings.
        place: run folder and processes.
    """
    for name in ("refine", "ensemble"):
        if getattr(config, name) and whole.forcing is not None:
            raise ValueError(
                f"`{name}` must be {type(getattr(config, name))()} for a network with "
                f"inputs; got {getattr(config, name)}."
            )
    folder = place.folder
    files: dict[str, Any] = {}
    if folder is not None and place.group.is_main:
        board = folder.path / "tensorboard" if config.tensorboard else None
        files = {"metrics": folder.metrics, "tensorboard": board}
    checkpoints = None if folder is None else folder.checkpoints
    with place.log(**files) as log:
        if data.validate is None:
            log.say("no held-out data: the training loss decides the weights kept")
        if place.resume and folder is None:
            raise ValueError("`resume` needs the `run` folder to continue.")
        last = place.checkpoint(checkpoints)
        result = _train(field, data.record, data, config, place, log, checkpoints, last)
        refined = None
        if config.refine and result.signal is None:
            refined = refine_network(
                field,
                whole,
                data.scaler,
                config.weak.p,
                symmetry=data.symmetry,
                seed=config.seed,
                say=log.say,
            )
            if folder is not None and place.group.is_main:
                write_states(folder.states, refined)
    members: list[nn.Module] = []
    while result.signal is None and len(members) < config.ensemble:
        number = len(members) + 1
        asked = replace(config, seed=config.seed + number)
        member = make(asked.seed)
        signal = _train_member(member, number, training, data, asked, place)
        if signal is not None:
            return TrainedNetwork(replace(result, signal=signal), refined, [])
        members.append(member)
    return TrainedNetwork(result, refined, members)


def _train_member(
    member: nn.Module,
    number: int,
    training: Series,
    data: Prepared,
    config: TrainConfig,
    place: Place,
) -> int | None:
    """Trains one member of an ensemble; the signal that stopped it, if one did."""
    generator = torch.Generator().manual_seed(config.seed)
    part = resampled(training, config.weak.ell, generator)
    record = make_record(part, data.scaler, part.times, data.record.v.dtype)
    checkpoints = None if place.folder is None else place.folder.member(number)
    last = place.checkpoint(checkpoints)
    with place.log() as log:
        log.say(f"member {number} of {config.ensemble} of the ensemble")
        result = _train(member, record, data, config, place, log, checkpoints, last)
        if config.refine and result.signal is None:
            refine_member(
                member,
                part,
                data.scaler,
                config.weak.p,
                symmetry=data.symmetry,
                seed=config.seed,
            )
    return result.signal


def _train(
    field: nn.Module,
    record: Series,
    data: Prepared,
    config: TrainConfig,
    place: Place,
    log: RunLog,
    checkpoints: Path | None,
    last: Path | None,
) -> TrainResult:
    """Runs the trainer, from the checkpoint `last` where there is one."""
    trainer = Trainer(
        field,
        record,
        config,
        validate=data.validate,
        reporter=log,
        folder=checkpoints,
        group=place.group,
        extra={"scaler": data.scaler.state_dict()},
        symmetry=data.symmetry,
    )
    if last is not None:
        trainer.resume(last)
    return trainer.run()
