"""Runs that are killed at any moment are resumed, or started, to the same bits."""

import multiprocessing
import os
import random
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
import torch

from training_cases import COMMAND_SETTINGS, DT, FITTED, oscillator_data
from wpnode_ext.cli import main
from wpnode_ext.common import files
from wpnode_ext.model.estimator import load
from wpnode_ext.systems import preset
from wpnode_ext.training.log import read_metrics

NETWORK = [*COMMAND_SETTINGS[1:], "optim.epochs=2", "checkpoint_seconds=0"]
LIBRARY = ["field.kind=library", "weak.p=4", "weak.ell=30", "weak.q=2"]
CASES: dict[str, list[str]] = {
    "weak": ["data.path=data.npz", "method=weak", *NETWORK],
    "wp": ["data.path=data.npz", "method=wp", *NETWORK, "ensemble=1"],
    "strong": ["data.path=data.npz", "method=strong", *NETWORK, "strong.window=3"],
    "closed_form": ["data.path=data.npz", "method=closed_form", *LIBRARY],
    # Lines do not explain Lorenz-63: a network takes over.
    "auto": [
        "data.path=lorenz.npz",
        "method=auto",
        *LIBRARY,
        "field.degree=1",
        "field.hidden=[8]",
        "optim.patience=1",
        "optim.batch_size=256",
        "checkpoint_seconds=0",
    ],
}


def command(case: str, name: str) -> list[str]:
    return ["train", "-q", *CASES[case], f"name={name}"]


def train(folder: Path, arguments: list[str], writes: int | None) -> None:
    """The command in `folder`; killed as it is about to replace its nth file."""
    os.chdir(folder)
    torch.set_num_threads(1)
    left, replace = iter(range(writes or 10**9)), os.replace

    def counted(*names: Path) -> None:
        next(left)
        replace(*names)

    def kill(*names: Path) -> None:
        try:
            counted(*names)
        except StopIteration:
            os.kill(os.getpid(), signal.SIGKILL)

    files.os.replace = kill  # type: ignore[assignment]
    os._exit(main(arguments))


def start(folder: Path, arguments: list[str], writes: int | None = None) -> BaseProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch._dynamo"])
    child = context.Process(target=train, args=(folder, arguments, writes))
    child.start()
    return child


def write_data(folder: Path) -> None:
    clean = oscillator_data(300, torch.float64).numpy()
    noise = 0.05 * np.random.default_rng(0).normal(size=clean.shape)
    np.savez(folder / "data.npz", v=clean + noise, dt=DT)
    u = preset("lorenz63").system.simulate(400, 0.02, seed=0)
    np.savez(folder / "lorenz.npz", v=u.numpy(), dt=0.02)


@pytest.fixture(scope="module")
def known(tmp_path_factory) -> Callable[[str], dict[str, torch.Tensor]]:
    """The weights at the end of an undisturbed run."""
    place = tmp_path_factory.mktemp("whole")
    write_data(place)
    found: dict[str, dict[str, torch.Tensor]] = {}

    def weights(case: str) -> dict[str, torch.Tensor]:
        if case not in found:
            child = start(place, command(case, case))
            child.join(timeout=120)
            assert child.exitcode in FITTED
            found[case] = load(place / f"runs/{case}/model.pt").field_.state_dict()
        return found[case]

    return weights


@pytest.fixture
def whole(folder, known) -> Callable[[str], dict[str, torch.Tensor]]:
    """:func:`known`, with the data in an empty folder to work in."""
    write_data(folder)
    return known


def go_on(case: str, name: str, weights: dict[str, torch.Tensor]) -> None:
    """Resumes or starts a killed run; it ends with the bits of an undisturbed one."""
    run = Path("runs") / name
    there = (run / "config.yaml").exists()
    again = ["train", "-q", "--resume", str(run)] if there else command(case, name)
    assert main(again) in FITTED
    own = load(run / "model.pt").field_.state_dict()
    assert all(torch.equal(own[key], value) for key, value in weights.items())
    assert not [path for path in run.rglob(".*") if path.name != ".lock"]
    if case != "closed_form":
        epochs = [row["epoch"] for row in read_metrics(run / "metrics.csv")]
        assert epochs == list(range(len(epochs)))


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("case", "writes"),
    [("weak", n) for n in (1, 2, 4, 7)] + [("closed_form", 3), ("auto", 4)],
)
def test_a_run_killed_as_it_writes_a_file_is_not_lost(whole, case, writes) -> None:
    weights = whole(case)
    child = start(Path.cwd(), command(case, "killed"), writes)
    child.join(timeout=120)
    assert child.exitcode == -signal.SIGKILL
    go_on(case, "killed", weights)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("case", CASES)
def test_a_run_killed_at_any_moment_is_not_lost(whole, case) -> None:
    weights = whole(case)
    for writes in range(1, 100):
        name = f"write_{writes}"
        child = start(Path.cwd(), command(case, name), writes)
        child.join(timeout=120)
        if child.exitcode in FITTED:
            break
        assert child.exitcode == -signal.SIGKILL
        go_on(case, name, weights)
    moments = random.Random(0)
    for number in range(8):
        name = f"moment_{number}"
        child = start(Path.cwd(), command(case, name))
        # More of them early: a run that has begun to train is alike at all moments.
        child.join(timeout=3 * moments.random() ** 2)
        child.kill()
        child.join()
        go_on(case, name, weights)


def test_a_second_process_is_kept_out_of_a_run_folder(whole, capsys) -> None:
    os.makedirs("runs/one")
    with open("runs/one/.lock", "w") as file:
        assert files.lock(file.fileno(), wait=False)
        # The lock belongs to the open file, hence to another process as well.
        assert main(command("weak", "one")) == 1
        text = capsys.readouterr().err
        assert "another process works in runs/one" in text and "`name=`" in text
        assert not Path("runs/one/config.yaml").exists()
    assert main(command("weak", "one")) in FITTED
