"""Figures show the numbers and marks that they document."""

import math
import sys

import numpy as np
import pytest
import torch

from wpnode_ext import figures
from wpnode_ext.weak.selection import Candidate, WeakFormChoice

pytest.importorskip("matplotlib")
from matplotlib.figure import Figure  # noqa: E402


@pytest.fixture
def paths() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    t = torch.linspace(0, 5, 60, dtype=torch.float64)
    u = torch.stack([torch.sin(t + k) for k in range(8)], -1).reshape(60, 4, 2)
    return t, u + 0.1, u


def drawn(figure: Figure) -> None:
    """Rendering fails where an array has the wrong length or kind."""
    figure.canvas.draw()


def test_forecasts_are_drawn_by_member_and_component(paths) -> None:
    t, u_hat, u = paths
    figure = figures.forecast(
        t,
        u_hat,
        u,
        valid_until=torch.tensor([1.0, 2.0, 3.0, 4.0]),
        names=["x", "y"],
        band=(u_hat - 0.1, u_hat + 0.1),
    )
    drawn(figure)
    area = figure.axes[1].collections[0].get_paths()[0].vertices
    assert area[:, 1].max() == pytest.approx(u_hat[:, 1, 0].max().item() + 0.1)
    # Three of the four members, two components.
    assert len(figure.axes) == 6
    axes = figure.axes[1]
    truth, path, mark = axes.lines
    np.testing.assert_array_equal(truth.get_ydata(), u[:, 1, 0])
    np.testing.assert_array_equal(path.get_ydata(), u_hat[:, 1, 0])
    assert mark.get_xdata()[0] == 2.0
    assert figure.axes[0].get_ylabel() == "x"


def test_a_forecast_that_runs_away_does_not_flatten_the_truth(paths) -> None:
    t, u_hat, u = paths
    u_hat[30:] = 1e9
    u_hat[50:] = math.nan
    figure = figures.forecast(t, u_hat, u)
    drawn(figure)
    assert max(abs(y) for y in figure.axes[0].get_ylim()) < 2


def test_a_single_trajectory_needs_no_member_axis(paths) -> None:
    t, u_hat, u = paths
    assert len(figures.forecast(t, u_hat[:, 0], u[:, 0]).axes) == 2
    with pytest.raises(ValueError, match=r"shape \[T, D\] or \[T, B, \*state\]"):
        figures.forecast(t, u_hat[:, 0, 0], u[:, 0, 0])


def test_space_time_panels_are_truth_forecast_and_difference() -> None:
    u = torch.randn(40, 16, dtype=torch.float64)
    figure = figures.space_time(torch.arange(40), u + 2, u, valid_until=7.0)
    drawn(figure)
    images = [axes.images[0].get_array() for axes in figure.axes[:3]]
    np.testing.assert_allclose(images[0], u.T)
    np.testing.assert_allclose(images[2], 2.0)
    limits = [axes.images[0].get_clim() for axes in figure.axes[:3]]
    assert len(set(limits)) == 1
    assert figure.axes[1].lines[0].get_xdata()[0] == 7.0


def test_errors_grow_on_a_logarithmic_axis_beside_the_threshold(paths) -> None:
    t = paths[0]
    curves = {"model": t**2, "unchanged state": t, "other": 3 * t}
    figure = figures.error_growth(t, curves, threshold=0.3)
    drawn(figure)
    axes = figure.axes[0]
    assert axes.get_yscale() == "log"
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["model", "unchanged state", "other", "threshold"]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), t[1:] ** 2)


def test_attractors_share_the_range_of_the_truth(paths) -> None:
    _, u_hat, u = paths
    figure = figures.attractor(1e6 * u_hat, u)
    drawn(figure)
    truth, model = figure.axes
    assert truth.get_xlim() == model.get_xlim()
    assert max(map(abs, truth.get_xlim())) < 2
    assert len(truth.lines[0].get_xdata()) == 60 * 4


def test_a_single_component_is_drawn_against_the_next_sample() -> None:
    u = torch.arange(10, dtype=torch.float64)[:, None]
    line = figures.attractor(u, u).axes[0].lines[0]
    np.testing.assert_array_equal(line.get_ydata(), line.get_xdata() + 1)


def test_densities_integrate_to_one() -> None:
    u = torch.randn(2000, 2, dtype=torch.float64)
    figure = figures.densities(2 * u, u, names=["a", "b"])
    drawn(figure)
    assert [axes.get_xlabel() for axes in figure.axes] == ["a", "b"]
    for axes in figure.axes:
        truth, model = axes.lines
        for line in (truth, model):
            area = np.trapezoid(line.get_ydata(), line.get_xdata())
            assert area == pytest.approx(1.0, abs=1e-6)
        assert truth.get_ydata().max() > 1.5 * model.get_ydata().max()


def test_joint_densities_have_a_panel_each() -> None:
    u = torch.randn(200, 16, dtype=torch.float64)
    figure = figures.densities(u, u, length=10.0)
    drawn(figure)
    assert [axes.get_title() for axes in figure.axes] == ["truth", "model"]


def test_training_curves_take_rows_with_and_without_validation() -> None:
    rows = [
        {"epoch": n, "loss": 2.0**-n, "weak": 2.0**-n, "strong": 0.0, "lr": 1e-3}
        for n in range(6)
    ]
    rows[5]["val_error"] = 0.25
    figure = figures.training_curves(rows)
    drawn(figure)
    loss, validation, rate = figure.axes
    assert [line.get_label() for line in loss.lines] == ["loss", "weak"]
    assert list(loss.lines[0].get_xdata()) == [1, 2, 3, 4, 5, 6]
    assert list(validation.lines[0].get_ydata()) == [0.25]
    assert rate.get_yscale() == "log"


@pytest.mark.parametrize("known", [True, False])
def test_the_filter_is_drawn_before_and_after(known: bool) -> None:
    v = torch.randn(30, 4, dtype=torch.float64)
    figure = figures.filtering(torch.arange(30), v, 0.5 * v, 0.4 * v if known else None)
    drawn(figure)
    assert len(figure.axes) == 3
    labels = [line.get_label() for line in figure.axes[0].lines]
    assert labels == ["data", "filtered"] + ["truth"] * known
    np.testing.assert_array_equal(figure.axes[2].lines[1].get_ydata(), 0.5 * v[:, 2])


def choice() -> WeakFormChoice:
    table = tuple(
        Candidate(p, ell, q, risk=0.1 * q - 0.15, J=p / q, J_smooth=0.0, J_pred=0.0)
        for p in (4, 8)
        for ell in (24, 50, 80)
        for q in (1, 2, 4)
    )
    return WeakFormChoice(8, 50, 1, 2, 0.5, "risk", torch.ones(3), table, "")


def test_the_window_choice_keeps_one_parameter_and_varies_another() -> None:
    figure = figures.window_choice(choice(), rmse={(8, 50, 2): 0.7})
    drawn(figure)
    (left, right, below, _) = figure.axes
    labels = [text.get_text() for text in left.get_legend().get_texts()]
    assert labels == ["p = 4", "p = 8"]
    labels = [text.get_text() for text in right.get_legend().get_texts()]
    assert labels == ["ell = 24", "ell = 50", "ell = 80"]
    # The choice (8, 50, 2) is circled: J = 8 / 2.
    (mark,) = [line for line in left.lines if line.get_marker() == "o"]
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (2, 4.0)
    # An estimated square below zero is drawn as no error.
    assert below.lines[0].get_ydata()[0] == 0.0
    measured = [line for line in below.lines if line.get_marker() == "x"]
    assert np.nanmax([line.get_ydata() for line in measured]) == 0.7


def test_a_missing_matplotlib_is_named(monkeypatch, paths) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"wpnode_ext\[plot\]"):
        figures.forecast(*paths)
