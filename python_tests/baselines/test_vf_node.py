"""Smoothing splines, their integrals, and the fields trained on them."""

from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from scipy.interpolate import CubicSpline

from trajectories import normal
from wpnode_ext.baselines import VFNODE, load
from wpnode_ext.baselines.splines import (
    choose_smoothing,
    cutoff_of,
    moments,
    sine_basis,
    smoothed,
    smoothing_of,
    smoothing_spline,
    spline_weights,
)
from wpnode_ext.baselines.vf_node import (
    SegmentBatch,
    SegmentBatches,
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
        ours = smoothing_spline(t, y, p, w)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)

    def test_ends_of_the_range(self) -> None:
        t = grid(60, False)
        y = np.sin(2 * t)[:, None]
        np.testing.assert_array_equal(smoothing_spline(t, y, 1.0), y)
        line = np.polyval(np.polyfit(t, y[:, 0], 1), t)[:, None]
        for p, limit in ((1.0, y), (0.0, line)):
            for distance in (1e-6, 1e-8):
                near = smoothing_spline(t, y, abs(p - distance))
                # The way to either limit is of first order in the distance.
                assert 0 < np.abs(near - limit).max() < 50 * distance
        stiff = smoothing_spline(t, y, 0.0)
        np.testing.assert_allclose(stiff, line, rtol=0, atol=1e-11)
        with pytest.raises(ValueError, match="between 0 and 1"):
            smoothing_spline(t, y, 1.1)

    @pytest.mark.parametrize(
        ("p", "omega"),
        [(0.9, 5.5), (0.99, 10.0), (0.999, 17.8), (0.9999, 31.6), (0.99999, 56.2)],
    )
    def test_gain_is_one_half_at_the_cutoff(self, p, omega) -> None:
        h = 0.01
        assert cutoff_of(p, h) == pytest.approx(omega, abs=0.05)
        assert smoothing_of(cutoff_of(p, h), h) == pytest.approx(p, rel=1e-12)
        t = h * np.arange(6000)
        for ratio, wanted in ((0.5, 16 / 17), (1.0, 0.5), (2.0, 1 / 17)):
            angle = ratio * cutoff_of(p, h) * t
            y = np.stack([np.sin(angle), np.cos(angle)], 1)
            s = smoothing_spline(t, y, p)
            inside = slice(2000, 4000)
            gain = (s[inside] * y[inside]).sum() / (y[inside] ** 2).sum()
            assert gain == pytest.approx(wanted, abs=5e-4)

    def test_choice_is_close_to_the_best(self) -> None:
        t = 0.02 * torch.arange(1500, dtype=torch.float64)
        u = torch.stack([(2 * t).sin(), (3 * t).cos()], 1)
        series = make_series(u + 0.1 * normal(*u.shape), dt=0.02)

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
    @pytest.mark.parametrize("angle", [3e-4, 0.3, 1.0, 1.2, 3.0])
    @pytest.mark.parametrize("h", [0.01, 2.5])
    def test_moments(self, angle, h) -> None:
        found = moments(np.array(angle / h), np.array(h))
        with mpmath.workdps(30):
            theta = mpmath.mpf(angle / h) * h
            for n in range(4):
                wanted = mpmath.quad(lambda x: x**n * mpmath.expj(theta * x), [0, 1])  # noqa: B023
                error = mpmath.mpc(complex(found[n])) / mpmath.mpf(h) ** (n + 1)
                assert abs(error - wanted) < 1e-15

    def test_long_records_keep_the_digits_of_small_moments(self) -> None:
        # The closed forms lose 5 % here: T = 100, m = 1, n = 3.
        found = moments(np.array(np.pi / 100), np.array(0.01))[3]
        assert found.real == pytest.approx(0.01**4 / 4, rel=1e-6)
        assert found.imag == pytest.approx(np.pi / 100 * 0.01**5 / 5, rel=1e-6)

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
        residual = on_f @ f + on_y @ y
        assert np.abs(on_f @ f).max() > 1
        assert np.abs(residual[:32]).max() < 1e-6
        # Natural splines have no curvature at the ends. What that adds to integrals of
        # y g' is known to leading order, and all that faster sines leave.
        h, m = t[1], np.arange(1, 81)
        bent = -9 * np.sin(3 * t[[0, -1]]) - 0.49 * np.cos(0.7 * t[[0, -1]])
        ends = np.sqrt(0.2) * np.pi * m / 10 * (bent[0] + (-1.0) ** m * bent[1])
        ends *= h**3 / (24 * np.sqrt(3))
        assert np.abs(residual).max() < 2.5e-6
        assert np.abs(residual - ends).max() < 5e-8

    def test_variational_identity_without_curvature_at_the_ends(self) -> None:
        t = np.linspace(0.0, 10.0, 1000)
        y, f = np.sin(0.9 * np.pi * t), 0.9 * np.pi * np.cos(0.9 * np.pi * t)
        on_f, on_y = sine_basis(t, 80)
        assert np.abs(on_f @ f + on_y @ y).max() < 1e-7


class TestObjective:
    def test_matrix_path_equals_direct_integration_and_differentiates(self) -> None:
        field = MLPField(2, (5,)).double()
        objective = VariationalObjective(field)
        t = torch.linspace(0, 3, 40, dtype=torch.float64)
        y = torch.stack([t.sin(), t.cos()], 1)
        objective.add(y, t, torch.arange(40)[None], 6)
        batch = SegmentBatch(0, torch.tensor([0]), None)
        loss, _ = objective(batch)
        f = field(torch.zeros(()), y).detach().numpy()
        x, w = np.polynomial.legendre.leggauss(12)
        half = np.diff(t.numpy())[:, None] / 2
        nodes = t.numpy()[:-1, None] + half * (1 + x)
        wanted = np.zeros((6, 2))
        for m, d in np.ndindex(6, 2):
            omega, size = np.pi * (m + 1) / 3, np.sqrt(2 / 3)
            s_f = CubicSpline(t.numpy(), f[:, d], bc_type="natural")(nodes)
            s_y = CubicSpline(t.numpy(), y[:, d].numpy(), bc_type="natural")(nodes)
            inside = s_f * np.sin(omega * nodes) + omega * s_y * np.cos(omega * nodes)
            wanted[m, d] = size * (half * w * inside).sum()
        found = objective.residual(0, torch.tensor([0]), None)[0].detach()
        np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-12)
        assert loss.item() == pytest.approx((wanted**2).sum() / 2, rel=1e-12)
        names = [name for name, _ in objective.named_parameters()]
        values = [value.detach().requires_grad_() for value in objective.parameters()]

        def changed(*values: torch.Tensor) -> torch.Tensor:
            replaced = dict(zip(names, values, strict=True))
            return torch.func.functional_call(objective, replaced, (batch,))[0]

        assert len(values) == 4
        assert torch.autograd.gradcheck(changed, tuple(values))

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


class TestTraining:
    def data(self, uniform: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
        """Times, and an oscillation at them."""
        t = 0.05 * torch.arange(900, dtype=torch.float64)
        if not uniform:
            draw = torch.Generator().manual_seed(1)
            t = t + 0.02 * (torch.rand(900, generator=draw).double() - 0.5)
        return t, torch.stack([t.cos(), -t.sin()], 1)

    def noisy(self, u: torch.Tensor) -> torch.Tensor:
        return u + 0.02 * normal(*u.shape, seed=0)

    def test_learns_an_oscillator_from_noisy_data(self) -> None:
        t, u = self.data()
        v = self.noisy(u)
        model = VFNODE(hidden=(32,), epochs=40, lr=1e-2, segment=200).fit(v, 0.05)
        path = model.forecast(u[0], t[:60])
        assert (path - u[:60]).abs().max() < 0.3
        assert model.cost_.epochs == 40
        assert 0.5 < model.smoothing_ < 0.9999

    def test_learns_from_irregular_times_and_comes_back_from_a_file(
        self, tmp_path: Path
    ) -> None:
        t, u = self.data(uniform=False)
        v = self.noisy(u)
        model = VFNODE(hidden=(32,), epochs=40, lr=1e-2, segment=200).fit(v, t=t)
        path = model.forecast(u[0], t[:60])
        assert (path - u[:60]).abs().max() < 0.3
        model.save(tmp_path / "model.pt")
        again = load(tmp_path / "model.pt")
        assert isinstance(again, VFNODE)
        assert torch.equal(again.forecast(u[0], t[:60]), path)
        assert (again.smoothing_, again.basis_) == (model.smoothing_, model.basis_)
        assert again.result_ == model.result_
        assert again.dt_ is None

    def test_learns_from_some_sines_a_step(self) -> None:
        t, u = self.data()
        short = {"hidden": (32,), "epochs": 40, "lr": 1e-2, "segment": 200}
        model = VFNODE(**short, basis=24, basis_batch=6).fit(self.noisy(u), 0.05)
        assert model.basis_ == {200: 24}
        path = model.forecast(u[0], t[:60])
        assert (path - u[:60]).abs().max() < 0.3

    def test_steps_draw_their_sines(self) -> None:
        objective = VariationalObjective(MLPField(1, (4,)).double())
        t = torch.linspace(0, 3, 40, dtype=torch.float64)
        objective.add(t.sin()[:, None], t, torch.arange(40).reshape(1, 40), 8)
        source = SegmentBatches(objective, 1, 3, seed=0)
        drawn = [source.epoch(n)[0].rows for n in range(30)]
        assert all(rows is not None and len(rows.unique()) == 3 for rows in drawn)
        assert len(torch.cat([r for r in drawn if r is not None]).unique()) == 8
        (whole,) = SegmentBatches(objective, 1, 8, seed=0).epoch(0)
        assert whole.rows is None

    def test_the_cutoff_decides_smoothing_and_sines(self) -> None:
        _, u = self.data()
        short = {"hidden": (4,), "epochs": 1, "segment": 201, "held_out": 0.0}
        model = VFNODE(**short, cutoff_hz=1.5).fit(u[:801], 0.05)
        assert cutoff_of(model.smoothing_, 0.05) == pytest.approx(2 * np.pi * 1.5)
        # Segments of 10 units of time: sine m has m / 20 oscillations in one.
        assert model.basis_ == {201: 30}
        given = VFNODE(**short, cutoff_hz=1.5, smoothing=0.9).fit(u[:801], 0.05)
        assert given.smoothing_ == 0.9
