"""Networks: ensembles of them, and refined states from the command to the report."""

import numpy as np
import pytest
import torch

from training_cases import COMMAND_SETTINGS, DT, FITTED, oscillator_data
from trajectories import normal
from wpnode_ext.cli import main
from wpnode_ext.model.estimator import WPNODE, load
from wpnode_ext.model.files import read_states
from wpnode_ext.settings.config import FieldConfig, OptimConfig, TrainConfig, WeakForm
from wpnode_ext.training.run_folder import RunFolder

SIGMA = 0.05


def noisy(n: int = 500) -> torch.Tensor:
    clean = 10 + oscillator_data(n, torch.float64)
    return clean + SIGMA * normal(*clean.shape, seed=0)


def config() -> TrainConfig:
    return TrainConfig(
        method="weak",
        weak=WeakForm(p=4, ell=20, q=2),
        field=FieldConfig(kind="mlp", hidden=[8]),
        optim=OptimConfig(epochs=2, batch_size=64, refit_every=1),
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    return RunFolder(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def fitted(run) -> WPNODE:
    return WPNODE(config=config(), ensemble=4).fit(noisy(), DT, run=run)


def test_members_are_networks_whose_forecasts_diverge_from_one_another(
    fitted, tmp_path
) -> None:
    assert len(fitted.members_) == 4
    firsts = [next(m.parameters()) for m in (fitted.field_, *fitted.members_)]
    assert all(not torch.equal(firsts[0], other) for other in firsts[1:])
    u0, t = 10 + oscillator_data(10, torch.float64)[5], DT * torch.arange(60)
    ahead = fitted.forecast_ensemble(u0, t)
    spread = ahead.std.norm(dim=1)
    assert spread[0] == 0 and 0 < spread[1:15].mean() < spread[30:].mean()
    # Most of them are models of the oscillator; two epochs do not save every one.
    truth = 10 + oscillator_data(65, torch.float64)[5:65]
    assert (ahead.members - truth).abs().amax((1, 2)).median() < 0.5
    fitted.save(tmp_path / "model.pt")
    again = load(tmp_path / "model.pt")
    assert torch.equal(again.forecast_ensemble(u0, t).members, ahead.members)


def test_a_resumed_run_ends_with_the_same_members(fitted, run) -> None:
    assert "member 4 of 4" in run.log.read_text()
    # As if the run had been stopped before the last member.
    for file in run.member(4).iterdir():
        file.unlink()
    again = WPNODE(config=config(), ensemble=4).fit(noisy(), DT, run=run, resume=True)
    pairs = zip(again.members_, fitted.members_, strict=True)
    for one, other in pairs:
        assert torch.equal(next(one.parameters()), next(other.parameters()))


def test_networks_with_inputs_have_neither_states_nor_members() -> None:
    for asked in ({"refine": True}, {"ensemble": 2}):
        with pytest.raises(ValueError, match="for a network with inputs"):
            WPNODE(config=config(), **asked).fit(
                noisy(), DT, forcing=torch.zeros(500, 1)
            )


def test_the_report_of_a_network_shows_its_states_and_its_spread(
    tmp_path, monkeypatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", v=noisy(400).numpy(), dt=DT)
    command = ["train", "-q", "data.path=data.npz", *COMMAND_SETTINGS]
    quick = ["optim.epochs=2", "optim.refit_every=1"]
    assert main([*command, *quick, "refine=true", "ensemble=2"]) in FITTED
    stored = read_states(tmp_path / "runs/run/states.npz")
    assert stored.states.shape == stored.std.shape == (400, 2)
    assert stored.sigma.numpy() == pytest.approx(SIGMA, rel=0.25)
    forecast = ["forecast", "runs/run", "--state", "11,10", "--steps", "5"]
    assert main([*forecast, "--spread", "-o", "next.npz"]) == 0
    assert (np.load("next.npz")["std"][1:] > 0).all()
    assert main(["report", "runs/run", "--no-climate", "--starts", "4"]) == 0
    page = (tmp_path / "runs/run/report.html").read_text()
    assert "States refined with the field" in page and "error of refined" in page
    assert "noise variances" in page and "members of the ensemble" in page
    assert (tmp_path / "runs/run/figures/states.png").exists()
