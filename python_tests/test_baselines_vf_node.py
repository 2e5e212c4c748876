"""Smoothing splines, Filon's integrals, and fields trained on them."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.interpolate import CubicSpline

from wpnode_ext.baselines import VFNODE
from wpnode_ext.baselines.filon import moments, sine_basis, spline_weights
from wpnode_ext.baselines.splines import (
    choose_smoothing,
    cutoff_of,
    smoothed,
    smoothing_of,
    smoothing_spline,
)
from wpnode_ext.baselines.vf_node import (
    SegmentBatch,
    VariationalObjective,
    segment_samples,
)
from wpnode_ext.data import make_series
from wpnode_ext.fields import MLPField


def grid(n: int, uniform: bool) -> np.ndarray:
    if uniform:
        return np.linspace(0.0, 5.0, n)
    steps = np.random.default_rng(1).uniform(0.5, 1.5, n)
    t = np.cumsum(steps) - steps[0]
    return 5.0 * t / t[-1]


class TestSmoothingSpline:
    @pytest.mark.parametrize("uniform", [True, False])
    @pytest.mark.parametrize("p", [0.9, 0.999, 0.99999])
    @pytest.mark.parametrize("weighted", [True, False])
    def test_equals_csaps(self, uniform, p, weighted) -> None:
        csaps = pytest.importorskip("csaps")
        t, rng = grid(120, uniform), np.random.default_rng(0)
        y = np.stack([np.sin(3 * t), t**2], 1) + 0.1 * rng.normal(size=(120, 2))
        w = rng.uniform(0.5, 2.0, 120) if weighted else None
        theirs = csaps.csaps(t, y.T, t, smooth=p, weights=w).T
        np.testing.assert_allclose(smoothing_spline(t, y, p, w), theirs, atol=1e-11)

    def test_ends_of_the_range(self) -> None:
        t = grid(60, False)
        y = np.sin(2 * t)[:, None]
        np.testing.assert_array_equal(smoothing_spline(t, y, 1.0), y)
        near = smoothing_spline(t, y, 1 - 1e-9)
        np.testing.assert_allclose(near, y, atol=1e-5)
        line = np.polyval(np.polyfit(t, y[:, 0], 1), t)
        np.testing.assert_allclose(smoothing_spline(t, y, 0.0)[:, 0], line, atol=1e-6)
        with pytest.raises(ValueError, match="between 0 and 1"):
            smoothing_spline(t, y, 1.1)

    def test_gain_is_one_half_at_the_cutoff(self) -> None:
        h, omega = 0.01, 20.0
        p = smoothing_of(omega, h)
        assert cutoff_of(p, h) == pytest.approx(omega)
        assert cutoff_of(0.9999, 0.01) == pytest.approx(31.6, abs=0.05)
        t = h * np.arange(4000)
        y = np.sin(omega * t)[:, None]
        s = smoothing_spline(t, y, p)
        inside = slice(1000, 3000)
        gain = (s[inside] * y[inside]).sum() / (y[inside] ** 2).sum()
        assert gain == pytest.approx(0.5, abs=2e-3)

    def test_choice_is_close_to_the_best(self) -> None:
        t = 0.02 * torch.arange(1500, dtype=torch.float64)
        u = torch.stack([(2 * t).sin(), (3 * t).cos()], 1)
        torch.manual_seed(0)
        series = make_series(u + 0.1 * torch.randn_like(u), dt=0.02)

        def error(p: float) -> float:
            return (smoothed(series, p).v - u).square().mean().sqrt().item()

        best = min(error(smoothing_of(w, 0.02)) for w in np.geomspace(1, 100, 40))
        assert error(choose_smoothing(series)) < 1.15 * best

    def test_missing_values_are_filled_by_the_spline(self) -> None:
        t = 0.02 * torch.arange(300, dtype=torch.float64)
        u = (2 * t).sin()[:, None]
        v = u.clone()
        v[100:104] = float("nan")
        found = smoothed(make_series(v, dt=0.02), 1 - 1e-9).v
        assert (found - u).abs().max() < 1e-4


class TestFilon:
    @pytest.mark.parametrize("angle", [3e-4, 0.3, 1.0, 3.0])
    def test_moments(self, angle) -> None:
        h = 0.01
        omega = angle / h
        found = moments(np.array(omega), np.array(h))
        for n in range(4):
            parts = [
                quad(lambda x: x**n * wave(angle * x), 0, 1, epsabs=1e-15)[0]  # noqa: B023
                for wave in (np.cos, np.sin)
            ]
            wanted = complex(*parts)
            assert abs(found[n] / h ** (n + 1) - wanted) < 2e-15

    @pytest.mark.parametrize("uniform", [True, False])
    def test_weights_integrate_the_natural_spline(self, uniform) -> None:
        t = grid(25, uniform)
        g = np.exp(np.sin(t))
        s = CubicSpline(t, g, bc_type="natural")
        for omega in (0.7, 9.0):
            found = spline_weights(t, np.array([omega]))[0] @ g
            x, w = np.polynomial.legendre.leggauss(12)
            half = np.diff(t)[:, None] / 2
            nodes = t[:-1, None] + half * (1 + x)
            wanted = (half * w * s(nodes) * np.exp(1j * omega * nodes)).sum()
            assert abs(found - wanted) < 1e-12

    def test_variational_identity(self) -> None:
        t = np.linspace(0.0, 10.0, 1000)
        y = np.sin(3 * t) + np.cos(0.7 * t)
        f = 3 * np.cos(3 * t) - 0.7 * np.sin(0.7 * t)
        on_f, on_y = sine_basis(t, 80)
        residual = np.abs(on_f @ f + on_y @ y)
        # Natural ends bend both splines there: errors of order h^2 in one cell.
        assert residual[:20].max() < 1e-6
        assert residual.max() < 5e-6
        assert np.abs(on_f @ f).max() > 1


class TestObjective:
    def test_matrix_path_equals_direct_integration_and_differentiates(self) -> None:
        torch.manual_seed(0)
        field = MLPField(2, (5,)).double()
        objective = VariationalObjective(field)
        t = torch.linspace(0, 3, 40, dtype=torch.float64)
        y = torch.stack([t.sin(), t.cos()], 1)
        objective.add(y, t, torch.arange(40)[None], 6)
        loss, _ = objective(SegmentBatch(0, torch.tensor([0]), None))
        f = field(torch.zeros(()), y).detach().numpy()
        x, w = np.polynomial.legendre.leggauss(12)
        half = np.diff(t.numpy())[:, None] / 2
        nodes = t.numpy()[:-1, None] + half * (1 + x)
        total = 0.0
        for m in range(1, 7):
            omega, size = np.pi * m / 3, np.sqrt(2 / 3)
            for d in range(2):
                s_f = CubicSpline(t.numpy(), f[:, d], bc_type="natural")(nodes)
                s_y = CubicSpline(t.numpy(), y[:, d].numpy(), bc_type="natural")(nodes)
                inside = s_f * np.sin(omega * nodes) + omega * s_y * np.cos(
                    omega * nodes
                )
                total += (size * (half * w * inside).sum()) ** 2 / 2
        assert loss.item() == pytest.approx(total, rel=1e-11)
        weight = next(field.parameters())

        def changed(value: torch.Tensor) -> torch.Tensor:
            replaced = {"field.net.0.weight": value}
            batch = SegmentBatch(0, torch.tensor([0]), None)
            return torch.func.functional_call(objective, replaced, (batch,))[0]

        assert torch.autograd.gradcheck(changed, (weight.detach().requires_grad_(),))

    def test_some_sines_estimate_the_sum_over_all(self) -> None:
        field = MLPField(1, (4,), generator=torch.Generator().manual_seed(0)).double()
        objective = VariationalObjective(field)
        t = torch.linspace(0, 3, 40, dtype=torch.float64)
        objective.add(t.sin()[:, None], t, torch.arange(40)[None], 8)
        one = torch.tensor([0])
        whole = objective(SegmentBatch(0, one, None))[0]
        parts = [
            objective(SegmentBatch(0, one, rows))[0]
            for rows in torch.arange(8).split(2)
        ]
        torch.testing.assert_close(torch.stack(parts).mean(), whole)

    def test_segments_cover_the_runs(self) -> None:
        found = segment_samples([(0, 100), (120, 130), (140, 180)], 41, True)
        assert [tuple(rows.shape) for rows in found] == [(3, 41), (1, 40)]
        assert found[0][:, 0].tolist() == [0, 40, 59]
        assert len(segment_samples([(0, 100)], 41, False)) == 3
        assert segment_samples([(0, 100)], None, True)[0].shape == (1, 100)


def test_learns_an_oscillator_from_noisy_data() -> None:
    t = 0.05 * torch.arange(900, dtype=torch.float64)
    u = torch.stack([t.cos(), -t.sin()], 1)
    torch.manual_seed(0)
    v = u + 0.02 * torch.randn_like(u)
    model = VFNODE(hidden=(32,), epochs=40, lr=1e-2, segment=200).fit(v, 0.05)
    path = model.forecast(u[0], t[:60])
    assert (path - u[:60]).abs().max() < 0.3
    assert model.cost_.epochs == 40
    assert 0.5 < model.smoothing_ < 0.9999
