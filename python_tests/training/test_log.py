"""Metrics, progress and run folders."""

import io
import json

import pytest

from training_cases import small_config
from wpnode_ext.settings.config import TrainConfig
from wpnode_ext.settings.text import load
from wpnode_ext.training.log import RunLog, read_metrics
from wpnode_ext.training.run_folder import RunFolder


def row(epoch: int, **more: float) -> dict[str, float]:
    return {"epoch": epoch, "loss": 1 / (epoch + 1), "lr": 0.1, "weak": 0.5, **more}


def write(path, first: int, last: int) -> None:
    with RunLog(metrics=path, progress=False) as log:
        log.begin(first, last)
        for epoch in range(first, last):
            log.epoch(row(epoch, **({"val_error": 0.25} if epoch % 2 else {})))
        log.end("epochs")


def test_metrics_come_back_as_they_were_to_the_last_digit(tmp_path) -> None:
    path = tmp_path / "metrics.csv"
    write(path, 0, 3)
    rows = read_metrics(path)
    assert [r["loss"] for r in rows] == [1.0, 0.5, 1 / 3]
    assert "val_error" not in rows[0] and rows[1]["val_error"] == 0.25


def test_a_resumed_run_drops_rows_it_repeats_and_half_written_lines(tmp_path) -> None:
    path = tmp_path / "metrics.csv"
    write(path, 0, 5)
    with path.open("a") as file:
        file.write("5,0.1")
    write(path, 3, 6)
    assert [r["epoch"] for r in read_metrics(path)] == [0, 1, 2, 3, 4, 5]


def test_a_table_cut_anywhere_gives_the_rows_that_are_whole(tmp_path) -> None:
    path = tmp_path / "metrics.csv"
    write(path, 0, 4)
    text = path.read_bytes()
    for end in range(len(text) + 1):
        path.write_bytes(text[:end])
        rows = read_metrics(path)
        assert len(rows) == max(0, text[:end].count(b"\n") - 1)
        assert [r["loss"] for r in rows] == [1 / (n + 1) for n in range(len(rows))]
    path.write_bytes(text + bytes(50) + b"\nx,y\n")
    assert len(read_metrics(path)) == 4


def test_a_log_goes_on_in_a_new_line(tmp_path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("half a li")
    with RunLog(log=path, progress=False) as log:
        log.say("\x1b[31mgoes on")
    first, second = path.read_text().splitlines()
    assert first == "half a li" and second.endswith(r"\x1b[31mgoes on")


def test_without_a_terminal_there_are_lines_and_no_bar(tmp_path) -> None:
    stream = io.StringIO()
    with RunLog(log=tmp_path / "log.txt", stream=stream) as log:
        log.begin(0, 3)
        for epoch in range(3):
            log.epoch(row(epoch))
        log.end("patience")
    text = stream.getvalue()
    assert text.splitlines() == [
        "epoch 1/3  loss 1.000e+00  lr 1.0e-01",
        "training ended after 3 epochs: the loss stopped falling",
    ]
    assert "the loss stopped falling" in (tmp_path / "log.txt").read_text()


def test_a_terminal_shows_loss_rate_and_validation() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with RunLog(stream=stream) as log:
        log.begin(0, 2)
        log.epoch(row(0, val_error=0.5))
        log.epoch(row(1))
        log.end("epochs")
    text = stream.getvalue()
    assert "2/2" in text and "loss 5.000e-01" in text and "validation 0.5000" in text


def test_silence_is_kept_when_asked_for(capsys) -> None:
    with RunLog(progress=False) as log:
        log.begin(0, 1)
        log.epoch(row(0))
        log.end("epochs")
    assert capsys.readouterr() == ("", "")


def test_an_error_ends_up_in_the_log_file(tmp_path) -> None:
    path = tmp_path / "log.txt"
    with pytest.raises(RuntimeError), RunLog(log=path, progress=False) as log:
        log.begin(0, 1)
        raise RuntimeError("it broke")
    assert "RuntimeError: it broke" in path.read_text()


def test_tensorboard_gets_the_numbers(tmp_path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with RunLog(tensorboard=tmp_path / "tb", progress=False) as log:
        log.begin(0, 2)
        log.epoch(row(0))
        log.epoch(row(1))
        log.end("epochs")
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    assert [e.value for e in events.Scalars("loss")] == [1.0, 0.5]


def test_a_run_folder_is_not_overwritten_silently(tmp_path) -> None:
    run = RunFolder(tmp_path / "one").create()
    run.write_config(small_config())
    with pytest.raises(FileExistsError, match="holds a run already"):
        RunFolder(tmp_path / "one").create()
    run.metrics.write_text("old")
    RunFolder(tmp_path / "one").create(overwrite=True)
    assert not run.metrics.exists()
    with pytest.raises(FileNotFoundError, match="holds no run"):
        RunFolder(tmp_path / "two").require()


def test_config_and_environment_are_readable_again(tmp_path) -> None:
    run = RunFolder(tmp_path / "one").create()
    config = small_config("weak", seed=5)
    run.write_config(config)
    assert load(TrainConfig, run.config) == config
    run.write_environment(seed=5)
    environment = json.loads(run.env.read_text())
    assert environment["versions"]["torch"] and environment["seed"] == 5
