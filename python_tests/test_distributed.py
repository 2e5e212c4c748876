"""Two gloo processes give the loss, gradients and weights of one."""

import multiprocessing
import os
import socket
from pathlib import Path

import pytest
import torch

from training_cases import DT, oscillator_data, small_config, small_field
from wpnode_ext.record import Record
from wpnode_ext.training import Trainer
from wpnode_ext.training.distributed import ProcessGroup, join

DOUBLE = torch.float64


def record(lengths: list[int]) -> Record:
    return Record(oscillator_data(sum(lengths), DOUBLE), dt=DT, lengths=lengths)


def train(method: str, lengths: list[int], group: ProcessGroup, folder=None):
    field = small_field().double()
    config = small_config(method, optim={"epochs": 3, "lr": 1e-3})
    trainer = Trainer(
        field,
        record(lengths),
        config,
        group=group,
        folder=folder,
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
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    group = join("cpu")
    results = [train(*case, group, folder / "run") for case in CASES]
    torch.save(results, folder / f"{rank}.pt")
    group.close()


# The last has batches with fewer blocks than processes: one of them idles.
CASES = [
    ("wp", [400]),
    ("wp", [150, 60, 30]),
    ("weak", [400]),
    ("strong", [60, 33]),
    ("wp", [45]),
]


@pytest.mark.distributed
def test_two_processes_train_as_one_does(tmp_path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["training_cases", "torch._dynamo"])
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parent))
    children = [
        context.Process(target=worker, args=(rank, 2, port, tmp_path))
        for rank in range(2)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(timeout=180)
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
