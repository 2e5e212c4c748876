"""Tables of the accuracy benchmarks: the paper's rows, and means that are bounds."""

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

from wpnode_ext.baselines.comparison import write_rows
from wpnode_ext.baselines.protocol import Protocol
from wpnode_ext.baselines.protocol_file import agree

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "accuracy"


@pytest.fixture
def script(monkeypatch):
    """Scripts are no package: each is read by its path."""

    def read(name: str) -> ModuleType:
        monkeypatch.setattr(sys, "path", [str(FOLDER), str(FOLDER.parent), *sys.path])
        spec = importlib.util.spec_from_file_location(f"accuracy_{name}", FOLDER / name)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return read


def test_every_row_of_the_paper_is_printed(script, tmp_path) -> None:
    compare = script("compare.py")
    row = {"method": "strong", "noise": 0.0, "draw": 0, "vpt": 11.0, "censored": 2}
    write_rows(tmp_path / "runs.csv", [row])
    options = {"strong": {"epochs": 7}}
    protocol = Protocol(system="kuramoto_sivashinsky", samples=50, options=options)
    agree(tmp_path, protocol, ["strong"])
    text = compare.table(tmp_path)
    assert "50 samples (the paper: 100000)" in text and "strong.epochs=7" in text
    assert "| strong | >= 11.00 (1) |" in text
    for label in compare.PAPER["kuramoto_sivashinsky"]:
        assert f"| {label}, paper |" in text
    assert "| strong, T = 25, paper | 2.61 | 2.49 | 2.45 | 1.88 | 1.32 |" in text
    assert "| weak, paper | 3.49 | 3.82 | 1.97 | 2.42 | 0.44 |" in text
    for system, rows in compare.PAPER.items():
        assert {"wp", "weak"} <= rows.keys(), system
        assert all(len(means) == 5 for means in rows.values())


def test_means_of_forecasts_that_ended_before_they_failed_are_bounds(script) -> None:
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
