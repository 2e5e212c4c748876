"""Weights of irregular samples: one row a segment, linear and spline rule."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.interpolate import CubicSpline

from wpnode_ext import segment_weights
from wpnode_ext.weak.test_functions import PolynomialBump

DT = 0.01


def jittered_times(n: int, *, seed: int = 0, jitter: float = 0.4) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (np.arange(n) + generator.uniform(-jitter, jitter, n)) * DT


def reference_coordinates(t: np.ndarray) -> tuple[np.ndarray, float]:
    half_length = (t[-1] - t[0]) / 2
    return (t - (t[0] + t[-1]) / 2) / half_length, half_length


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("p", [2, 3, 8, 16])
@pytest.mark.parametrize(
    ("rule", "ell", "degree"),
    [("linear", 2, 1), ("linear", 50, 1)]
    + [("spline", 2, 2), ("spline", 4, 3), ("spline", 6, 3), ("spline", 50, 3)],
)
def test_rules_integrate_the_polynomials_they_interpolate(rule, ell, degree, p, d):
    times = jittered_times(ell + 4)
    bump = PolynomialBump(p)
    rows = segment_weights(p, ell, t=times, d=d, rule=rule)
    for start, w_lhs, w_rhs in zip(range(4), *(w.numpy() for w in rows), strict=True):
        s, half_length = reference_coordinates(times[start : start + ell + 1])
        lhs_unit = (-1) ** (d + 1) * half_length ** (1 - d)
        for m in range(degree + 1):
            rhs = w_rhs @ s**m / half_length
            assert rhs == pytest.approx(float(bump.moment(m)), abs=1e-13)
            lhs = w_lhs @ s**m / lhs_unit
            assert lhs == pytest.approx(float(bump.moment(m, d)), rel=1e-12, abs=1e-12)


def test_spline_rule_is_the_integral_of_the_not_a_knot_spline():
    p, ell = 5, 12
    times = jittered_times(ell + 1)
    values = np.random.default_rng(1).standard_normal(ell + 1)
    w_lhs, w_rhs = segment_weights(p, ell, t=times, rule="spline")
    s, half_length = reference_coordinates(times)
    spline = CubicSpline(s, values)
    bump = PolynomialBump(p)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    x = (s[:-1, None] + s[1:, None]) / 2 + np.diff(s)[:, None] / 2 * nodes
    weights = np.diff(s)[:, None] / 2 * weights
    lhs = (weights * spline(x) * bump.dphi(x)).sum()
    rhs = half_length * (weights * spline(x) * bump.phi(x)).sum()
    assert w_lhs[0].numpy() @ values == pytest.approx(lhs, abs=1e-13)
    assert w_rhs[0].numpy() @ values == pytest.approx(rhs, abs=1e-15)


@pytest.mark.parametrize(
    "times",
    [
        np.arange(1_000_000) * 0.01,
        np.linspace(0, 1e4, 1_000_001),
        1.7e9 + np.arange(1000) * 0.5,
        np.cumsum(np.full(100_000, 0.01)),
        torch.arange(10_000, dtype=torch.float32) * 0.01,
        list(range(200)),
    ],
    ids=["arange", "linspace", "unix times", "accumulated", "float32", "integers"],
)
def test_uniform_times_give_the_uniform_weights(times):
    w_lhs, w_rhs = segment_weights(8, 50, t=times, q=2)
    n_segments = (len(times) - 1 - 50) // 2 + 1
    dt = (float(times[-1]) - float(times[0])) / (len(times) - 1)
    expected_lhs, expected_rhs = segment_weights(8, 50, dt)
    assert w_lhs.shape == w_rhs.shape == (n_segments, 51)
    assert w_lhs.stride(0) == w_rhs.stride(0) == 0
    # The step is known to the rounding of the first and last time.
    rounding = 2e-7 if isinstance(times, torch.Tensor) else 1e-12
    torch.testing.assert_close(w_lhs[-1], expected_lhs, rtol=1e-14, atol=0)
    torch.testing.assert_close(w_rhs[-1], expected_rhs, rtol=rounding, atol=0)


@pytest.mark.parametrize("jitter", [1e-7, 1e-3, 0.4])
def test_jitter_above_rounding_is_not_taken_for_uniform(jitter):
    times = jittered_times(100, jitter=jitter)
    rows = segment_weights(8, 50, t=times)
    spline = segment_weights(8, 50, t=times, rule="spline")
    assert torch.equal(rows[0], spline[0])
    assert torch.equal(rows[1], spline[1])
    assert not torch.equal(rows[0][0], rows[0][1])


@pytest.mark.parametrize("p", [1, 2, 7, 8, 32])
def test_linear_rule_on_uniform_times_gives_the_uniform_weights(p):
    w_lhs, w_rhs = segment_weights(p, 50, t=np.arange(60) * DT, rule="linear")
    expected_lhs, expected_rhs = segment_weights(p, 50, DT)
    for row_lhs, row_rhs in zip(w_lhs, w_rhs, strict=True):
        assert (row_lhs - expected_lhs).abs().max() < 1e-13 * expected_lhs.abs().max()
        assert (row_rhs - expected_rhs).abs().max() < 1e-13 * expected_rhs.abs().max()


def relative_residual(times: np.ndarray, rule: str) -> float:
    def field(t, u):
        x, y, z = u
        return np.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    accuracy = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-12}
    start = solve_ivp(field, (0, 20), [1.0, 1.0, 1.0], **accuracy).y[:, -1]
    u = solve_ivp(field, (times[0], times[-1]), start, t_eval=times, **accuracy).y
    f = field(0, u)
    w_lhs, w_rhs = (w.numpy() for w in segment_weights(8, 50, t=times, q=2, rule=rule))
    starts = range(0, len(times) - 50, 2)
    windows = np.add.outer(starts, np.arange(51))
    lhs = np.einsum("ki,cki->kc", w_lhs, u[:, windows])
    residual = lhs + np.einsum("ki,cki->kc", w_rhs, f[:, windows])
    return np.sqrt((residual**2).mean() / (lhs**2).mean())


def test_residual_levels_of_jittered_lorenz_63():
    times = jittered_times(2051)
    assert relative_residual(times, "spline") < 1e-5
    assert relative_residual(times, "linear") > 1e-4


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize(("rule", "order"), [("linear", 2), ("spline", 4)])
def test_residual_on_smoothly_stretched_times_has_the_order_of_the_rule(rule, order, d):
    u, f = (np.exp, np.exp) if d == 1 else (np.cos, lambda t: -np.cos(t))
    residuals = []
    for ell in (32, 64, 128):
        x = np.linspace(0, 2, ell + 1)
        t = x + 0.1 * np.sin(2.2 * x + 0.3)
        w_lhs, w_rhs = segment_weights(8, ell, t=t, d=d, rule=rule)
        residuals.append(abs(w_lhs[0].numpy() @ u(t) + w_rhs[0].numpy() @ f(t)))
    orders = np.log2(np.divide(residuals[:-1], residuals[1:]))
    np.testing.assert_allclose(orders, order, atol=0.1)


@pytest.mark.parametrize("rule", ["linear", "spline"])
def test_rows_belong_to_their_starts_whatever_the_split_over_threads(rule):
    times = jittered_times(3000)
    all_rows = segment_weights(4, 10, t=times, rule=rule)
    starts = [2989, 0, 1234, 1234]
    few_rows = segment_weights(4, 10, t=times, starts=starts, rule=rule)
    for every, few in zip(all_rows, few_rows, strict=True):
        assert every.shape == (2990, 11)
        assert torch.equal(every[starts], few)


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, tuple])
def test_starts_may_be_any_sequence_of_integers(kind):
    times = jittered_times(30)
    expected = segment_weights(4, 10, t=times, q=5)
    given = segment_weights(4, 10, t=times, starts=kind([0, 5, 10, 15]))
    assert torch.equal(given[0], expected[0])
    assert torch.equal(given[1], expected[1])


@pytest.mark.parametrize("times", [np.arange(30) * DT, jittered_times(30)])
def test_no_starts_give_no_rows(times):
    w_lhs, w_rhs = segment_weights(4, 10, t=times, starts=[])
    assert w_lhs.shape == w_rhs.shape == (0, 11)


def test_times_are_left_alone_and_may_be_strided():
    times = jittered_times(60)
    strided = np.repeat(times, 2)[::2]
    strided.flags.writeable = False
    expected = segment_weights(8, 50, t=torch.tensor(times, requires_grad=True))
    given = segment_weights(8, 50, t=strided)
    assert torch.equal(given[0], expected[0])
    assert not given[0].requires_grad


@settings(deadline=None, max_examples=60)
@given(
    steps=st.lists(st.floats(0.05, 1.0), min_size=4, max_size=30),
    origin=st.floats(-100, 100),
    p=st.integers(2, 32),
    d=st.integers(1, 2),
    rule=st.sampled_from(["linear", "spline"]),
)
def test_constants_and_the_integral_of_phi_for_random_times(steps, origin, p, d, rule):
    times = origin + np.cumsum(steps)
    ell = (len(times) - 1) // 2 * 2
    w_lhs, w_rhs = segment_weights(p, ell, t=times, d=d, rule=rule)
    mass = float(PolynomialBump(p).moment(0))
    for start, row_lhs, row_rhs in zip(range(len(w_lhs)), w_lhs, w_rhs, strict=True):
        half_length = (times[start + ell] - times[start]) / 2
        # Rounding is relative to H^(1 - d) * int |phi^(d)|, and the integral is < 4 p.
        assert abs(row_lhs.sum()) < 1e-12 * p * half_length ** (1 - d)
        assert row_rhs.sum().item() == pytest.approx(half_length * mass, rel=1e-12)


def test_series_laid_end_to_end_need_to_increase_only_inside_segments():
    times = np.concatenate([np.arange(60) * 0.1, np.arange(80) * 0.1])
    w_lhs, w_rhs = segment_weights(4, 10, t=times, starts=[0, 49, 60, 129])
    expected_lhs, expected_rhs = segment_weights(4, 10, 0.1)
    torch.testing.assert_close(w_lhs, expected_lhs.expand(4, -1))
    torch.testing.assert_close(w_rhs, expected_rhs.expand(4, -1))
    with pytest.raises(ValueError, match="strictly increasing; got 0.0 at index 60"):
        segment_weights(4, 10, t=times, starts=[50])


def test_auto_keeps_the_spline_on_jittered_times():
    times = jittered_times(200, jitter=0.4)
    for auto, spline in zip(
        segment_weights(8, 50, t=times),
        segment_weights(8, 50, t=times, rule="spline"),
        strict=True,
    ):
        assert torch.equal(auto, spline)


def test_auto_never_more_than_doubles_the_noise_gain_of_the_linear_rule():
    steps = np.random.default_rng(3).exponential(0.01, 2000)  # Poisson sampling
    times = np.cumsum(steps)
    gain = {
        rule: segment_weights(8, 50, t=times, rule=rule)[0].square().sum(1)
        for rule in ("auto", "linear", "spline")
    }
    assert (gain["auto"] <= 2 * gain["linear"]).all()
    assert gain["spline"].mean() > 10 * gain["auto"].mean()
