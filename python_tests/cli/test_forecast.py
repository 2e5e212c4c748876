"""Inputs of forecasts: the command reads them at the times of their file."""

import numpy as np
import pytest
import torch

from training_cases import COMMAND_SETTINGS as SMALL
from training_cases import DT, FITTED
from wpnode_ext.cli import main
from wpnode_ext.model.estimator import load

STEPS = 20
START = 5.0
FORECAST = ["forecast", "runs/one", "--data", "d.csv", "--at", "100"]


def push(t: np.ndarray) -> np.ndarray:
    return np.sin(3 * t) + t


def write(name: str, header: str, *columns: np.ndarray) -> None:
    table = np.column_stack(columns)
    np.savetxt(name, table, delimiter=",", header=header, comments="")


@pytest.fixture
def model(folder):
    """A model with an input; its data are from time 0 on."""
    t = DT * np.arange(200)
    write("d.csv", "when,a,b,push", t, np.sin(t), np.cos(t), push(t))
    given = ["data.path=d.csv", "data.time=when", "data.forcing=[push]"]
    assert main(["train", "-q", *given, *SMALL, "optim.epochs=1", "name=one"]) in FITTED
    return load("runs/one/model.pt")


def forecast(*more: str) -> np.ndarray:
    steps = ["--steps", str(STEPS), "-o", "next.npz"]
    assert main([*FORECAST, *steps, *more]) == 0
    return np.load("next.npz")["u"]


def expected(model, inputs: np.ndarray) -> np.ndarray:
    t = START + DT * torch.arange(STEPS + 1, dtype=torch.float64)
    start = torch.tensor([np.sin(START), np.cos(START)])
    return model.forecast(start, t, forcing=torch.from_numpy(inputs)).numpy()


def test_inputs_are_interpolated_at_the_times_of_the_forecast(model) -> None:
    t = START + DT * np.arange(STEPS + 1)
    wanted = expected(model, push(t))
    # More rows than steps, from an earlier time on, one of them left out.
    early = np.delete(DT * np.arange(160), 90)
    write("early.csv", "when,push", early, push(early))
    assert forecast("--forcing-file", "early.csv") == pytest.approx(wanted, abs=1e-8)
    # The file of training itself, and arrays whose `dt` says nothing of the start.
    assert forecast("--forcing-file", "d.csv") == pytest.approx(wanted, abs=1e-8)
    np.savez("early.npz", v=push(early), t=early, dt=DT)
    assert forecast("--forcing-file", "early.npz") == pytest.approx(wanted, abs=1e-8)
    coarse = 4 + 0.3 * np.arange(10)
    write("coarse.csv", "t,push", coarse, push(coarse))
    between = expected(model, np.interp(t, coarse, push(coarse)))
    assert forecast("--forcing-file", "coarse.csv") == pytest.approx(between, abs=1e-8)
    # Inputs between two times of the forecast count as well.
    fine = np.linspace(4, 7, 3001)
    quick = np.sin(2 * np.pi / DT * fine) ** 2
    write("fine.csv", "t,push", fine, quick)
    still = expected(model, np.zeros(STEPS + 1))
    assert abs(forecast("--forcing-file", "fine.csv") - still).max() > 1e-3


def test_times_the_inputs_do_not_cover_are_refused(model, capsys) -> None:
    t = DT * np.arange(110)
    write("short.csv", "when,push", t, push(t))
    assert main([*FORECAST, "--steps", "20", "--forcing-file", "short.csv"]) == 2
    assert "must cover the times 5 .. 6; got 0 .. 5.45" in capsys.readouterr().err
    write("back.csv", "when,push", t[::-1], push(t))
    assert main([*FORECAST, "--steps", "20", "--forcing-file", "back.csv"]) == 2
    assert "must be strictly increasing" in capsys.readouterr().err


def test_inputs_without_times_need_a_row_for_every_state(model, capsys) -> None:
    t = START + DT * np.arange(STEPS + 1)
    write("rows.csv", "push", push(t))
    wanted = expected(model, push(t))
    assert forecast("--forcing-file", "rows.csv") == pytest.approx(wanted, abs=1e-8)
    assert main([*FORECAST, "--steps", "30", "--forcing-file", "rows.csv"]) == 2
    assert "must have 31 rows" in capsys.readouterr().err
    assert main([*FORECAST, "--steps", "10", "--forcing-file", "rows.csv"]) == 2
    assert "as rows.csv has no times; got 21" in capsys.readouterr().err
    write("gaps.csv", "push", np.where(t == t[3], np.nan, t))
    assert main([*FORECAST, "--steps", "20", "--forcing-file", "gaps.csv"]) == 2
    assert "a value at every time" in capsys.readouterr().err


def test_dates_of_inputs_use_the_clock_of_the_start(folder, capsys) -> None:
    days = np.datetime64("2017-01-01") + np.arange(200)
    u = np.sin(0.05 * np.arange(200))

    def dated(name: str, header: str, dates: np.ndarray, *columns: np.ndarray) -> None:
        rows = zip(dates, *columns, strict=True)
        lines = [header, *(",".join(map(str, row)) for row in rows)]
        (folder / name).write_text("\n".join(lines))

    dated("d.csv", "date,a,push", days, u, np.arange(200.0))
    given = ["data.path=d.csv", "data.forcing=[push]"]
    assert main(["train", "-q", *given, *SMALL, "optim.epochs=1", "name=one"]) in FITTED
    command = [*FORECAST, "--steps", "5", "-o", "next.npz", "--forcing-file"]
    assert main([*command, "d.csv"]) == 0
    whole = np.load("next.npz")["u"]
    # The same inputs from another first date on, two days apart.
    dated("later.csv", "date,push", days[90:120:2], np.arange(90.0, 120.0, 2))
    assert main([*command, "later.csv"]) == 0
    assert np.load("next.npz")["u"] == pytest.approx(whole, abs=1e-8)
    write("numbers.csv", "t,push", np.arange(200), np.arange(200))
    capsys.readouterr()
    assert main([*command, "numbers.csv"]) == 2
    assert "numbers.csv has numbers" in capsys.readouterr().err
