"""Checkpoints: whole or not there, readable without running code."""

import numpy as np
import pytest
import torch
from torch.nn.parallel import DataParallel

from training_cases import small_field
from wpnode_ext.training import CheckpointError, checkpoint


def test_a_saved_state_is_read_back(tmp_path) -> None:
    state = {"a": torch.arange(3), "b": [1, 2.5, "x", None, True], "c": {"d": (1, 2)}}
    checkpoint.save(tmp_path / "deep" / "file.pt", "test", state)
    back = checkpoint.load(tmp_path / "deep" / "file.pt", "test")
    assert torch.equal(back["a"], state["a"])
    assert (back["b"], back["c"]) == (state["b"], state["c"])
    assert back["format_version"] == checkpoint.FORMAT_VERSION
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["file.pt"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch) -> None:
    path = tmp_path / "file.pt"
    checkpoint.save(path, "test", {"n": 1})

    def broken(state, file):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(path, "test", {"n": 2})
    assert checkpoint.load(path, "test")["n"] == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("value", [np.float64(1.0), object(), {1, 2}])
def test_only_tensors_and_builtin_types_are_written(tmp_path, value) -> None:
    with pytest.raises(TypeError, match=r"`state\['x'\]\[1\]` must be a tensor"):
        checkpoint.save(tmp_path / "file.pt", "test", {"x": [0, value]})


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_damaged_files_are_named_as_such(tmp_path, keep) -> None:
    path = tmp_path / "file.pt"
    checkpoint.save(path, "test", {"x": torch.zeros(100)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="cannot be read: damaged, or not a file"):
        checkpoint.load(path, "test")


def test_foreign_files_other_kinds_and_newer_formats_are_refused(
    tmp_path, monkeypatch
) -> None:
    path = tmp_path / "file.pt"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(CheckpointError, match="cannot be read"):
        checkpoint.load(path, "test")
    torch.save({"weights": torch.zeros(2)}, path)
    with pytest.raises(
        CheckpointError, match="not a file of wpnode_ext .it has no checksum"
    ):
        checkpoint.load(path, "test")
    torch.save(small_field(), path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        checkpoint.load(path, "test")
    checkpoint.save(path, "model", {})
    with pytest.raises(CheckpointError, match="must be a wpnode_ext test file"):
        checkpoint.load(path, "test")
    monkeypatch.setattr(checkpoint, "FORMAT_VERSION", 99)
    checkpoint.save(path, "test", {})
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="format version 99.*Update wpnode_ext"):
        checkpoint.load(path, "test")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        checkpoint.load(tmp_path / "none.pt", "test")


def test_weights_are_stored_without_the_names_of_wrappers() -> None:
    field = small_field()
    names = list(field.state_dict())
    assert list(checkpoint.weights_of(DataParallel(field))) == names
    assert list(checkpoint.weights_of(torch.compile(field))) == names
