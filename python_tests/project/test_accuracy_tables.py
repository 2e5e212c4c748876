"""Tables of the accuracy benchmarks: their rows, their bounds, the stored pages."""

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

from wpnode_ext import WPNODE
from wpnode_ext.baselines.comparison import write_rows
from wpnode_ext.baselines.protocol import Protocol, agree

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "accuracy"


@pytest.fixture
def script(monkeypatch):
    """Loads a script by its path: benchmarks are no package."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), str(FOLDER.parent), *sys.path])

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"accuracy_{name}", FOLDER / name)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_comparison_prints_every_row_of_the_paper(script, tmp_path) -> None:
    compare, paper = script("compare.py"), script("paper.py")
    row = {"method": "strong", "noise": 0.0, "draw": 0, "vpt": 11.0, "censored": 2}
    write_rows(tmp_path / "runs.csv", [row])
    options = {"strong": {"epochs": 7}}
    protocol = Protocol(system="kuramoto_sivashinsky", samples=50, options=options)
    agree(tmp_path, protocol, ["strong"])
    text = compare.table(tmp_path)
    assert "50 samples (the paper: 100000)" in text and "strong.epochs=7" in text
    assert "| strong | >= 11.00 (1) |" in text
    for label in paper.VPT["kuramoto_sivashinsky"]:
        assert f"| {label}, paper |" in text
    assert "| strong, T = 25, paper | 2.61 | 2.49 | 2.45 | 1.88 | 1.32 |" in text
    assert "| weak, paper | 3.49 | 3.82 | 1.97 | 2.42 | 0.44 |" in text
    for system, rows in paper.VPT.items():
        assert {"wp", "weak"} <= rows.keys(), system
        assert all(len(means) == 5 for means in rows.values())


def test_mean_with_a_forecast_valid_to_its_end_is_a_lower_bound(script) -> None:
    closed_form = script("closed_form.py")
    names = [x for x in closed_form.COLUMNS if x not in closed_form.TEXT]
    common = dict.fromkeys(names, math.nan) | dict.fromkeys(closed_form.TEXT, "")
    common |= {"variant": "features", "bounded": 1.0, "noise": 0.0, "vpt_time": 16.0}
    rows = [
        common | {"draw": 0.0, "vpt": 15.0, "censored": 3.0},
        common | {"draw": 1.0, "vpt": 14.0, "censored": 0.0},
        common | {"draw": 0.0, "vpt": 5.0, "censored": 0.0, "noise": 0.01},
    ]
    text = closed_form.table("lorenz63", rows, 50)
    assert "still valid at the horizon, 3 of 150 in all" in text
    assert "| **features** | >= 14.50 ± 6.35 | 5.00 |" in text
    assert "| - each draw | >= 15.00, 14.00 | 5.00 |" in text
    assert "| - in units of time | >= 16.00 | 16.00 |" in text
    without = closed_form.table("lorenz63", rows[1:], 50)
    assert "valid at the horizon" not in without


@pytest.mark.parametrize("system", ["lorenz63", "lorenz96", "ks"])
def test_page_of_the_closed_form_is_that_of_its_rows(script, system) -> None:
    closed_form, tables = script("closed_form.py"), script("tables.py")
    path = FOLDER / "results" / f"closed_form_{system}.csv"
    rows = tables.read_results(path, closed_form.TEXT)
    stored = path.with_suffix(".md").read_text(encoding="utf-8")
    made = closed_form.table(system, rows, 50)
    # The last line names the machine.
    assert made.splitlines()[:-1] == stored.splitlines()[:-1]


@pytest.mark.parametrize("system", ["lorenz63", "lorenz96", "ks"])
def test_settings_of_every_variant_exist(script, system) -> None:
    for arguments in script("closed_form.py").SYSTEMS[system].variants.values():
        assert WPNODE(**arguments).config.field.kind


def test_unfinished_jobs_are_those_without_a_row(script) -> None:
    tables = script("tables.py")
    jobs = [("a", 0.1, 0), ("a", 0.1, 1), ("b", 0.1, 0)]
    rows = [{"name": "a", "noise": 0.1, "draw": 0.0}]
    assert tables.unfinished(jobs, rows, ("name", "noise", "draw")) == jobs[1:]
