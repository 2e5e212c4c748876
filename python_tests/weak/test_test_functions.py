"""The bump, its derivatives, primitives and moments against high-precision maths."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from wpnode_ext.weak.test_functions import PolynomialBump

P_VALUES = [1, 2, 3, 8, 17, 32]
POINTS = np.array([-1.0, -0.999, -0.7, -1e-3, 0.0, 0.25, 0.9, 0.99999, 1.0])


def exact_bump(p: int, d: int, s: float, *, digits: int = 200) -> mpmath.mpf:
    """The d-th derivative of (1 - s^2)^p from its binomial expansion.

    Beside s = 1 the alternating terms cancel down to (2e-5)^p, hence the digits.
    """
    with mpmath.workdps(digits):
        x = mpmath.mpf(s)
        terms = (
            (-1) ** j * mpmath.binomial(p, j) * mpmath.ff(2 * j, d) * x ** (2 * j - d)
            for j in range((d + 1) // 2, p + 1)
        )
        return mpmath.fsum(terms)


@pytest.mark.parametrize("p", P_VALUES)
@pytest.mark.parametrize("d", [0, 1, 2])
def test_derivatives_match_the_binomial_expansion_in_high_precision(p, d):
    bump = PolynomialBump(p)
    values = (bump.phi, bump.dphi, bump.d2phi)[d](POINTS)
    for s, value in zip(POINTS, values, strict=True):
        assert value == pytest.approx(float(exact_bump(p, d, s)), rel=1e-13)


@pytest.mark.parametrize("p", P_VALUES)
def test_primitive_keeps_relative_accuracy_down_to_the_left_end(p):
    points = POINTS[1:]
    values = PolynomialBump(p).phi_int(points)
    for s, value in zip(points, values, strict=True):
        with mpmath.workdps(80):
            x = (1 + mpmath.mpf(s)) / 2
            a = p + 1
            exact = 2 ** (2 * p + 1) * mpmath.betainc(a, a, 0, x)
        assert value == pytest.approx(float(exact), rel=2e-14)


@pytest.mark.parametrize("p", P_VALUES)
def test_first_moment_primitive_matches_quadrature(p):
    for s, value in zip(POINTS, PolynomialBump(p).s_phi_int(POINTS), strict=True):
        with mpmath.workdps(40):
            exact = mpmath.quad(lambda x: x * (1 - x * x) ** p, [-1, mpmath.mpf(s)])
        assert value == pytest.approx(float(exact), rel=1e-13, abs=1e-30)


def test_everything_is_zero_outside_and_the_primitive_is_constant():
    outside = np.array([-3.0, -1.5, 1.5, 3.0])
    for p in (1, 2, 7):
        bump = PolynomialBump(p)
        for function in (bump.phi, bump.dphi, bump.d2phi, bump.s_phi_int):
            np.testing.assert_array_equal(function(outside), 0.0)
        total = float(bump.moment(0))
        np.testing.assert_allclose(bump.phi_int(outside), [0, 0, total, total])


def test_shape_of_the_argument_is_kept():
    bump = PolynomialBump(4)
    for function in (bump.phi, bump.dphi, bump.d2phi, bump.phi_int, bump.s_phi_int):
        assert function(0.5).shape == ()
        assert function(np.zeros((2, 3))).shape == (2, 3)


def test_moments_of_small_bumps_are_the_hand_computed_fractions():
    assert PolynomialBump(1).moment(0) == Fraction(4, 3)
    assert PolynomialBump(1).moment(2) == Fraction(4, 15)
    assert PolynomialBump(2).moment(0) == Fraction(16, 15)
    assert PolynomialBump(3).moment(1) == 0
    assert PolynomialBump(2).moment(1, d=1) == Fraction(-16, 15)
    assert PolynomialBump(2).moment(2, d=2) == Fraction(32, 15)
    assert PolynomialBump(2).moment(0, d=1) == 0


@pytest.mark.parametrize("p", [2, 5, 9])
@pytest.mark.parametrize("d", [0, 1, 2])
@pytest.mark.parametrize("m", range(6))
def test_moments_match_adaptive_quadrature(p, d, m):
    with mpmath.workdps(30):
        exact = mpmath.quad(
            lambda s: s**m * exact_bump(p, d, s, digits=40), [-1, 0, 1], maxdegree=4
        )
    assert float(PolynomialBump(p).moment(m, d)) == pytest.approx(
        float(exact), rel=1e-14, abs=1e-25
    )


@pytest.mark.parametrize("p", [0, -1, 2.0, "8"])
def test_bad_exponents_are_refused(p):
    with pytest.raises(ValueError, match="`p` must be an integer >= 1; got"):
        PolynomialBump(p)


def test_bad_moments_are_refused():
    with pytest.raises(ValueError, match="`m` must be >= 0; got -1"):
        PolynomialBump(2).moment(-1)
    with pytest.raises(ValueError, match="`d` must be from 0 to p = 2; got 3"):
        PolynomialBump(2).moment(3, d=3)
