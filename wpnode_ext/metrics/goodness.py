"""Goodness of fit of a field to noisy data, without a reference."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import asin, exp, log, pi, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from ..common.arrays import Array, Field, as_float64, as_generator
from ..solvers.rollouts import in_dtype
from ..weak.noise import estimate_noise
from ..weak.plan import SegmentSums, WeakForm, WeakPlan

# Samples whose Jacobians are probed at a time.
CHUNK = 4096
# Rows up to which the p-values of the Shapiro-Wilk test are accurate, and Royston's
# polynomials: of the outermost weights in 1 / sqrt(n), and of the mean and the
# logarithm of the spread in log(n), or in n up to 11 rows.
SHAPIRO_ROWS = 5000
SHAPIRO_OUTER = (
    (0.0, 0.221157, -0.147981, -2.07119, 4.434685, -2.706056),
    (0.0, 0.042981, -0.293762, -1.752461, 5.682633, -3.582633),
)
SHAPIRO_MANY = (
    (-1.5861, -0.31082, -0.083751, 0.0038915),
    (-0.4803, -0.082676, 0.0030302),
)
SHAPIRO_FEW = (
    (0.544, -0.39978, 0.025054, -6.714e-4),
    (1.3822, -0.77857, 0.062767, -0.0020322),
)


@dataclass(frozen=True)
class GoodnessOfFit:
    """Weak residuals of a field in units of those that noise alone would cause.

    Attributes:
        ratio: ``sum |r_k|^2 / sum tr S_k``: near 1 where the field is right, far above
            where it misses part of the dynamics, far below where it follows the noise.
        p_value: Ljung-Box test of the residuals' whiteness, smallest over components
            and corrected for their number: small where residuals still hold dynamics.
        normality: p-value of the Shapiro-Wilk test of the whitened residuals, corrected
            likewise: small where single events leave residuals noise would not.
        autocorrelation: of the residuals at lags 1, 2, ..., averaged over components.
        n_segments: segments used; they do not overlap.
        sigma: noise that was assumed, ``[*state]``.
    """

    ratio: float
    p_value: float
    normality: float
    autocorrelation: Float[Tensor, " L"]
    n_segments: int
    sigma: Float[Tensor, "..."]

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, the rows of a short table."""
        return [
            ("squared residuals / expected of noise alone", f"{self.ratio:.3g}"),
            ("residuals are white (p-value)", f"{self.p_value:.2g}"),
            ("residuals are Gaussian (p-value)", f"{self.normality:.2g}"),
            ("  segments", str(self.n_segments)),
        ]

    def summary(self) -> dict[str, float]:
        """The numbers as builtin types."""
        return {
            "ratio": self.ratio,
            "whiteness_p": self.p_value,
            "normality_p": self.normality,
            "segments": self.n_segments,
        }


@torch.no_grad()
def goodness_of_fit(
    field: Field,
    v: Float[Tensor, "N ..."],
    *,
    dt: float,
    p: int = 8,
    ell: int = 50,
    sigma: Array | float | None = None,
    lengths: Sequence[int] | None = None,
    mask: Tensor | None = None,
    n_probes: int = 1,
    n_lags: int = 10,
    seed: int | torch.Generator = 0,
) -> GoodnessOfFit:
    """Compares weak residuals with the covariance that noise alone would give them.

    To first order in the noise the residual of a segment has the covariance ::

        S_k = sum_j M_j diag(sigma^2) M_j^T,   M_j = w_lhs[j] I + w_rhs[j] J_f(v_j),

    whose trace is estimated with random signs, one product with the transposed
    Jacobian ``J_f`` a sample. Segments are laid side by side: they share no sample that
    carries weight, so their residuals are independent.

    Args:
        field: callable ``field(t, u)`` that autograd can differentiate; used in
            float64.
        v: observations, ``[N, *state]``, in the coordinates of the field.
        dt: distance of the samples.
        p, ell: weak form.
        sigma: standard deviation of the noise, a number or ``[*state]``; default
            :func:`~wpnode_ext.estimate_noise`.

    Other Args:
        lengths, mask: as in :class:`~wpnode_ext.WeakPlan`.
        n_probes: products with the Jacobian per sample.
        n_lags: lags of the whiteness test.
        seed: seed, or generator, of the random signs.
    """
    data = v.detach().to(torch.float64)
    state = data.shape[1:]
    if sigma is None:
        level = estimate_noise(data, mask=mask, lengths=lengths).sigma
    elif isinstance(sigma, (int, float)):
        level = torch.full(state, float(sigma), dtype=torch.float64)
    else:
        level = as_float64(sigma, "sigma").expand(state)
    if not (level > 0).any():
        raise ValueError("`sigma` must be positive; without noise any misfit is real.")
    level = level.to(data.device)
    plan = WeakPlan(data, dt=dt, p=p, ell=ell, q=ell, lengths=lengths, mask=mask)
    times = dt * torch.arange(len(data), dtype=torch.float64, device=data.device)
    trace, energy, f = _noise_terms(
        in_dtype(field, data.dtype), times, data, level, n_probes, as_generator(seed)
    )
    residual = plan.residual(f).reshape(plan.n_segments, -1)

    sums = SegmentSums.at(plan.starts, WeakForm(p, ell, ell), dt=dt)
    w_lhs, w_rhs = sums.w_lhs, sums.w_rhs
    terms = torch.stack([torch.ones_like(trace), trace, energy], -1)[None]
    total = level.square().sum().cpu()
    weights = (w_lhs**2 * total, 2 * w_lhs * w_rhs, w_rhs**2)
    expected = sum(
        sums.weighted(terms[..., i : i + 1].contiguous(), w)
        for i, w in enumerate(weights)
    )
    expected = torch.as_tensor(expected)[0, :, 0].clamp(min=0.0)
    ratio = residual.square().sum() / expected.sum()
    whitened = residual / expected.sqrt().clamp(min=1e-300)[:, None]
    white = whitened[:, level.flatten() > 0]
    p_value, correlation = ljung_box(white, n_lags=n_lags)
    return GoodnessOfFit(
        ratio=ratio.item(),
        p_value=p_value,
        normality=shapiro_wilk(white),
        autocorrelation=correlation,
        n_segments=plan.n_segments,
        sigma=level.cpu(),
    )


def ljung_box(
    x: Float[Tensor, "n D"], *, n_lags: int = 10
) -> tuple[float, Float[Tensor, " L"]]:
    """Ljung-Box test of whiteness of every column.

    ``Q = n (n + 2) sum_h rho_h^2 / (n - h)`` follows a chi-square law with as many
    degrees of freedom as lags where the column is white.

    Returns:
        The smallest p-value times the number of columns (at most 1), and the
        autocorrelation at lags 1 to L averaged over the columns.
    """
    n = len(x)
    n_lags = min(n_lags, n // 4)
    if n_lags < 1:
        raise ValueError(f"`x` must have at least 4 rows to test whiteness; got {n}.")
    centred = x - x.mean(0)
    variance = centred.square().sum(0)
    rho = torch.stack(
        [(centred[h:] * centred[:-h]).sum(0) / variance for h in range(1, n_lags + 1)]
    )
    lags = torch.arange(1, n_lags + 1, dtype=x.dtype, device=x.device)
    statistic = n * (n + 2) * (rho.square() / (n - lags)[:, None]).sum(0)
    half = torch.tensor(n_lags / 2, dtype=torch.float64)
    p_values = torch.special.gammaincc(half, statistic.cpu().double() / 2)
    return min(1.0, float(p_values.min()) * x.shape[1]), rho.mean(1).cpu()


def shapiro_wilk(x: Float[Tensor, "n D"]) -> float:
    """Shapiro-Wilk test of normality of every column.

    Royston's approximation (algorithm AS R94), as in ``scipy.stats.shapiro``, whose
    import would take longer than all tests.

    Returns:
        The smallest p-value times the number of columns, at most 1. Of more rows than
        the test is made for, evenly spread ones are taken.
    """
    if len(x) < 3:
        raise ValueError(f"`x` must have at least 3 rows; got {len(x)}.")
    rows = x[:: -(-len(x) // SHAPIRO_ROWS)].double().cpu().sort(0)[0]
    centred = rows - rows.mean(0)
    shape = (_shapiro_weights(len(rows)) @ centred).square() / centred.square().sum(0)
    p_values = _shapiro_p_values(1 - shape, len(rows))
    return min(1.0, p_values.min().item() * x.shape[1])


def _shapiro_weights(n: int) -> Float[Tensor, " n"]:
    """Weights of the ordered values in Shapiro and Wilk's W, of norm one."""
    ranks = torch.arange(1, n + 1, dtype=torch.float64)
    m = torch.special.ndtri((ranks - 0.375) / (n + 0.25))
    if n == 3:
        return torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64) / sqrt(2)
    size, few = m.square().sum().sqrt(), 1 if n <= 5 else 2
    outer = [
        _polynomial(c, 1 / sqrt(n)) + (m[-k] / size).item()
        for k, c in enumerate(SHAPIRO_OUTER[:few], start=1)
    ]
    a = m.clone()
    rest = m[few : n - few].square().sum()
    a /= (rest / (1 - 2 * sum(x**2 for x in outer))).sqrt()
    for k, value in enumerate(outer):
        a[k], a[-1 - k] = -value, value
    return a


def _shapiro_p_values(left: Float[Tensor, " D"], n: int) -> Float[Tensor, " D"]:
    """p-values of W given ``1 - W``, which is log-normal after a transformation."""
    if n == 3:
        angle = (1 - left).sqrt().asin() - asin(sqrt(0.75))
        return (6 / pi * angle).clamp(min=0)
    y = left.clamp(min=torch.finfo(torch.float64).tiny).log()
    mean, spread, at = SHAPIRO_MANY[0], SHAPIRO_MANY[1], log(n)
    if n <= 11:
        y = -(_polynomial((-2.273, 0.459), n) - y).clamp(min=1e-99).log()
        mean, spread, at = SHAPIRO_FEW[0], SHAPIRO_FEW[1], float(n)
    z = (y - _polynomial(mean, at)) / exp(_polynomial(spread, at))
    return torch.special.ndtr(-z)


def _polynomial(coefficients: tuple[float, ...], x: float) -> float:
    return sum(c * x**k for k, c in enumerate(coefficients))


def _noise_terms(
    field: Field,
    t: Float[Tensor, " N"],
    v: Float[Tensor, "N ..."],
    sigma: Float[Tensor, "..."],
    n_probes: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor]:
    """``tr(J diag(sigma^2))``, ``|J diag(sigma)|^2`` and the field at every sample.

    With random signs s the first is the mean of ``s . J diag(sigma^2) s``, the second
    that of ``|diag(sigma) J^T s|^2``.
    """
    traces, energies, values = [], [], []
    variance = sigma.square()
    for times, states in zip(t.split(CHUNK), v.split(CHUNK), strict=True):
        when = times.reshape(-1, *(1,) * (states.dim() - 1))
        trace = energy = torch.zeros(len(states), dtype=v.dtype, device=v.device)
        with torch.enable_grad():
            u = states.detach().requires_grad_()
            f = field(when, u)
        for _ in range(n_probes if f.requires_grad else 0):
            signs = (2 * torch.randint(2, u.shape, generator=generator) - 1).to(u)
            (slope,) = torch.autograd.grad(
                f, u, signs, retain_graph=True, materialize_grads=True
            )
            weighted = variance * slope
            trace = trace + (signs * weighted).flatten(1).sum(1) / n_probes
            energy = energy + (slope * weighted).flatten(1).sum(1) / n_probes
        traces.append(trace)
        energies.append(energy)
        values.append(f.detach())
    return torch.cat(traces), torch.cat(energies), torch.cat(values)
