"""Altered files of models and checkpoints are refused; whole ones are read."""

import copy
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from training_cases import DT, oscillator_data, small_config, small_field
from wpnode_ext import WPNODE, load
from wpnode_ext.data import lay_end_to_end
from wpnode_ext.settings.config import FieldConfig
from wpnode_ext.training import CheckpointError, Trainer, checkpoint

# In place of an entry: none, other types, numbers that are none, a tensor that shows a
# thousand million numbers and stores one.
ODD = (
    None,
    "x",
    -1,
    10**9,
    math.nan,
    [],
    [10**9],
    {},
    {"a": 1},
    b"a",
    torch.ones(3, 1),
)
WIDE = torch.ones(1).expand(10**9)


def trainer() -> Trainer:
    config = small_config(optim={"epochs": 1})
    return Trainer(small_field(), lay_end_to_end(oscillator_data(), dt=DT), config)


def write_checkpoint(path: Path) -> None:
    one = trainer()
    one.run()
    checkpoint.save(path, "training", one.state_dict())


def write_network(path: Path) -> None:
    field = FieldConfig(kind="mlp", hidden=[8])
    config = small_config(field=field, optim={"epochs": 1}, ensemble=1)
    WPNODE(config=config).fit(oscillator_data(), DT).save(path)


def write_waves(path: Path) -> None:
    """Polynomials in fewer coordinates than there are entries."""
    config = small_config("closed_form", field=FieldConfig(kind="library"))
    wide = oscillator_data() @ torch.randn(2, 5)
    model = WPNODE(config=config, refine=False, coordinates="pod", p=4, ell=20, q=2)
    model.fit(wide + 0.01 * torch.randn(wide.shape), DT).save(path)


WRITERS = {"training": write_checkpoint, "network": write_network, "waves": write_waves}


@pytest.fixture(params=WRITERS)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A file, and its kind."""
    path = tmp_path / "file.pt"
    WRITERS[request.param](path)
    return path, "training" if request.param == "training" else "model"


def read(path: Path, kind: str) -> None:
    if kind == "training":
        trainer().resume(path)
    else:
        load(path)


def refused(path: Path, kind: str) -> bool:
    """True if a file is refused with the right error."""
    try:
        read(path, kind)
    except CheckpointError as error:
        assert str(path) in str(error)
        return True
    return False


def places(state: Any) -> Iterator[tuple[Any, Any]]:
    """Containers of a state, each with one of its keys."""
    keys = state if isinstance(state, dict) else range(len(state))
    for key in list(keys):
        yield state, key
        if isinstance(state[key], dict | list):
            yield from places(state[key])


def changed(state: dict[str, Any], number: int, value: Any) -> dict[str, Any]:
    """A copy with another entry at one place; `value` is what to do there."""
    copied = copy.deepcopy(state)
    container, key = list(places(copied))[number]
    if value == "drop":
        del container[key]
    else:
        container[key] = value
    return copied


def test_bytes_that_were_changed_are_found(written) -> None:
    path, kind = written
    read(path, kind)
    whole, rng = path.read_bytes(), random.Random(0)
    for _ in range(200):
        part = bytearray(whole)
        for _ in range(rng.choice([1, 1, 5])):
            part[rng.randrange(len(part))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            part = part[: rng.randrange(len(part))]
        path.write_bytes(bytes(part))
        assert refused(path, kind)


def test_files_written_by_other_means_are_refused(written) -> None:
    path, kind = written
    torch.save(torch.load(path, weights_only=True), path)
    with pytest.raises(CheckpointError, match="it has no checksum"):
        read(path, kind)


def test_entries_that_are_missing_or_odd_are_refused(written) -> None:
    path, kind = written
    state, rng = checkpoint.load(path, kind), random.Random(1)
    for number, (container, key) in enumerate(places(state)):
        for value in ("drop", *rng.sample(ODD, 2)):
            checkpoint.save(path, kind, changed(state, number, value))
            found = refused(path, kind)
            if container is state and value == "drop":
                # The first are written anew; a run has settings of its own.
                assert found or key in ("format", "format_version", "config"), key
        value = container[key]
        if isinstance(value, torch.Tensor) and value.dim() and value.shape[-1] > 1:
            shorter = value[..., :-1].clone()
            checkpoint.save(path, kind, changed(state, number, shorter))
            # One shift and one scale may serve all entries of a state.
            assert refused(path, kind) or key in ("shift", "scale"), key


def test_sizes_that_no_file_has_are_refused(tmp_path) -> None:
    path = tmp_path / "file.pt"
    write_network(path)
    state = checkpoint.load(path, "model")
    changes: list[dict[str, Any]] = [
        {"hidden": [10**6, 10**6]},
        {"kind": "library", "degree": 40},
        {"kind": "features", "features": 10**9},
        {"kind": "conv", "width": 10**6, "kernels": [1, 1, 1]},
    ]
    for change in changes:
        other = copy.deepcopy(state)
        other["config"]["field"] |= change
        checkpoint.save(path, "model", other)
        with pytest.raises(CheckpointError, match="describe a field of"):
            load(path)
    for name in ("model", "scaler"):
        other = copy.deepcopy(state)
        key = next(k for k, v in other[name].items() if isinstance(v, torch.Tensor))
        other[name][key] = WIDE
        checkpoint.save(path, "model", other)
        with pytest.raises(CheckpointError, match="must be a dense tensor"):
            load(path)
