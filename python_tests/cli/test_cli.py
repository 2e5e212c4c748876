"""The command: a tour from data to report, and its error messages."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from training_cases import COMMAND_SETTINGS as SMALL
from training_cases import DT, FITTED, oscillator_data
from wpnode_ext.cli import demo, main
from wpnode_ext.model.estimator import load
from wpnode_ext.training.log import read_metrics
from wpnode_ext.weak.noise import estimate_noise


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The oscillator as an .npz file."""
    path = tmp_path / "data.npz"
    np.savez(path, v=10 + oscillator_data(500, torch.float64).numpy(), dt=DT)
    return path


def train(data: Path, *more: str) -> int:
    return main(["train", "-q", f"data.path={data}", *SMALL, *more])


def test_a_tour_from_simulation_to_report(folder, capsys) -> None:
    pytest.importorskip("matplotlib")
    simulate = ["simulate", "lorenz63", "-n", "700", "--noise", "0.05", "-o", "l.npz"]
    assert main([*simulate, "--test", "test.npz", "--test-samples", "300"]) == 0
    with np.load("l.npz") as arrays:
        assert arrays["v"].shape == (700, 3)
        sigma = (arrays["v"] - arrays["u"]).std()
        assert sigma == pytest.approx(arrays["sigma"][0], rel=0.05)
    assert "noise: 5 % of the RMS of the signal" in capsys.readouterr().out
    assert main(["noise", "l.npz"]) == 0
    text = capsys.readouterr().out
    estimates = [float(row.split()[1]) for row in text.splitlines()[4:]]
    assert estimates == pytest.approx([sigma] * 3, rel=0.2)
    share = re.match(r"noise: ([\d.]+) % of the RMS of the signal", text)
    assert share is not None and float(share[1]) == pytest.approx(5, rel=0.15)
    assert main(["tune", "l.npz", "-o", "table.csv", "--figure", "f/j.png"]) == 0
    assert Path("f/j.png").read_bytes().startswith(b"\x89PNG")
    last = capsys.readouterr().out.splitlines()[-1]
    chosen = re.fullmatch(r"weak.p=\d+ weak.ell=\d+ weak.q=\d+", last)
    assert chosen is not None
    with open("table.csv", newline="") as file:
        risks = [float(row["risk"]) for row in csv.DictReader(file)]
    assert risks and risks[0] <= 1.1 * min(risks)
    settings = ["data.path=l.npz", "name=one", "optim.epochs=2", *last.split()]
    assert main(["train", "-q", "method=weak", *settings]) in FITTED
    assert main(["forecast", "runs/one", "--data", "l.npz", "--steps", "20"]) == 0
    assert main(["forecast", "runs/one", "--state", "1,2,20", "-o", "f.csv"]) == 0
    with open("f.csv") as file:
        assert file.readline().strip() == "t,u0,u1,u2"
    capsys.readouterr()
    judge = ["evaluate", "runs/one", "test.npz", "--lyapunov", "0.91", "--json"]
    assert main(judge) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["forecasts"]["starts"] == 30
    assert numbers["forecasts"]["lyapunov_exponent"] == 0.91
    assert set(numbers["climate"]["solvers"]) == {
        "dopri5",
        "bosh3",
        "euler",
        "midpoint",
        "rk4",
    }
    assert numbers["goodness_of_fit"]["ratio"] > 0
    page = ["report", "runs/one", "--reference", "test.npz", "--no-climate"]
    assert main(page) == 0
    page = Path("runs/one/report.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    assert "Reference: test.npz." in page and "optim.epochs" in page
    assert "<script" not in page and "http://" not in page and "https://" not in page


def test_without_a_reference_the_held_out_data_judge(folder, data, capsys) -> None:
    assert train(data, "name=one", "optim.epochs=1") in FITTED
    capsys.readouterr()
    assert main(["evaluate", "runs/one", "--starts", "3", "--no-climate"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Reference: the held-out data after the filter")
    assert "valid prediction time (units of time)" in text
    assert "expected of noise alone" in text and "Climate" not in text
    assert main(["evaluate", "runs/one/model.pt"]) == 2
    assert "`data` must name a reference file" in capsys.readouterr().err


def test_the_run_folder_holds_all_its_files(folder, data) -> None:
    assert train(data, "name=one", "optim.epochs=2") in FITTED
    run = folder / "runs" / "one"
    names = {p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file()}
    assert names == {
        ".lock",
        "config.yaml",
        "env.json",
        "metrics.csv",
        "log.txt",
        "model.pt",
        "checkpoints/last.pt",
        "checkpoints/best.pt",
    }
    text = (run / "config.yaml").read_text()
    assert "epochs: 2" in text and "patience: 200" in text  # resolved
    assert load(run / "model.pt").dt_ == pytest.approx(DT)


def test_a_run_is_not_overwritten_unless_asked(folder, data, capsys) -> None:
    assert train(data, "name=one", "optim.epochs=1") in FITTED
    assert train(data, "name=one", "optim.epochs=1") == 1
    assert "holds a run already" in capsys.readouterr().err
    assert train(data, "name=one", "optim.epochs=1", "--overwrite") in FITTED


def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(folder, data) -> None:
    assert train(data, "name=whole", "optim.epochs=6") in FITTED
    assert train(data, "name=parts", "optim.epochs=3") in FITTED
    assert main(["train", "-q", "--resume", "runs/parts", "optim.epochs=6"]) in FITTED
    models = [load(f"runs/{name}/model.pt") for name in ("whole", "parts")]
    whole, parts = (m.field_.state_dict() for m in models)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    rows = read_metrics("runs/parts/metrics.csv")
    assert [row["epoch"] for row in rows] == list(range(6))


def test_dry_run_prints_the_settings_and_writes_nothing(folder, data, capsys) -> None:
    Path("run.yaml").write_text(f"method: weak\nname: dry\ndata: {{path: {data}}}\n")
    assert main(["train", "run.yaml", "lam=0.25", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"lam +0.25", text) and "500 samples, 0.05 apart" in text
    ell = int(re.search(r"weak.ell +(\d+)", text)[1])
    assert ell > 0  # chosen from the data
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["train", "weak.el=4"], 2, "Did you mean `weak.ell`?"),
        (["train", "method=weak"], 2, "`data.path` must name a file"),
        (["train", "absent.yaml"], 1, "there is no settings file absent.yaml"),
        (["train", "data.path=absent.npz"], 1, "there is no file absent.npz"),
        (["train", "--resume", "absent"], 1, "holds no run"),
        (["noise", "absent.csv"], 1, "there is no file absent.csv"),
        (["evaluate", "absent.pt", "x.npz"], 1, "there is no file absent.pt"),
        (["report", "absent"], 1, "holds no run"),
        (["simulate", "lorenz63", "-n", "9", "-o", "x.txt"], 2, "must end in .npz"),
        (["simulate", "lorenz63", "ro=9", "-o", "x.csv"], 2, "Did you mean `rho`?"),
        (["simulate", "lorenz63", "rho=x", "-o", "x.csv"], 2, "`rho` must be a number"),
    ],
)
def test_errors_have_a_reason_and_an_exit_code(
    folder, capsys, command, code, message
) -> None:
    assert main(command) == code
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.startswith("wpnode: error:")
    assert "Traceback" not in captured.err


def test_files_that_are_not_models_are_refused(folder, data, capsys) -> None:
    assert main(["evaluate", str(data), str(data)]) == 1
    assert "not a file of wpnode_ext" in capsys.readouterr().err


def test_wrong_arguments_end_with_the_usage(capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["simulate", "pendulum", "-o", "x.npz"])
    assert caught.value.code == 2
    assert "invalid choice" in capsys.readouterr().err


COMMANDS = "demo simulate noise tune train forecast evaluate report info".split()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 4


def test_help_of_train_lists_every_setting_with_its_default(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    for line in ("optim.lr=0.002", "lam=0.5", "strong.solver=dopri5", "data.path="):
        assert line in text


def test_info_prints_versions_and_the_build(capsys) -> None:
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["torch"] == torch.__version__
    assert main(["info"]) == 0


def test_the_module_runs_as_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wpnode_ext", "--version"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout.startswith("wpnode_ext ")


def test_the_demo_writes_a_report(folder, capsys, monkeypatch) -> None:
    threads, seen = torch.get_num_threads(), []

    def estimate(v):
        seen.append(torch.get_num_threads())
        return estimate_noise(v)

    monkeypatch.setattr(demo, "estimate_noise", estimate)
    pytest.importorskip("matplotlib")
    assert main(["demo", "--fast"]) == 0
    text = capsys.readouterr().out
    assert seen == [1] and torch.get_num_threads() == threads
    assert "forecasts stay right for" in text and "runs/demo/report.html" in text
    assert Path("runs/demo/report.html").read_text().count("base64,") >= 5
