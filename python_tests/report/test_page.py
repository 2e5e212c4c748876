"""The data in a report: short, constant or incomplete series."""

import re

import numpy as np
import pytest
import torch

from training_cases import COMMAND_SETTINGS as SMALL
from training_cases import DT, FITTED, oscillator_data
from trajectories import normal
from wpnode_ext.cli import main
from wpnode_ext.data import Series, make_series
from wpnode_ext.report.html import Page
from wpnode_ext.report.page import show_data
from wpnode_ext.training.run_folder import RunFolder
from wpnode_ext.weak.noise import estimate_noise


def page_of(series: Series, tmp_path) -> str:
    page = Page("data")
    show_data(page, series, None, None, RunFolder(tmp_path))
    return page.render()


def noisy(n: int = 2000) -> torch.Tensor:
    u = oscillator_data(n, torch.float64)
    return u + 0.01 * normal(*u.shape, seed=0)


def share(text: str) -> float:
    found = re.search(r"alone: ([\d.]+) % of the RMS of the signal", text)
    assert found is not None
    return float(found[1])


def test_the_page_notes_series_too_short_for_a_noise_estimate(tmp_path) -> None:
    text = page_of(make_series([noisy(12), noisy(15)], dt=DT), tmp_path)
    assert "Noise was not estimated: `v` must have 17 consecutive" in text


def test_a_run_on_a_short_series_has_a_report(folder) -> None:
    pytest.importorskip("matplotlib")
    np.savez("short.npz", v=noisy(16).numpy(), dt=DT)
    settings = [*SMALL, "weak.ell=4", "weak.p=2", "optim.epochs=1", "name=short"]
    assert main(["train", "-q", "data.path=short.npz", *settings]) in FITTED
    assert main(["report", "runs/short", "--no-climate"]) == 0
    assert "Noise was not estimated" in (folder / "runs/short/report.html").read_text()


def test_the_noise_estimate_names_the_longest_stretch() -> None:
    with pytest.raises(ValueError, match="17 consecutive samples.*got 15 in a row"):
        estimate_noise(torch.randn(27, 2), lengths=[12, 15])


def test_a_component_that_does_not_vary_has_no_share_of_noise(tmp_path) -> None:
    v = noisy()
    # Rounding leaves the mean of a tenth a little off.
    still = torch.cat([v, torch.full((len(v), 1), 0.1, dtype=v.dtype)], 1)
    text = page_of(make_series(still, dt=DT), tmp_path)
    assert re.search(r"<td>u1</td><td>[\d.]+</td><td>[\d.]+ %</td>", text)
    assert re.search(r"<td>u2</td><td>[\de.-]+</td><td>-</td>", text)
    text = page_of(make_series(torch.ones(100, 2), dt=DT), tmp_path)
    assert "no component varies" in text


def test_missing_values_do_not_count(tmp_path) -> None:
    v = noisy()
    whole = share(page_of(make_series(v, dt=DT), tmp_path))
    v[500:505] = float("nan")
    assert share(page_of(make_series(v, dt=DT), tmp_path)) == pytest.approx(whole, 0.1)
