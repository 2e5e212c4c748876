"""Two gloo processes give the loss, gradients and weights of one."""

import multiprocessing
import os
import socket
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
import torch

from training_cases import (
    COMMAND_SETTINGS,
    DT,
    FITTED,
    oscillator_data,
    small_config,
    small_field,
)
from wpnode_ext.cli import main
from wpnode_ext.common.files import lock
from wpnode_ext.data import Series, lay_end_to_end
from wpnode_ext.training import Session, Trainer
from wpnode_ext.training.distributed import ProcessGroup, join

DOUBLE = torch.float64


def record(lengths: list[int]) -> Series:
    return lay_end_to_end(oscillator_data(sum(lengths), DOUBLE), dt=DT, lengths=lengths)


def train(method: str, lengths: list[int], group: ProcessGroup, folder=None):
    field = small_field().double()
    config = small_config(method, optim={"epochs": 3, "lr": 1e-3})
    trainer = Trainer(
        field,
        record(lengths),
        config,
        session=Session(group=group, folder=folder),
        validate=lambda f: {
            "val_error": f(0.0, torch.ones(1, 2).double()).sum().item()
        },
    )
    result = trainer.run()
    gradients = torch.cat([p.grad.flatten() for p in field.parameters()])
    weights = torch.cat([p.detach().flatten() for p in field.parameters()])
    losses = [[row["loss"], row["weak"], row["strong"]] for row in result.history]
    return losses, gradients, weights


def worker(rank: int, world: int, port: int, folder: Path) -> None:
    set_environment(rank, world, port)
    group = join("cpu")
    results = [train(*case, group, folder / "run") for case in CASES]
    torch.save(results, folder / f"{rank}.pt")
    group.close()


def set_environment(rank: int, world: int, port: int) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


# The last has batches with fewer blocks than processes, which are cut.
CASES = [
    ("wp", [400]),
    ("wp", [150, 60, 30]),
    ("weak", [400]),
    ("strong", [60, 33]),
    ("wp", [45]),
]


def start(target, folder: Path) -> list[BaseProcess]:
    """Two processes that find each other; `target(rank, world, port, folder)`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["training_cases", "torch._dynamo"])
    children: list[BaseProcess] = [
        context.Process(target=target, args=(rank, 2, port, folder))
        for rank in range(2)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(timeout=180)
    return children


@pytest.mark.distributed
def test_two_processes_train_as_one_does(tmp_path) -> None:
    for child in start(worker, tmp_path):
        assert child.exitcode == 0
    both = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for number, (method, lengths) in enumerate(CASES):
        alone = train(method, lengths, ProcessGroup())
        for losses, gradients, weights in (result[number] for result in both):
            torch.testing.assert_close(torch.tensor(losses), torch.tensor(alone[0]))
            torch.testing.assert_close(gradients, alone[1], rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(weights, alone[2], rtol=1e-9, atol=1e-12)
        assert torch.equal(both[0][number][2], both[1][number][2])
    assert (tmp_path / "run" / "last.pt").exists()


def command(rank: int, world: int, port: int, folder: Path) -> None:
    """``wpnode train`` as ``torchrun`` starts it; resumes what is there already."""
    set_environment(rank, world, port)
    os.chdir(folder)
    given = ["data.path=d.npz", *COMMAND_SETTINGS, "optim.epochs=2", "name=one"]
    if Path("runs/one").exists():
        given = ["--resume", "runs/one"]
    os._exit(main(["train", "-q", *given]))


@pytest.mark.distributed
def test_two_processes_share_a_run_folder_and_keep_others_out(folder) -> None:
    np.savez("d.npz", v=oscillator_data(400).numpy(), dt=DT)
    assert {child.exitcode for child in start(command, folder)} <= set(FITTED)
    # Killed before the first checkpoint: both begin anew.
    Path("runs/one/checkpoints/last.pt").unlink()
    Path("runs/one/model.pt").unlink()
    assert {child.exitcode for child in start(command, folder)} <= set(FITTED)
    assert Path("runs/one/model.pt").exists()
    with open("runs/one/.lock", "w") as file:
        lock(file.fileno(), wait=False)
        assert [child.exitcode for child in start(command, folder)] == [1, 1]


def test_without_torchrun_there_is_one_process(monkeypatch) -> None:
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    group = join("cpu")
    assert (group.rank, group.world, group.is_main) == (0, 1, True)
    assert group.share([1.0, 2.0]) == [1.0, 2.0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_is_refused_where_there_is_none() -> None:
    with pytest.raises(RuntimeError, match="torch sees no CUDA device"):
        join("cuda")
