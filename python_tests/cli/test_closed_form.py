"""The closed form from the command: run folder, forecast, evaluation, report."""

import json

import numpy as np
import pytest
import torch

from training_cases import DT, oscillator_data
from wpnode_ext.cli import main
from wpnode_ext.model.estimator import load
from wpnode_ext.model.files import read_states


def test_a_run_of_the_default_method_goes_from_data_to_report(
    tmp_path, monkeypatch, capsys
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    clean = 10 + oscillator_data(900, torch.float64).numpy()
    rng = np.random.default_rng(0)
    noisy = clean + 0.05 * rng.normal(size=clean.shape)
    np.savez("data.npz", v=noisy[:700], dt=DT)
    np.savez("test.npz", v=clean[700:], dt=DT)
    settings = ["field.kind=library", "weak.p=4", "weak.ell=30", "weak.q=2"]
    command = ["train", "-q", "data.path=data.npz", *settings]
    assert main([*command, "ensemble=5", "name=one"]) == 0
    text = capsys.readouterr().out
    assert "closed_form (the field 'library' is linear" in text
    written = (tmp_path / "runs/one/config.yaml").read_text()
    assert "method: closed_form" in written and "ensemble: 5" in written
    stored = read_states(tmp_path / "runs/one/states.npz")
    error = (stored.states.numpy() - clean[:700]).std()
    assert error < 0.02 and stored.sigma.numpy() == pytest.approx(0.05, rel=0.15)
    model = load("runs/one/model.pt")
    assert len(model.members_) == 5 and "is linear in" in model.why_

    forecast = ["forecast", "runs/one", "--state", "11,10", "--steps", "5"]
    assert main([*forecast, "--spread", "-o", "next.csv"]) == 0
    table = np.genfromtxt("next.csv", delimiter=",", names=True)
    assert table.dtype.names == ("t", "u0", "u1", "u0_std", "u1_std")
    assert (table["u0_std"][1:] > 0).all() and table["u0_std"][-1] < 0.05
    forecast = ["forecast", "runs/one", "--data", "data.npz", "--steps", "5"]
    ends = {}
    for name, words in {"raw": [], "estimated": ["--estimate", "--spread"]}.items():
        assert main([*forecast, *words, "-o", f"{name}.npz"]) == 0
        with np.load(f"{name}.npz") as arrays:
            ends[name] = dict(arrays)
    np.testing.assert_allclose(ends["raw"]["u"][0], noisy[699])
    error = np.abs(ends["estimated"]["u"] - clean[699:705]).max()
    assert error < 0.5 * np.abs(ends["raw"]["u"] - clean[699:705]).max()
    assert ends["estimated"]["std"].shape == (6, 2)
    assert (ends["estimated"]["std"] > 0).all()
    assert main(["forecast", "runs/one", "--state", "11,10", "--estimate"]) == 2
    assert "`--estimate` must come with" in capsys.readouterr().err
    evaluate = ["evaluate", "runs/one", "test.npz", "--no-climate", "--json"]
    capsys.readouterr()
    assert main(evaluate) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["forecasts"]["vpt"] > 0.9 * numbers["forecasts"]["horizon"]
    assert main(["report", "runs/one", "--reference", "test.npz", "--no-climate"]) == 0
    page = (tmp_path / "runs/one/report.html").read_text()
    assert "States refined with the field" in page
    assert "Method: closed_form" in page and "rounds of smoothing" in page
    assert (tmp_path / "runs/one/figures/states.png").exists()
    assert "<td>members of the ensemble</td><td>5</td>" in page.replace("\n", "")
    assert "within their 90% interval" in page and "Bands hold 90%" in page
    # A run that is resumed is solved again, to the same bits.
    assert main(["train", "-q", "--resume", "runs/one"]) == 0
    again = load("runs/one/model.pt")
    heads = [next(one.field_.parameters()) for one in (again, model)]
    assert torch.equal(*heads)


def test_settings_have_the_names_of_the_python_arguments(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", v=oscillator_data(400, torch.float64).numpy(), dt=DT)
    command = ["train", "-q", "data.path=data.npz", "field.kind=library"]
    weak = ["weak.p=4", "weak.ell=30", "weak.q=2"]
    assert main([*command, *weak, "refine=false", "ensemble=3"]) == 0
    model = load("runs/run/model.pt")
    assert model.config_.refine is False and len(model.members_) == 3
    assert not (tmp_path / "runs/run/states.npz").exists()
    capsys.readouterr()
    assert main([*command, "closed_form.ensemble=3", "name=old"]) == 2
    assert "Did you mean `ensemble`?" in capsys.readouterr().err
    assert main([*command, "ensemble=-1", "name=few"]) == 2
    assert "`ensemble` must be >= 0; got -1" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    assert "  refine=None" in text and "  ensemble=0" in text


def test_a_dry_run_prints_the_chosen_method(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", v=oscillator_data(400, torch.float64).numpy(), dt=DT)
    assert main(["train", "--dry-run", "data.path=data.npz"]) == 0
    text = capsys.readouterr().out
    assert "closed_form" in text and "features" in text
