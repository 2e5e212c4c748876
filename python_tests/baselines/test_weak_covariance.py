"""The covariance of weak residuals, and estimates weighted by it (WENDy)."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor, nn

from problems import lorenz63_field
from trajectories import lorenz63, normal
from wpnode_ext.baselines.weak_sindy import (
    Reweighting,
    residual_covariance,
    reweighted,
)
from wpnode_ext.closed_form import fit_closed_form
from wpnode_ext.data import lay_end_to_end, make_series
from wpnode_ext.fields import LibraryField
from wpnode_ext.fields.linear import LinearField
from wpnode_ext.weak.plan import SegmentSums, WeakForm
from wpnode_ext.weak.weights import segment_weights

# Degree, duration, start and terms (exponents, component, coefficient) of systems that
# WENDy was published with; Hindmarsh and Rose's slow variable is made faster here.
SYSTEMS = {
    "logistic": (2, 10.0, [0.01], [((1,), 0, 1.0), ((2,), 0, -1.0)]),
    "Lotka-Volterra": (
        2,
        5.0,
        [1.0, 1.0],
        [
            ((1, 0), 0, 3.0),
            ((1, 1), 0, -1.0),
            ((0, 1), 1, -6.0),
            ((1, 1), 1, 1.0),
        ],
    ),
    "FitzHugh-Nagumo": (
        3,
        25.0,
        [0.0, 0.1],
        [
            ((1, 0), 0, 3.0),
            ((3, 0), 0, -3.0),
            ((0, 1), 0, 3.0),
            ((1, 0), 1, -1 / 3),
            ((0, 0), 1, 17 / 150),
            ((0, 1), 1, 1 / 15),
        ],
    ),
    "Hindmarsh-Rose": (
        3,
        10.0,
        [-1.31, -7.59, -0.2],
        [
            ((0, 1, 0), 0, 10.0),
            ((3, 0, 0), 0, -10.0),
            ((2, 0, 0), 0, 30.0),
            ((0, 0, 1), 0, -10.0),
            ((0, 0, 0), 1, 10.0),
            ((2, 0, 0), 1, -50.0),
            ((0, 1, 0), 1, -10.0),
            ((0, 0, 0), 2, 0.2),
            ((1, 0, 0), 2, 0.2),
            ((0, 0, 1), 2, -0.1),
        ],
    ),
    # Mass action of substrate, enzyme, their complex and product: a polynomial in the
    # place of the protein transduction WENDy has, whose rates are fractions.
    "enzyme": (
        2,
        10.0,
        [1.0, 0.8, 0.0, 0.0],
        [
            ((1, 1, 0, 0), 0, -2.0),
            ((0, 0, 1, 0), 0, 0.5),
            ((1, 1, 0, 0), 1, -2.0),
            ((0, 0, 1, 0), 1, 1.0),
            ((1, 1, 0, 0), 2, 2.0),
            ((0, 0, 1, 0), 2, -1.0),
            ((0, 0, 1, 0), 3, 0.5),
        ],
    ),
}


def dense(bands: Tensor) -> Tensor:
    """The symmetric matrix whose lower bands are given."""
    size = bands.shape[1]
    rows = torch.arange(size)[:, None] - torch.arange(size)
    inside = rows.abs() < len(bands)
    columns = torch.minimum(torch.arange(size)[:, None], torch.arange(size))
    return torch.where(inside, bands[rows.abs().clamp(max=len(bands) - 1), columns], 0)


def residuals(v: Tensor, f: Tensor, weights: tuple[Tensor, Tensor], q: int) -> Tensor:
    """Weak residuals ``[*draws, K D]`` of series ``[*draws, N, D]``."""
    left, right = weights
    windows = [x.unfold(-2, len(left), q) for x in (v, f)]
    return (windows[0] @ left + windows[1] @ right).flatten(-2)


def largest_miss(found: Tensor, rows: Tensor) -> float:
    """Distance from the covariance of draws, in units of its standard deviations."""
    wanted = rows.T @ rows / len(rows)
    scale = wanted.diagonal().sqrt()
    return ((found - wanted).abs() / scale / scale[:, None]).max().item()


class TestResidualCovariance:
    def test_agrees_with_many_draws_of_noise(self) -> None:
        n, q = 60, 8
        weights = segment_weights(4, 20, 0.05)
        slope = torch.tensor([[-0.5, 2.0], [-3.0, 0.2]]).double()
        sigma = torch.tensor([0.1, 0.3]).double()
        sums = SegmentSums(*weights, q=q)
        bands = residual_covariance(slope.expand(n, 2, 2), sigma, sums)
        noise = sigma * normal(20_000, n, 2)
        rows = residuals(noise, noise @ slope.T, weights, q)
        assert largest_miss(dense(bands), rows) < 0.05

    def test_agrees_with_noise_on_lorenz63(self) -> None:
        u, q = lorenz63(111, 0.01), 20
        weights = segment_weights(8, 50, 0.01)
        sigma = torch.tensor([0.1, 0.2, 0.15]).double()
        slopes = torch.func.vmap(torch.func.jacrev(lorenz63_field))(u)
        bands = residual_covariance(slopes, sigma, SegmentSums(*weights, q=q))
        v = u + sigma * normal(20_000, *u.shape)
        rows = residuals(v, lorenz63_field(v), weights, q)
        assert largest_miss(dense(bands), rows) < 0.05

    def test_slope_of_the_log_determinant(self) -> None:
        """That of the weak likelihood too: no part of it may be cut from the graph."""
        u, sigma = lorenz63(91, 0.01), torch.tensor([0.5, 1.0, 0.8]).double()
        v = u + sigma * normal(*u.shape)
        weights, q = segment_weights(4, 30, 0.01), 12
        field = LibraryField(3, 2, dtype=torch.float64)
        field.set_coefficients(normal(*field.coefficients.shape))

        def parts() -> Tensor:
            f, slopes = field.value_and_jacobian(v)
            s = dense(residual_covariance(slopes, sigma, SegmentSums(*weights, q=q)))
            r, log_det = residuals(v, f, weights, q), torch.logdet(s)
            return torch.stack([log_det, (r @ torch.linalg.solve(s, r) + log_det) / 2])

        rows = torch.eye(2).double()
        found = torch.autograd.grad(
            parts(), field.coefficients, rows, is_grads_batched=True
        )[0]
        middle, h = field.coefficients.detach().clone(), 1e-4
        wanted = torch.zeros_like(found)
        for j, d in np.ndindex(*middle.shape):
            sides = []
            for step in (-2 * h, -h, h, 2 * h):
                moved = middle.clone()
                moved[j, d] += step
                field.set_coefficients(moved)
                sides.append(parts().detach())
            slope = sides[0] - 8 * sides[1] + 8 * sides[2] - sides[3]
            wanted[:, j, d] = slope / (12 * h)
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-5)
        assert wanted[0].abs().max() > 1


class Proportional(LinearField):
    """``f(u) = a u`` of one component."""

    dim = 1

    def __init__(self) -> None:
        super().__init__()
        self.coefficients = nn.Parameter(torch.ones(1, 1).double())

    def features(self, u: Tensor, x: Tensor | None = None) -> Tensor:
        return u


class TestLinearDecay:
    """``x' = -x`` with noise, estimated from 200 draws of ten records."""

    a, dt, sigma, records, n = -1.0, 0.05, 0.15, 10, 121
    p, ell, q = 4, 40, 8

    def estimates(self) -> dict[str, Tensor]:
        """Least squares, compensated and reweighted ones, in units of the truth."""
        t = self.dt * torch.arange(self.n).double()
        u = torch.exp(self.a * t).repeat(self.records)[:, None]
        lengths = [self.n] * self.records
        weak = {"p": self.p, "ell": self.ell, "q": self.q}
        weights = segment_weights(self.p, self.ell, self.dt)
        level = torch.tensor([self.sigma]).double()
        found: dict[str, list[float]] = {"plain": [], "compensated": [], "weighed": []}
        for _ in range(200):
            v = u + self.sigma * normal(*u.shape)
            field = Proportional()
            series = make_series(list(v.split(self.n)), dt=self.dt)
            fit_closed_form(field, series, ridge=0.0, **weak)
            found["plain"].append(field.coefficients.item())
            # |r|^2 - tr S is a parabola in a: three values give its minimum.
            table, losses = v.unflatten(0, (-1, self.n)), []
            for a in (-1.0, 0.0, 1.0):
                r = residuals(table, a * table, weights, self.q)
                slopes = torch.full((self.n, 1, 1), a).double()
                sums = SegmentSums(*weights, q=self.q)
                noise = residual_covariance(slopes, level, sums)[0].sum()
                losses.append(r.square().sum() - self.records * noise)
            low, middle, high = losses
            best = (low - high) / (2 * (low - 2 * middle + high))
            found["compensated"].append(best.item())
            record = lay_end_to_end(v, dt=self.dt, lengths=lengths)
            reweighted(field, record, level, Reweighting(WeakForm(**weak)))
            found["weighed"].append(field.coefficients.item())
        return {name: torch.tensor(x).double() / self.a for name, x in found.items()}

    @pytest.mark.slow
    def test_bias_agrees_with_theory(self) -> None:
        """Noise in the argument attenuates; subtracting the trace of S undoes it.

        Weights alone do not. At the truth ``E[G^T S^-1 r] = tr(S^-1 V L^T) sigma^2``
        is not zero, G being as noisy as r, and a term with the log-determinant of S
        does not change that to this order.
        """
        left, right = (w.numpy() for w in segment_weights(self.p, self.ell, self.dt))
        starts = range(0, self.n - self.ell, self.q)
        v_left, v_right = np.zeros((2, len(starts), self.n))
        for k, first in enumerate(starts):
            v_left[k, first : first + self.ell + 1] = left
            v_right[k, first : first + self.ell + 1] = right
        g = v_right @ np.exp(self.a * self.dt * np.arange(self.n))
        both = v_left + self.a * v_right
        inverse = np.linalg.inv(both @ both.T)
        inflation = len(g) * self.sigma**2 * (right**2).sum()
        shift = self.sigma**2 * np.trace(inverse @ v_right @ both.T) / (g @ inverse @ g)
        expected = {
            "plain": g @ g / (g @ g + inflation),
            "compensated": 1.0,
            "weighed": 1 - shift / self.a,
        }
        for name, found in self.estimates().items():
            error = found.std().item() / 200**0.5
            assert found.mean().item() == pytest.approx(expected[name], abs=3 * error)
            if name != "compensated":
                assert found.mean() < 1 - 6 * error


@pytest.mark.parametrize("name", SYSTEMS)
def test_stated_errors_of_coefficients_agree_with_the_spread(name: str) -> None:
    degree, duration, start, terms = SYSTEMS[name]
    field = LibraryField(len(start), degree, dtype=torch.float64)
    truth = torch.zeros_like(field.coefficients)
    for exponents, d, value in terms:
        truth[field.exponents.index(exponents), d] = value
    field.set_coefficients(truth)

    def slope(t: float, u: np.ndarray) -> np.ndarray:
        return field.at(torch.from_numpy(u)).detach().numpy()

    t = np.linspace(0.0, duration, 1001)
    exact = {"method": "DOP853", "rtol": 1e-10, "atol": 1e-12}
    u = solve_ivp(slope, (0, duration), start, t_eval=t, **exact).y.T
    u = torch.from_numpy(u.copy())
    sigma = 0.01 * u.square().mean(0).sqrt()
    kept, scores, errors = truth != 0, [], []
    for _ in range(20):
        field.set_coefficients(truth)
        record = lay_end_to_end(u + sigma * normal(*u.shape), dt=duration / 1000)
        std = reweighted(field, record, sigma, Reweighting(WeakForm(8, 60)))
        miss = (field.coefficients.detach() - truth)[kept]
        scores.append(miss / std[kept])
        errors.append(miss / truth[kept])
    assert 0.7 < torch.stack(scores).square().mean().sqrt() < 1.5
    assert torch.stack(errors).abs().max() < 0.03
