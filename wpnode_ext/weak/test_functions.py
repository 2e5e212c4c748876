"""The test function of the weak form, its derivatives, primitives and moments."""

from dataclasses import dataclass
from fractions import Fraction
from math import factorial, perm, prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class PolynomialBump:
    """The bump ``phi(s) = (1 - s^2)^p`` on ``[-1, 1]``, zero outside.

    Every method takes any array of ``s`` and works entry by entry. Powers are those of
    ``(1 - s)(1 + s)``, never of the expanded polynomial, whose alternating terms
    cancel: for p = 32 they leave five digits of sixteen.

    Args:
        p: exponent, an integer >= 1. ``phi`` has p - 1 continuous derivatives on the
            whole line.
    """

    p: int

    def __post_init__(self) -> None:
        if not isinstance(self.p, int) or self.p < 1:
            raise ValueError(f"`p` must be an integer >= 1; got {self.p!r}.")

    def phi(self, s: ArrayLike) -> _Array:
        """``(1 - s^2)^p``."""
        return _base(s) ** self.p

    def dphi(self, s: ArrayLike) -> _Array:
        """``phi'(s) = -2 p s (1 - s^2)^(p - 1)``."""
        s = np.asarray(s, dtype=np.float64)
        inside = -2 * self.p * s * _base(s) ** (self.p - 1)
        return np.where(np.abs(s) <= 1, inside, 0.0)

    def d2phi(self, s: ArrayLike) -> _Array:
        """``phi''(s) = 2 p ((2 p - 1) s^2 - 1) (1 - s^2)^(p - 2)``; -2 for p = 1."""
        s = np.asarray(s, dtype=np.float64)
        p = self.p
        if p == 1:
            inside = np.full_like(s, -2.0)
        else:
            inside = 2 * p * ((2 * p - 1) * s**2 - 1) * _base(s) ** (p - 2)
        return np.where(np.abs(s) <= 1, inside, 0.0)

    def phi_int(self, s: ArrayLike) -> _Array:
        """``int_{-1}^{s} phi``, by a Gauss-Legendre rule that is exact for it.

        All terms are positive, so the relative error is at rounding level down to the
        left end, where the value falls like ``(1 + s)^(p + 1)``.
        """
        s = np.clip(np.asarray(s, dtype=np.float64), -1.0, 1.0)[..., np.newaxis]
        nodes, weights = np.polynomial.legendre.leggauss(self.p + 1)
        from_left = (1 + s) * (1 + nodes) / 2
        from_right = (1 - s) + (1 + s) * (1 - nodes) / 2
        terms = weights * (from_left * from_right) ** self.p
        return (1 + s[..., 0]) / 2 * terms.sum(axis=-1)

    def s_phi_int(self, s: ArrayLike) -> _Array:
        """``int_{-1}^{s} r phi(r) dr = -(1 - s^2)^(p + 1) / (2 (p + 1))``."""
        return -(_base(s) ** (self.p + 1)) / (2 * (self.p + 1))

    def moment(self, m: int, d: int = 0) -> Fraction:
        """``int_{-1}^{1} s^m phi^(d)(s) ds`` as an exact fraction.

        For d = 0 and even m it is ``Gamma(a) Gamma(p + 1) / Gamma(a + p + 1)`` with
        ``a = (m + 1) / 2``, else by parts ``(-1)^d m! / (m - d)!`` times the moment
        m - d of ``phi``.

        Args:
            m: power of s, >= 0.
            d: order of the derivative, from 0 to p (beyond p boundary terms appear).
        """
        if m < 0:
            raise ValueError(f"`m` must be >= 0; got {m}.")
        if not 0 <= d <= self.p:
            raise ValueError(f"`d` must be from 0 to p = {self.p}; got {d}.")
        power = m - d
        if power < 0 or power % 2 == 1:
            return Fraction(0)
        gamma_ratio = prod(Fraction(power + 1, 2) + j for j in range(self.p + 1))
        return (-1) ** d * perm(m, d) * factorial(self.p) / gamma_ratio


def _base(s: ArrayLike) -> _Array:
    s = np.asarray(s, dtype=np.float64)
    return np.maximum((1 - s) * (1 + s), 0.0)
