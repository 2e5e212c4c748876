"""The files that the command reads and writes."""

import re

import numpy as np
import pytest

from training_cases import COMMAND_SETTINGS as SMALL
from training_cases import DT, FITTED
from wpnode_ext.cli import main
from wpnode_ext.model.estimator import load


def test_columns_times_and_inputs_are_read_from_csv_files(folder, capsys) -> None:
    t = DT * np.arange(200)
    table = np.column_stack([t, np.sin(t), np.cos(t), np.sign(np.sin(t))])
    np.savetxt("d.csv", table, delimiter=",", header="when,a,b,push", comments="")
    given = ["data.path=d.csv", "data.time=when", "data.forcing=[push]"]
    assert main(["train", "-q", *given, *SMALL, "optim.epochs=1", "name=csv"]) in FITTED
    model = load("runs/csv/model.pt")
    assert model.names_ == ("a", "b") and model.forcing_scaler_ is not None
    capsys.readouterr()
    assert main(["noise", "d.csv", "--time", "when", "--columns", "a"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("a ") for line in lines)
    assert not any(line.startswith(("b ", "push ")) for line in lines)
    assert main(["noise", "d.csv", "--time", "clock"]) == 2
    assert "'clock'" in capsys.readouterr().err


def test_forecasts_read_files_like_the_training_data(folder, capsys) -> None:
    t = 5 + DT * np.arange(200)
    table = np.column_stack([t, np.sin(t), np.cos(t), 0 * t])
    np.savetxt("d.csv", table, delimiter=",", header="when,a,b,rest", comments="")
    given = ["data.path=d.csv", "data.time=when", "data.columns=[a,b]"]
    assert main(["train", "-q", *given, *SMALL, "optim.epochs=1", "name=csv"]) in FITTED
    start = ["forecast", "runs/csv", "--data", "d.csv", "--steps", "3"]
    assert main([*start, "--at", "10", "-o", "next.csv"]) == 0
    rows = np.loadtxt("next.csv", delimiter=",", skiprows=1)
    # The times of the file go on, and so do its states.
    assert rows[0] == pytest.approx(table[10, :3], abs=1e-8)
    assert rows[:, 0] == pytest.approx(t[10:14])
    capsys.readouterr()
    assert main(["forecast", "runs/csv", "--state", "1,2,3"]) == 2
    assert "`--state` must have 2 numbers" in capsys.readouterr().err
    table[-1, 1] = np.nan
    np.savetxt("d.csv", table, delimiter=",", header="when,a,b,rest", comments="")
    assert main(start) == 2
    assert "without missing values; sample 199 of d.csv" in capsys.readouterr().err
    np.savez("wide.npz", v=np.zeros((300, 3)))
    assert main(["evaluate", "runs/csv", "wide.npz"]) == 2
    assert "states of shape [2]" in capsys.readouterr().err


def test_noise_and_tune_refuse_irregular_times(folder, capsys) -> None:
    t = np.sort(np.random.default_rng(0).uniform(size=300))
    np.savez("d.npz", v=np.sin(t), t=t)
    for command in ("noise", "tune"):
        assert main([command, "d.npz"]) == 2
        assert "300 samples at irregular times" in capsys.readouterr().err


def test_simulate_writes_the_papers_settings(folder, capsys) -> None:
    simulate = ["simulate", "lorenz63", "-n", "900", "-o", "l.npz", "--noise", "0.01"]
    assert main([*simulate, "--settings", "l63.yaml"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"0\.90\d* \(computed\), 0\.91 \(the paper's\)", text)
    assert main(["train", "l63.yaml", "--dry-run"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    shown = dict(line for line in lines if len(line) == 2)
    listed = {
        "method": "wp",
        "lam": "0.5",
        "weak.p": "8",
        "weak.ell": "50",
        "weak.q": "2",
        "strong.window": "2",
        "optim.lr": "0.002",
        "optim.patience": "200",
        "optim.epochs": "20000",
        "optim.min_lr": "1e-06",
        "data.path": "l.npz",
    }
    assert {key: shown[key] for key in listed} == listed
    assert main(["simulate", "lorenz96", "d=5", "-n", "30", "-o", "five.csv"]) == 0
    assert np.loadtxt("five.csv", delimiter=",", skiprows=1).shape == (30, 6)


def test_options_that_a_format_lacks_are_refused(folder, capsys) -> None:
    np.savez("d.npz", a=np.zeros(50), b=np.zeros(50), dt=DT)
    assert main(["noise", "d.npz"]) == 2
    assert "name the state by --columns (data.columns in set" in capsys.readouterr().err
    assert main(["train", "data.path=d.npz", "data.series=swing"]) == 2
    assert "`series` must be left out for .npz files" in capsys.readouterr().err
