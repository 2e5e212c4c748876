"""The comparison: methods by name, one protocol, rows that are not repeated."""

import math
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
import torch

from wpnode_ext import WPNODE
from wpnode_ext.baselines import METHODS, MPNODE, RAFDA, DeepSkip, make_method
from wpnode_ext.baselines.comparison import (
    Row,
    markdown,
    read_rows,
    run_job,
    summary,
    without_failures,
    write_rows,
)
from wpnode_ext.baselines.protocol import Job, Protocol
from wpnode_ext.cli.compare import settings_of
from wpnode_ext.cli.main import main
from wpnode_ext.data import make_series
from wpnode_ext.figures import comparison
from wpnode_ext.training import TrainResult

DT = 0.05


def oscillation(n: int) -> torch.Tensor:
    t = DT * torch.arange(n, dtype=torch.float64)
    return torch.stack([t.cos(), -t.sin()], 1)


class TestMethods:
    def test_every_name_gives_a_model(self) -> None:
        for name in METHODS:
            assert hasattr(make_method(name, seed=3), "fit")

    def test_systems_bring_their_settings(self) -> None:
        ring = make_method("deepskip", system="lorenz96")
        assert isinstance(ring, DeepSkip)
        assert (ring.group, ring.reach) == (2, 2)
        wide = make_method("mp_node_persistent", system="kuramoto_sivashinsky")
        assert isinstance(wide, MPNODE)
        assert (wide.hidden, wide.states) == ((400, 400), "persistent")
        own = make_method("weak", system="lorenz63", seed=5)
        assert isinstance(own, WPNODE)
        assert (own.config.weak.ell, own.config.seed) == (50, 5)
        assert own.config.method == "weak"

    def test_systems_bring_settings_of_the_closed_form(self) -> None:
        ring = make_method("closed_form", system="lorenz96")
        waves = make_method("closed_form", system="kuramoto_sivashinsky")
        plain = make_method("closed_form", system="lorenz63")
        assert isinstance(ring, WPNODE)
        assert isinstance(waves, WPNODE)
        assert isinstance(plain, WPNODE)
        # Random features: a library would contain the answer.
        assert ring.config.field.kind == "ring"
        assert astuple(ring.config.weak)[:3] == (8, 80, 2)
        assert waves.config.field.kind == "library"
        assert waves.config.closed_form.coordinates == "fourier"
        assert waves.config.closed_form.symmetry == "shifts + odd_mirror"
        assert astuple(waves.config.weak)[:3] == (16, 60, 2)
        assert plain.config == WPNODE(method="closed_form", seed=0).config

    def test_options_replace_settings_of_the_system(self) -> None:
        model = make_method("rafda", system="lorenz96", options={"group": None})
        assert isinstance(model, RAFDA)
        assert model.group is None
        own = {"field": "ring_library", "ell": 60}
        ring = make_method("closed_form", system="lorenz96", options=own)
        assert isinstance(ring, WPNODE)
        assert ring.config.field.kind == "ring_library"
        assert astuple(ring.config.weak)[:3] == (8, 60, 2)
        with pytest.raises(ValueError, match="no setting 'wide'"):
            make_method("deepskip", options={"wide": 3})
        with pytest.raises(ValueError, match="`methods` must be one of wp, weak"):
            make_method("magic")


class TestRun:
    def test_same_data_for_all_methods(self) -> None:
        protocol = Protocol(system="lorenz63", samples=60, beyond=40)
        one, truth = protocol.data(Job("deepskip", 0.05, 1))
        other, _ = protocol.data(Job("rafda", 0.05, 1))
        clean, _ = protocol.data(Job("rafda", 0.0, 1))
        assert torch.equal(one.v, other.v)
        noise = one.v - clean.v
        size = noise.square().mean().sqrt() / clean.v.square().mean().sqrt()
        assert size == pytest.approx(0.05, rel=0.2)
        assert truth.n_samples == 40

    def test_missing_values_stay_missing_under_noise(self) -> None:
        v = oscillation(800)
        v[100:103] = math.nan
        protocol = Protocol(series=make_series(v, dt=DT))
        noisy, reference = protocol.data(Job("rfm", 0.1, 0))
        assert noisy.missing.nonzero().flatten().tolist() == [100, 101, 102]
        assert noisy.n_samples + reference.n_samples == 800

    def test_row_has_all_numbers(self) -> None:
        series = make_series(oscillation(800), dt=DT)
        protocol = Protocol(series=series, starts=4, horizon=2.0)
        row = run_job(Job("skiprfm", 0.0, 0), protocol)
        assert row.get("failure") is None
        assert row["vpt"] > 1.5
        assert row["evaluations"] > 0
        assert 0 < row["censored"] <= 4
        assert all(math.isfinite(row[name]) for name in ("kl", "cpu_seconds", "epochs"))

    def test_a_run_that_a_signal_ended_has_no_row(self, monkeypatch) -> None:
        def stopped(self: WPNODE, series: object) -> WPNODE:
            self.result_ = TrainResult(3, 1, 0.5, "signal", signal=15)
            return self

        monkeypatch.setattr(WPNODE, "fit", stopped)
        protocol = Protocol(series=make_series(oscillation(200), dt=DT))
        with pytest.raises(KeyboardInterrupt):
            run_job(Job("strong", 0.0, 0), protocol)

    def test_a_failure_is_a_row(self) -> None:
        series = make_series(oscillation(400), dt=DT)
        options = {"mp_node": {"windows": 100, "steps": 10, "epochs": 1}}
        protocol = Protocol(series=series, starts=2, horizon=1.0, options=options)
        row = run_job(Job("mp_node", 0.0, 0), protocol)
        assert "samples of a sub-trajectory" in row["failure"]


class TestTable:
    ROWS = (
        {"method": "a", "noise": 0.1, "draw": 0, "vpt": 1.0, "seconds": 2.0},
        {"method": "a", "noise": 0.1, "draw": 1, "vpt": 3.0, "seconds": 4.0},
        {"method": "b", "noise": 0.1, "draw": 0, "failure": "ValueError: no, not"},
    )

    def test_rows_come_back(self, tmp_path: Path) -> None:
        path = tmp_path / "folder" / "runs.csv"
        write_rows(path, self.ROWS)
        found = read_rows(path)
        assert [row["vpt"] for row in found[:2]] == [1.0, 3.0]
        assert math.isnan(found[2]["vpt"])
        assert found[2]["failure"] == "ValueError: no, not"
        assert read_rows(tmp_path / "none.csv") == []
        assert [p.name for p in path.parent.iterdir()] == ["runs.csv"]

    def test_means_over_draws(self, tmp_path: Path) -> None:
        write_rows(tmp_path / "runs.csv", self.ROWS)
        first, second = summary(read_rows(tmp_path / "runs.csv"))
        assert (first["vpt"], first["seconds"], first["draws"]) == (2.0, 3.0, 2)
        assert first["spread"] == pytest.approx(2**0.5)
        assert second["draws"] == 0
        assert second["failure"] == "ValueError: no, not"

    def test_failures_can_be_left_out(self) -> None:
        assert without_failures(self.ROWS) == list(self.ROWS[:2])

    def test_settings_by_method(self) -> None:
        given = ["a.width=10", "a.name=word", "b.hidden=(3, 4)"]
        assert settings_of(given) == {
            "a": {"width": 10, "name": "word"},
            "b": {"hidden": (3, 4)},
        }
        with pytest.raises(ValueError, match="METHOD.KEY=VALUE"):
            settings_of(["width=3"])


class TestCommand:
    def test_a_second_call_runs_only_new_jobs(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        data, out = tmp_path / "data.npz", tmp_path / "out"
        np.savez(data, v=oscillation(800).numpy(), dt=DT)
        arguments = ["compare", str(data), "--methods", "skiprfm", "--noise", "0"]
        arguments += ["--starts", "3", "--horizon", "2", "-o", str(out)]
        arguments += ["--set", "skiprfm.width=40", "--set", "skiprfm.ridge=1e-8"]
        assert main(arguments) == 0
        assert "1 runs to do, 0 in" in capsys.readouterr().out
        assert (out / "table.png").exists()
        assert "| skiprfm | 0 % | 1 |" in (out / "table.md").read_text()
        arguments[3] = "skiprfm,rfm"
        assert main([*arguments, "--set", "rfm.ridge=1e-8"]) == 0
        text = capsys.readouterr().out
        assert "1 runs to do, 1 in" in text
        assert "rfm" in text

    def test_wrong_names_are_refused(self, tmp_path: Path, capsys) -> None:
        with pytest.raises(SystemExit):
            main(["compare", "lorenz63", "--methods", "magic"])
        assert "`methods` must be one of" in capsys.readouterr().err
        assert main(["compare", str(tmp_path / "none.csv")]) == 1

    def test_processes_give_the_same_rows(self, tmp_path: Path) -> None:
        data = tmp_path / "data.npz"
        np.savez(data, v=oscillation(600).numpy(), dt=DT)
        found = []
        for workers in ("1", "2"):
            out = tmp_path / workers
            arguments = ["compare", str(data), "--methods", "rfm,skiprfm"]
            arguments += ["--noise", "0", "--starts", "3", "--horizon", "2"]
            for method in ("rfm", "skiprfm"):
                arguments += ["--set", f"{method}.width=20"]
                arguments += ["--set", f"{method}.ridge=1e-8"]
            assert main([*arguments, "--workers", workers, "-o", str(out)]) == 0
            rows = read_rows(out / "runs.csv")
            same = ("method", "noise", "draw", "vpt", "vpt_std", "kl", "evaluations")
            found.append(sorted(tuple(row[name] for name in same) for row in rows))
        assert len(found[0]) == 2
        assert found[0] == found[1]

    def test_a_reference_file_judges_forecasts(self, tmp_path: Path) -> None:
        data, truth = tmp_path / "data.npz", tmp_path / "truth.npz"
        np.savez(data, v=oscillation(600).numpy(), dt=DT)
        np.savez(truth, v=oscillation(900)[600:].numpy(), dt=DT)
        arguments = ["compare", str(data), "--reference", str(truth)]
        arguments += ["--methods", "skiprfm", "--starts", "3", "--horizon", "2"]
        arguments += ["--set", "skiprfm.ridge=1e-8", "-o", str(tmp_path)]
        assert main(arguments) == 0
        (row,) = read_rows(tmp_path / "runs.csv")
        assert (row["noise"], row["failure"]) == (0.0, "")
        assert row["vpt"] > 1.5


class TestPage:
    def table(self, tmp_path: Path) -> list[Row]:
        rows = [row | {"vpt_time": 2.0, "kl": 0.1} for row in TestTable.ROWS[:2]]
        write_rows(tmp_path / "runs.csv", [*rows, *TestTable.ROWS[2:]])
        return summary(read_rows(tmp_path / "runs.csv"))

    def test_the_page_explains_its_numbers(self, tmp_path: Path) -> None:
        protocol = Protocol(
            system="lorenz63", samples=500, lyapunov_exponent=0.91, threshold=0.3
        )
        text = markdown(self.table(tmp_path), "lorenz63", protocol)
        for part in (
            "500 samples",
            "global_rms",
            "pooled error",
            "exceeds 0.3, maximal Lyapunov exponent 0.91",
            "30 starts",
            "trajectory 1000 + draw, noise 2000 + draw, method 3000 + draw",
            "| a | 10 % | 2 | 2.00 +- 1.41 | 2 | 0.1 |",
        ):
            assert part in text

    def test_the_page_names_failures_and_lower_bounds(self, tmp_path: Path) -> None:
        protocol, path = Protocol(system="lorenz63", samples=500), tmp_path / "runs.csv"
        write_rows(path, [row | {"censored": row["draw"]} for row in TestTable.ROWS])
        text = markdown(summary(read_rows(path)), "lorenz63", protocol)
        assert "| a | 10 % | 2 | >= 2.00 +- 1.41 |" in text
        assert "still valid at their end" in text
        assert "- b at 10 %: ValueError: no, not" in text
        # Files of earlier releases do not tell.
        lines = [line.split(",") for line in path.read_text().splitlines()]
        place = lines[0].index("censored")
        older = [",".join(line[:place] + line[place + 1 :]) for line in lines]
        path.write_text("\n".join(older))
        assert math.isnan(read_rows(path)[0]["censored"])
        text = markdown(summary(read_rows(path)), "lorenz63", protocol)
        assert "| a | 10 % | 2 | 2.00 +- 1.41 |" in text

    def test_the_figure_shows_every_method_that_succeeded(self, tmp_path) -> None:
        left, right = comparison(self.table(tmp_path), "Lyapunov times").axes
        label = "valid prediction time (Lyapunov times)"
        assert (left.get_xlabel(), left.get_ylabel()) == ("noise", label)
        assert (right.get_xlabel(), right.get_ylabel()) == (
            "seconds of training",
            label,
        )
        assert right.get_xscale() == "log"
        assert [text.get_text() for text in left.get_xticklabels()] == ["10 %"]
        bars = left.containers
        assert [bar.get_label() for bar in bars] == ["a", "b"]
        points = [bar.lines[0].get_xydata().tolist() for bar in bars]
        assert points == [[[0.0, 2.0]], []]
        (segment,) = bars[0].lines[2][0].get_segments()
        assert segment[:, 1].tolist() == pytest.approx([2 - 2**0.5, 2 + 2**0.5])
        assert right.lines[0].get_xydata().tolist() == [[3.0, 2.0]]
