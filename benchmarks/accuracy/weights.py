"""Errors of the weights: printed closed form, irregular samples, noise gain.

    python benchmarks/accuracy/weights.py    # about a minute on one CPU core

Three questions: how many digits the paper's closed form of the weights keeps, how far
ours are from arithmetic with many digits, and what the linear and the spline rule cost
and gain on irregular samples of Lorenz-63. The page is ``results/weights.md``, which
``docs/notes/weights.md`` explains.
"""

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import tables
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from wpnode_ext import segment_weights

Floats = NDArray[np.floating[Any]]
DT, SAMPLES, P = 0.01, 4000, 8
PRINTED = ((8, 50), (16, 60), (32, 50), (32, 400))
EXACT = ((1, 2), (2, 50), (8, 50), (8, 400), (16, 60), (31, 80), (32, 50), (32, 400))
# Random steps, in units of the mean step.
STEPS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "uniform in [0.2, 1.8] dt": lambda g, n: g.uniform(0.2, 1.8, n),
    "uniform in [0.05, 1.95] dt": lambda g, n: g.uniform(0.05, 1.95, n),
    "uniform in [0.01, 1.99] dt": lambda g, n: g.uniform(0.01, 1.99, n),
    "exponential, mean dt": lambda g, n: g.exponential(1.0, n),
}


def printed_form(p: int, ell: int, dtype: type) -> tuple[Floats, Floats]:
    """(w_lhs, w_rhs) by differences of monomial primitives, with the right sign."""
    s = np.linspace(-1, 1, ell + 1, dtype=dtype)
    k = np.arange(p + 1)
    c = np.array([(-1) ** i * math.comb(p, i) for i in k], dtype=dtype)
    half = dtype(ell * DT / 2)
    w_lhs = _sums(s, 2 * k, c, 2 * k + 1, 2 * k * c / (2 * k + 1))
    w_rhs = _sums(s, 2 * k + 1, c / (2 * k + 1), 2 * k + 2, c / (2 * k + 2))
    return w_lhs, half * w_rhs


def _sums(
    s: Floats,
    powers: NDArray[np.integer[Any]],
    coefficients: Floats,
    first_powers: NDArray[np.integer[Any]],
    first: Floats,
) -> Floats:
    """``int L_i g`` from the primitives of g and s g, in the precision of `s`."""

    def primitive(exponents: NDArray[np.integer[Any]], factors: Floats) -> Floats:
        total = np.zeros_like(s)
        for power, factor in zip(exponents, factors.astype(s.dtype), strict=True):
            total += factor * s ** int(power)
        return total

    mass = np.diff(primitive(powers, coefficients))
    moment = np.diff(primitive(first_powers, first))
    h, w = s[1] - s[0], np.zeros_like(s)
    w[:-1] += (s[1:] * mass - moment) / h
    w[1:] += (moment - s[:-1] * mass) / h
    return w


def error(found: Floats, exact: Floats) -> float:
    """Largest error relative to the largest weight."""
    return float(np.abs(found - exact).max() / np.abs(exact).max())


def worst_digit(p: int, ell: int) -> tuple[float, float]:
    """Largest relative error of any single weight, against many digits."""
    half = ell // 2
    with mpmath.workdps(50 + 4 * p):
        c = [
            mpmath.mpf((-1) ** k * math.comb(p, k)) / (2 * k + 1) for k in range(p + 1)
        ]
        s = [mpmath.mpf(i - half) / half for i in range(ell + 1)]
        phi = [(1 - x**2) ** p for x in s]
        mass = [x * mpmath.polyval(c[::-1], x**2) for x in s]
        moment = [-((1 - x**2) ** (p + 1)) / (2 * (p + 1)) for x in s]
        lhs, rhs = [mpmath.mpf(0)] * (ell + 1), [mpmath.mpf(0)] * (ell + 1)
        for j in range(ell):
            m, first = ((x[j + 1] - x[j]) * half for x in (mass, moment))
            lhs[j] += m - phi[j]
            lhs[j + 1] += phi[j + 1] - m
            rhs[j] += half * mpmath.mpf(DT) * (s[j + 1] * m - first)
            rhs[j + 1] += half * mpmath.mpf(DT) * (first - s[j] * m)
        # The centre of w_lhs is zero, and exactly so.
        lhs[half] = mpmath.mpf(1)
        ours = [w.tolist() for w in segment_weights(p, ell, DT)]
        ours[0][half] = 1.0
        return tuple(
            float(max(abs(a / b - 1) for a, b in zip(found, exact, strict=True)))
            for found, exact in zip(ours, (lhs, rhs), strict=True)
        )  # type: ignore[return-value]


def lorenz(t: float, u: Floats) -> Floats:
    x, y, z = u
    return np.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])


def on_lorenz63(times: Floats, ell: int, rule: Any) -> tuple[float, float]:
    """Relative residual of the true field, and the mean noise gain."""
    start = solve_ivp(lorenz, (0, 20), [1.0, 1.0, 20.0], "DOP853", rtol=1e-10)
    solution = solve_ivp(
        lorenz,
        (times[0], times[-1]),
        start.y[:, -1],
        "DOP853",
        times,
        rtol=1e-12,
        atol=1e-12,
    )
    u, f = solution.y.T, lorenz(0.0, solution.y).T
    w_lhs, w_rhs = (w.numpy() for w in segment_weights(P, ell, t=times, rule=rule))
    windows = np.arange(len(w_lhs))[:, None] + np.arange(ell + 1)
    left = np.einsum("ki,kid->kd", w_lhs, u[windows])
    residual = left + np.einsum("ki,kid->kd", w_rhs, f[windows])
    gain = (w_lhs**2).sum(1).mean()
    return float(np.linalg.norm(residual) / np.linalg.norm(left)), float(gain)


def both_rules(times: Floats, ell: int) -> list[str]:
    """Residuals of the linear and the spline rule, then their gains."""
    (r_linear, g_linear), (r_spline, g_spline) = (
        on_lorenz63(times, ell, rule) for rule in ("linear", "spline")
    )
    return [f"{r_linear:.0e}", f"{r_spline:.0e}", f"{g_linear:.2g}", f"{g_spline:.2g}"]


def main() -> None:
    arguments = tables.parser_of(__doc__).parse_args()
    printed, digits, jittered, random = [], [], [], []
    for p, ell in PRINTED:
        exact = [w.numpy() for w in segment_weights(p, ell, DT)]
        cells = [
            f"{error(found, wanted):.0e}"
            for dtype in (np.float32, np.float64)
            for found, wanted in zip(printed_form(p, ell, dtype), exact, strict=True)
        ]
        printed.append((f"{p}, {ell}", cells))
    for p, ell in EXACT:
        digits.append((f"{p}, {ell}", [f"{x:.1e}" for x in worst_digit(p, ell)]))
    generator = np.random.default_rng(0)
    moved = DT * (np.arange(SAMPLES) + generator.uniform(-0.4, 0.4, SAMPLES))
    for ell in (16, 20, 50, 80):
        jittered.append((str(ell), both_rules(moved, ell)))
    for name, steps in STEPS.items():
        times = DT * np.cumsum(steps(generator, SAMPLES))
        random.append((name, both_rules(times, 50)))
    rules = ["residual, linear", "residual, spline", "gain, linear", "gain, spline"]
    text = tables.page(
        "Errors of the weights of the weak form",
        "The closed form printed in the paper, with the right sign: largest error "
        "relative to the largest weight.",
        tables.grid(
            "p, ell",
            [
                f"{dtype} {w}"
                for dtype in ("float32", "float64")
                for w in ("lhs", "rhs")
            ],
            printed,
        ),
        "Ours, uniform samples: largest relative error of any single weight, against "
        "arithmetic with up to 178 digits.",
        tables.grid("p, ell", ["w_lhs", "w_rhs"], digits),
        f"Irregular samples: clean Lorenz-63, p = {P}, {SAMPLES} samples, dt = {DT:g}. "
        "Residual of the true field relative to the left-hand side; noise gain "
        "`sum_i w_lhs[i]^2`, mean over the segments. Every sample moved by up to 40 %:",
        tables.grid("ell", rules, jittered),
        "Independent random steps, ell = 50:",
        tables.grid("steps", rules, random),
    )
    tables.write_text(arguments.output / "weights.md", text)
    print(text)


if __name__ == "__main__":
    main()
