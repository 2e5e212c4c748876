"""Weights of uniform samples, and the arguments of `segment_weights`."""

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy.integrate import quad, solve_ivp

from wpnode_ext import segment_weights

DT = 0.01


def exact_weights(p: int, ell: int, dt: float) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
    """(w_lhs, w_rhs) for d = 1 from the primitives of phi and s phi.

    The digits cover what the differences lose: the end weights are smaller than the
    centre one by (2 / ell)^p, the alternating primitive loses p log10(4) more.
    """
    half = ell // 2
    with mpmath.workdps(50 + 4 * p):
        coefficients = [
            mpmath.mpf((-1) ** k * math.comb(p, k)) / (2 * k + 1) for k in range(p + 1)
        ]
        s = [mpmath.mpf(i - half) / half for i in range(ell + 1)]
        phi = [(1 - x**2) ** p for x in s]
        phi_int = [x * mpmath.polyval(coefficients[::-1], x**2) for x in s]
        s_phi_int = [-((1 - x**2) ** (p + 1)) / (2 * (p + 1)) for x in s]
        lhs, rhs = [mpmath.mpf(0)] * (ell + 1), [mpmath.mpf(0)] * (ell + 1)
        for j in range(ell):
            mass = (phi_int[j + 1] - phi_int[j]) * half
            first = (s_phi_int[j + 1] - s_phi_int[j]) * half
            lhs[j] += mass - phi[j]
            lhs[j + 1] += phi[j + 1] - mass
            rhs[j] += half * mpmath.mpf(dt) * (s[j + 1] * mass - first)
            rhs[j + 1] += half * mpmath.mpf(dt) * (first - s[j] * mass)
        return list(zip(lhs, rhs, strict=True))


def assert_elementwise_exact(p: int, ell: int) -> None:
    w_lhs, w_rhs = segment_weights(p, ell, DT)
    for i, (lhs, rhs) in enumerate(exact_weights(p, ell, DT)):
        if i == ell // 2:
            assert w_lhs[i] == 0
        else:
            assert abs(w_lhs[i].item() / lhs - 1) < 1e-13, (p, ell, i)
        assert abs(w_rhs[i].item() / rhs - 1) < 1e-13, (p, ell, i)


@pytest.mark.parametrize("ell", [2, 4, 50, 80, 400])
@pytest.mark.parametrize("p", [1, 2, 3, 8, 15, 16, 31, 32])
def test_weights_match_high_precision_elementwise(p, ell):
    assert_elementwise_exact(p, ell)


@pytest.mark.slow
@pytest.mark.parametrize("p", range(1, 33))
def test_weights_match_high_precision_for_every_exponent(p):
    for ell in (2, 4, 6, 8, 12, 20, 34, 50, 60, 80, 106, 150, 200, 300, 400):
        assert_elementwise_exact(p, ell)


@pytest.mark.parametrize("ell", [2, 4, 50, 400])
@pytest.mark.parametrize("p", [2, 3, 8, 17, 32, 64])
@pytest.mark.parametrize("d", [1, 2])
def test_exact_identities(p, ell, d):
    w_lhs, w_rhs = segment_weights(p, ell, DT, d=d)
    half_length = ell * DT / 2
    assert w_lhs.dtype == w_rhs.dtype == torch.float64
    assert w_lhs.shape == w_rhs.shape == (ell + 1,)
    assert torch.equal(w_lhs, -w_lhs.flip(0) if d == 1 else w_lhs.flip(0))
    assert torch.equal(w_rhs, w_rhs.flip(0))
    assert abs(w_lhs.sum()) < 5e-14 * w_lhs.abs().sum()
    mass = math.sqrt(math.pi) * math.exp(math.lgamma(p + 1) - math.lgamma(p + 1.5))
    assert w_rhs.sum().item() == pytest.approx(half_length * mass, rel=1e-13)


@pytest.mark.parametrize("p", [1, 2, 7, 8, 16])
def test_straight_line_with_unit_slope_has_no_residual(p):
    w_lhs, w_rhs = segment_weights(p, 50, DT)
    t = torch.arange(51, dtype=torch.float64) * DT
    residual = (w_lhs * t + w_rhs).sum()
    assert abs(residual) < 1e-15


def test_noise_gain_of_the_lorenz_63_setting():
    w_lhs, _ = segment_weights(8, 50, DT)
    assert w_lhs.square().sum().item() == pytest.approx(0.1514, abs=5e-5)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("p", [2, 3, 8])
def test_weights_match_adaptive_quadrature(p, d):
    ell = 10
    w_lhs, w_rhs = segment_weights(p, ell, DT, d=d)
    half_length = ell * DT / 2
    nodes = np.linspace(-1, 1, ell + 1)

    def phi(s):
        return (1 - s * s) ** p

    def dphi(s):
        if d == 1:
            return -2 * p * s * (1 - s * s) ** (p - 1)
        return 2 * p * ((2 * p - 1) * s * s - 1) * (1 - s * s) ** (p - 2)

    def integral(i, function):
        def integrand(s):
            return max(0.0, 1 - abs(s - nodes[i]) * ell / 2) * function(s)

        cells = nodes[max(i - 1, 0) : i + 2]
        return sum(
            quad(integrand, a, b, epsabs=1e-15)[0]
            for a, b in zip(cells[:-1], cells[1:], strict=True)
        )

    lhs_unit = (-1) ** (d + 1) * half_length ** (1 - d)
    lhs = [lhs_unit * integral(i, dphi) for i in range(ell + 1)]
    rhs = [half_length * integral(i, phi) for i in range(ell + 1)]
    np.testing.assert_allclose(w_lhs, lhs, rtol=0, atol=1e-13 * np.max(np.abs(lhs)))
    np.testing.assert_allclose(w_rhs, rhs, rtol=0, atol=1e-13 * np.max(rhs))


@pytest.mark.parametrize("p", range(1, 9))
def test_weights_match_pysindy(p):
    library = pytest.importorskip("pysindy", reason="pysindy is not installed")
    peer = object.__new__(library.WeakPDELibrary)
    peer.p = p
    ell = 50
    grid = np.linspace(-1, 1, ell + 1)
    peer_lhs = peer._linear_weights(grid, 1, p)
    peer_rhs = peer._linear_weights(grid, 0, p) * ell * DT / 2
    # Its test function is (s^2 - 1)^p in release 2.1, of the other sign for odd p.
    sign = np.sign(peer_rhs[ell // 2])
    w_lhs, w_rhs = segment_weights(p, ell, DT)
    np.testing.assert_allclose(w_lhs, sign * peer_lhs, rtol=0, atol=1e-12)
    np.testing.assert_allclose(w_rhs, sign * peer_rhs, rtol=0, atol=1e-13)


def residual_orders(p: int, d: int, u, f) -> np.ndarray:
    residuals = []
    for ell in (16, 32, 64):
        t = 0.3 + np.linspace(0, 2, ell + 1)
        w_lhs, w_rhs = segment_weights(p, ell, 2 / ell, d=d)
        residuals.append(abs(w_lhs.numpy() @ u(t) + w_rhs.numpy() @ f(t)))
    return np.log2(np.divide(residuals[:-1], residuals[1:]))


@pytest.mark.parametrize(("p", "order"), [(1, 4), (2, 4), (3, 6), (4, 6)])
def test_residual_of_a_smooth_solution_vanishes_with_the_right_order(p, order):
    orders = residual_orders(p, 1, np.exp, np.exp)
    np.testing.assert_allclose(orders, order, atol=0.1)


@pytest.mark.parametrize(("p", "order"), [(2, 4), (3, 4), (4, 6), (5, 6)])
def test_residual_of_an_oscillator_vanishes_with_the_right_order(p, order):
    orders = residual_orders(p, 2, np.cos, lambda t: -np.cos(t))
    np.testing.assert_allclose(orders, order, atol=0.15)


def test_true_field_of_lorenz_63_has_a_residual_at_rounding_level():
    def field(t, u):
        x, y, z = u
        return np.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    t = np.arange(51) * DT
    start = [-8.0, 7.0, 27.0]
    accuracy = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-13}
    u = solve_ivp(field, (0, t[-1]), start, t_eval=t, **accuracy).y
    w_lhs, w_rhs = (w.numpy() for w in segment_weights(8, 50, DT))
    residual = u @ w_lhs + field(0, u) @ w_rhs
    assert np.abs(u @ w_lhs).max() > 0.1
    assert np.abs(residual).max() < 1e-10


def test_repeated_calls_return_copies_of_their_own():
    first = segment_weights(8, 50, DT)[0]
    kept = first.clone()
    first.zero_()
    assert torch.equal(segment_weights(8, 50, DT)[0], kept)


def test_numbers_of_other_libraries_are_accepted():
    expected = segment_weights(8, 50, DT)
    given = segment_weights(np.int64(8), torch.tensor(50), np.float64(DT))
    assert torch.equal(given[0], expected[0])
    assert torch.equal(given[1], expected[1])


T = np.arange(60) * DT
REPEATED = np.where(np.arange(60) == 7, T[6], T)
UNSORTED = np.where(np.arange(60) == 7, T[3], T)
MISSING = np.where(np.arange(60) == 7, np.nan, T)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ell": 51}, "`ell` must be an even integer >= 2; got 51."),
        ({"ell": 0}, "`ell` must be an even integer >= 2; got 0."),
        ({"p": 0}, "`p` must be an integer from 1 to 64; got 0."),
        ({"p": 65}, "`p` must be an integer from 1 to 64; got 65."),
        ({"p": 1, "d": 2}, "`p` must be >= `d` = 2; got 1."),
        ({"d": 3}, "`d` must be 1 or 2; got 3."),
        ({"q": 0}, "`q` must be an integer >= 1; got 0."),
        ({"dt": 0.0}, "`dt` must be positive and finite; got 0."),
        ({"dt": -0.5}, "`dt` must be positive and finite; got -0.5."),
        ({"dt": math.nan}, "`dt` must be positive and finite; got nan."),
        ({"dt": math.inf}, "`dt` must be positive and finite; got inf."),
        ({"dt": None}, "One of `dt` and `t` must be given; got neither."),
        ({"t": T}, "Only one of `dt` and `t` must be given; got both."),
        ({"rule": "cubic"}, "`rule` must be 'auto', 'linear' or 'spline'; got 'cubic'"),
        ({"rule": "spline"}, "`rule` must be 'auto' or 'linear' with `dt`; got 'spl"),
        ({"dt": None, "t": T[:40]}, "`t` has 40 samples, fewer than the ell + 1 = 51"),
        ({"dt": None, "t": T[None]}, "`t` must be 1-D; got shape [1, 60]."),
        ({"dt": None, "t": REPEATED}, "increasing; got 0.06 at index 7 after 0.06."),
        ({"dt": None, "t": UNSORTED}, "increasing; got 0.03 at index 7 after 0.06."),
        ({"dt": None, "t": MISSING}, "`t` must be finite; got nan at index 7."),
        (
            {"dt": None, "t": T, "starts": [0, 10]},
            "`starts` must lie between 0 and N - 1 - ell = 9; got 10 at index 1.",
        ),
        (
            {"dt": None, "t": T, "starts": [-1]},
            "`starts` must lie between 0 and N - 1 - ell = 9; got -1 at index 0.",
        ),
        ({"dt": None, "t": T, "starts": [[0]]}, "`starts` must be 1-D; got shape [1, "),
    ],
)
def test_bad_values_are_refused_in_full_words(arguments, words):
    with pytest.raises(ValueError) as error:
        segment_weights(**{"p": 8, "ell": 50, "dt": DT} | arguments)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"p": 8.0}, "`p` must be an integer; got 8.0."),
        ({"ell": "50"}, "`ell` must be an integer; got '50'."),
        ({"dt": "fast"}, "`dt` must be a number; got 'fast'."),
        ({"dt": None, "t": T.astype("M8[s]")}, "`t` must hold real numbers; got date"),
        (
            {"dt": None, "t": torch.ones(60) * 1j},
            "`t` must hold real numbers; got torc",
        ),
        (
            {"dt": None, "t": T, "starts": [0.5]},
            "`starts` must hold integers; got float",
        ),
    ],
)
def test_bad_types_are_refused_in_full_words(arguments, words):
    with pytest.raises(TypeError) as error:
        segment_weights(**{"p": 8, "ell": 50, "dt": DT} | arguments)
    assert words in str(error.value)
