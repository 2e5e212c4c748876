"""Small training problems, run in this process or in another one."""

import multiprocessing
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from wpnode_ext.data import lay_end_to_end
from wpnode_ext.fields import MLPField
from wpnode_ext.settings.config import OptimConfig, StrongForm, TrainConfig, WeakForm
from wpnode_ext.training import Session, Trainer, checkpoint
from wpnode_ext.training.log import RunLog

DT = 0.05
# Exit codes of `wpnode train` after it wrote a model. Code 3 is the verdict "do not
# use", which a network of a few epochs deserves.
FITTED = (0, 3)
# A quick weak training, as arguments of the command.
COMMAND_SETTINGS = [
    "method=weak",
    "field.hidden=[8]",
    "weak.p=4",
    "weak.ell=20",
    "weak.q=2",
    "optim.batch_size=128",
]


def oscillator_data(n: int = 400, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The exact solution of ``x' = y, y' = -x - 0.05 y``, a damped oscillator."""
    generator = torch.tensor([[0.0, 1.0], [-1.0, -0.05]], dtype=torch.float64)
    step = torch.matrix_exp(DT * generator)
    u = [torch.tensor([1.0, 0.0], dtype=torch.float64)]
    for _ in range(n - 1):
        u.append(step @ u[-1])
    return torch.stack(u).to(dtype)


def small_config(method: str = "wp", **changes: Any) -> TrainConfig:
    optim = {"batch_size": 64, "epochs": 5, "lr": 1e-2} | changes.pop("optim", {})
    return TrainConfig(
        method=method,  # type: ignore[arg-type]
        weak=WeakForm(p=4, ell=20, q=2),
        strong=changes.pop("strong", StrongForm(window=3, solver="rk4")),
        optim=OptimConfig(**optim),
        **changes,
    )


def small_field(seed: int = 0) -> MLPField:
    return MLPField(2, (16,), generator=torch.Generator().manual_seed(seed))


def train_into(folder: Path, epochs: int, resume: bool = False) -> None:
    """Trains with a checkpoint after every step; writes the weights to ``final.pt``."""
    torch.set_num_threads(1)
    config = small_config(optim={"epochs": epochs}, checkpoint_seconds=0.0)
    with RunLog(metrics=folder / "metrics.csv", log=folder / "log.txt") as log:
        trainer = Trainer(
            small_field(),
            lay_end_to_end(oscillator_data(), dt=DT),
            config,
            session=Session(reporter=log, folder=folder),
        )
        if resume:
            trainer.load_state_dict(checkpoint.load(folder / "last.pt", "training"))
        result = trainer.run()
    if result.signal is not None:
        sys.exit(128 + result.signal)
    checkpoint.save(folder / "final.pt", "test", {"model": trainer.field.state_dict()})


def process(folder: Path, epochs: int, resume: bool = False) -> BaseProcess:
    """Starts :func:`train_into` in a process that need not import torch again."""
    context = multiprocessing.get_context("forkserver")
    # The first step of an optimiser imports torch._dynamo, which takes seconds.
    context.set_forkserver_preload(["training_cases", "torch._dynamo"])
    child = context.Process(target=train_into, args=(folder, epochs, resume))
    child.start()
    return child
