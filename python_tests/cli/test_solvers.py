"""All forecasts of a command use the solver that the user chose."""

import json

import numpy as np
import pytest
import torch

from training_cases import COMMAND_SETTINGS as SMALL
from training_cases import DT, FITTED, oscillator_data
from wpnode_ext.cli import main
from wpnode_ext.model.ensemble import forecast_members
from wpnode_ext.model.estimator import load

OTHERS = {"dopri5", "bosh3", "euler", "midpoint", "rk4"}


@pytest.fixture
def run(folder) -> str:
    clean = 10 + oscillator_data(900, torch.float64).numpy()
    np.savez("data.npz", v=clean[:500], dt=DT)
    np.savez("test.npz", v=clean[500:], dt=DT)
    settings = ["data.path=data.npz", *SMALL, "optim.epochs=1", "name=one"]
    assert main(["train", "-q", *settings]) in FITTED
    return "runs/one"


def judged(capsys, run: str, *more: str) -> dict:
    capsys.readouterr()
    command = ["evaluate", run, "test.npz", "--starts", "3", "--horizon", "2", "--json"]
    assert main([*command, *more]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_climate_uses_the_given_solver(run, capsys) -> None:
    for solver in ("rk4", "rk4_classic"):
        solvers = judged(capsys, run, "--solver", solver)["climate"]["solvers"]
        assert list(solvers)[0] == solver and set(solvers) == OTHERS | {solver}
    # Explicit solvers are no match for the fields it is chosen for.
    alone = judged(capsys, run, "--solver", "etdrk4")["climate"]["solvers"]
    assert list(alone) == ["etdrk4"]


def test_substeps_shorten_the_steps_of_forecasts_and_climate(run, capsys) -> None:
    found = {
        steps: judged(capsys, run, "--solver", "euler", "--substeps", steps)
        for steps in ("1", "6")
    }
    exact = judged(capsys, run)
    for part, name in (("forecasts", "rmse_at_horizon"), ("climate", "kl")):
        error = {s: abs(found[s][part][name] - exact[part][name]) for s in found}
        assert error["1"] > 3 * error["6"] > 0
    assert main(["evaluate", run, "test.npz", "--substeps", "0"]) == 2
    assert "`--substeps` must be >= 1; got 0" in capsys.readouterr().err


def test_substeps_shorten_the_steps_of_a_forecast(run) -> None:
    command = ["forecast", run, "--state", "11,10", "--steps", "30", "-o", "n.npz"]

    def last(*more: str) -> np.ndarray:
        assert main([*command, *more]) == 0
        return np.load("n.npz")["u"][-1]

    exact, coarse = last(), last("--solver", "euler")
    fine = last("--solver", "euler", "--substeps", "64")
    assert abs(fine - exact).max() < abs(coarse - exact).max() / 30
    model = load(f"{run}/model.pt")
    t = DT * torch.arange(31, dtype=torch.float64)
    by_eight = model.forecast(np.array([11.0, 10.0]), t, method="etdrk4", step=DT / 8)[
        -1
    ]
    assert last("--solver", "etdrk4") == pytest.approx(by_eight.numpy(), abs=1e-12)


def test_a_report_uses_the_solver_for_the_ensemble_too(run, monkeypatch) -> None:
    pytest.importorskip("matplotlib")
    steps = []

    def members(fields, start, t, **options):
        steps.append(options["step"])
        return forecast_members(fields, start, t, **options)

    monkeypatch.setattr("wpnode_ext.model.forecaster.forecast_members", members)
    settings = ["field.kind=library", "weak.p=4", "weak.ell=30", "ensemble=2"]
    data = ["data.path=data.npz", "name=many", "data.dt=0.05"]
    assert main(["train", "-q", *data, *settings]) in FITTED
    page = ["report", "runs/many", "--reference", "test.npz", "--no-climate"]
    assert main([*page, "--starts", "3", "--solver", "rk4", "--substeps", "5"]) == 0
    assert steps == [pytest.approx(DT / 5)]
