"""Weak-form sparse identification: polynomial fields of few terms.

:class:`WeakSINDy` thresholds the weak least-squares problem sequentially (Messenger and
Bortz, 2021); :class:`WENDy` (2023) then reweights its rows by the inverse covariance
that noise gives the weak residuals.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb, sqrt
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from .. import ops
from ..closed_form.fit import weak_blocks
from ..closed_form.rows import Triangle
from ..data import Series
from ..fields import LibraryField, LinearField
from ..weak.noise import estimate_noise
from ..weak.plan import SegmentSums, WeakForm
from .base import Baseline, Learned, ScalerKind, judge_of
from .random_maps import square_system


@dataclass(frozen=True)
class Reweighting:
    """Settings of :func:`reweighted`.

    Attributes:
        form: the weak form. If its q is 0, segments are a fifth of `ell` apart: the
            covariance of closer ones is nearly singular.
        ridge: added to the covariance, in units of its mean diagonal entry.
        rounds: most iterations.
        tolerance: relative change of the coefficients that ends the iteration.
    """

    form: WeakForm
    ridge: float = 1e-10
    rounds: int = 100
    tolerance: float = 1e-6

    @property
    def spacing(self) -> int:
        """Distance of the segments."""
        return self.form.q or max(1, self.form.ell // 5)


@dataclass(kw_only=True, eq=False)
class WeakSINDy(Baseline):
    """Polynomial field with few terms, fitted to the weak form.

    Data are divided by their largest absolute values, not shifted, so that terms which
    are absent from the system stay absent. Coefficient j of a component is kept while
    ``threshold max(1, |b| / |G_j|) <= |w_j| <= min(1, |b| / |G_j|) / threshold``, with
    b and G the two sides of the weak form, and the others are fitted anew.

    Args:
        degree: highest total degree; by default the lowest of `degrees` that forecasts
            held-out data as well as the best of them, to within two standard errors of
            the difference. All data are then fitted with it.
        degrees: candidates for `degree`, lowest first.
        most_terms: degrees with more terms than this are not tried.
        threshold: bound on the coefficients, see above; by default the one of
            `thresholds` with the least value of
            ``a |G (w - w_LS)| / |G w_LS| + (1 - a) (terms left) / (terms)``, where a is
            `misfit_weight`.
        thresholds: candidates for `threshold`, smallest first: 50 from 1e-4 to 1.
        misfit_weight: between 0 and 1; smaller values leave fewer terms.
        p, ell, q: the weak form; those not given are chosen from the data.
        reweight: fit the remaining terms anew with residuals weighted by the inverse of
            the covariance that noise gives them, which depends on the field.

    Attributes:
        threshold_: threshold of each component.
        std_: standard errors of the coefficients where they were reweighted, ``[J,
            D]``, NaN for absent terms; else None.

    The other arguments are those of :class:`Baseline`. :meth:`equations`
    returns the equations as text.
    """

    scaler: ScalerKind = "identity"
    degree: int | None = None
    degrees: Sequence[int] = (2, 3, 5)
    most_terms: int = 1000
    threshold: float | None = None
    thresholds: Sequence[float] = tuple(10.0 ** (-4 + 4 * n / 49) for n in range(50))
    misfit_weight: float = 0.8
    p: int | None = None
    ell: int | None = None
    q: int | None = None
    reweight: bool = False

    def _learn(self, series: Series, validation: Series | None) -> Learned:
        wanted = WeakForm(self.p or 0, self.ell or 0, self.q or 0)
        self._choose_filter(series, wanted)
        dim, degree = series.v.shape[1], self.degree
        if degree is None:
            degree = self._choose_degree(series, validation)
        field, self.threshold_, self.std_ = self._identify(series, degree)
        return field, {"dim": dim, "degree": field.degree}

    def _choose_degree(self, series: Series, validation: Series | None) -> int:
        """The lowest degree whose forecasts of held-out data are as good as any.

        Weak residuals of held-out data prefer degrees that are too high: noise at the
        arguments of the field flattens it, and powers that the system does not have
        compensate for that.
        """
        dim = series.v.shape[1]
        degrees = [n for n in self.degrees if comb(dim + n, n) <= self.most_terms]
        if len(degrees) <= 1:
            return self.degrees[0]
        series, held = self._split(series, validation)
        if held is None or held.dt is None:
            raise ValueError(
                "`degree` must be given where no data at equal distances can be held "
                "out to choose it by."
            )
        judge = judge_of(held)
        shown = self._progress(degrees, len(degrees), "degrees")
        fields = [self._identify(series, n)[0] for n in shown]
        steps = [self._step(field, held.dt) for field in fields]
        return degrees[simplest([judge.errors_of_map(step) for step in steps])]

    @classmethod
    def _build(cls, recipe: dict[str, Any]) -> nn.Module:
        return LibraryField(recipe["dim"], recipe["degree"], dtype=torch.float64)

    @torch.no_grad()
    def _identify(
        self, series: Series, degree: int
    ) -> tuple[LibraryField, list[float], Tensor | None]:
        """The sparse field of a degree, its thresholds and standard errors."""
        observed = ~series.missing
        size = series.v[observed].abs().amax(0)
        # Components that are always zero are not divided.
        size = torch.where(size > 0, size, 1.0)
        unit = replace(series, v=series.v / size)
        dim, weak = len(size), self._settings().weak
        field = LibraryField(dim, degree, dtype=torch.float64)
        record = unit.to(torch.float64)
        rows = Triangle()
        blocks = weak_blocks(
            record,
            lambda samples: field.features(record.v[samples]),
            weak,
        )
        for block in blocks:
            rows.add(block.features, block.target)
        spectrum = rows.spectrum()
        g, b = square_system(spectrum)
        norms = (b.square().sum(0) + spectrum.n_rows * spectrum.rest).sqrt()
        grid = self.thresholds if self.threshold is None else (self.threshold,)
        found = [
            sparse_solution(g, b[:, d], norms[d], grid, self.misfit_weight)
            for d in self._progress(range(dim), dim, "components")
        ]
        field.set_coefficients(torch.stack([w for w, _ in found], dim=1))
        std = None
        if self.reweight:
            noise = estimate_noise(unit.v, mask=unit.mask, lengths=unit.lengths)
            std = reweighted(
                field, record, noise.sigma, Reweighting(replace(weak, q=0))
            )
        # Terms in the units of the data: a monomial is divided by its own size.
        powers = torch.tensor(field.exponents, dtype=torch.float64)
        factor = size / (size**powers).prod(1, keepdim=True)
        field.set_coefficients(field.coefficients * factor)
        return field, [lam for _, lam in found], None if std is None else std * factor


@dataclass(kw_only=True, eq=False)
class WENDy(WeakSINDy):
    """:class:`WeakSINDy` with residuals weighted by the covariance of the noise."""

    reweight: Literal[True] = True  # type: ignore[assignment]


def simplest(errors: Sequence[Float[Tensor, " B"]]) -> int:
    """Index of the first model whose forecasts are as good as those of the best.

    Its mean error may exceed the least one by two standard errors of the difference;
    two, because forecasts of one record overlap.

    Args:
        errors: of the forecasts of each model from the same starts, simplest first.
    """
    best = min(errors, key=lambda found: found.mean().item())
    for place, found in enumerate(errors):
        worse = found - best
        margin = 2 * worse.std(correction=0).item() / sqrt(len(worse))
        if worse.mean().item() <= margin:
            return place
    raise ValueError("`errors` must have an entry for each model; got none.")


def sparse_solution(
    g: Float[Tensor, "K J"],
    b: Float[Tensor, " K"],
    norm: Float[Tensor, ""],
    grid: Sequence[float],
    misfit_weight: float = 0.8,
) -> tuple[Float[Tensor, " J"], float]:
    """Coefficients after sequential thresholding, and the threshold of least loss.

    Args:
        g, b: the least-squares problem ``g w = b``, or rows with its normal equations.
        norm: norm of the right-hand side, over all rows.
        grid: thresholds to choose from, smallest first.
        misfit_weight: weight of the misfit against the number of terms in the loss.
    """
    # Neighbouring thresholds meet the same sets of terms again and again.
    known: dict[bytes, Tensor] = {}

    def solution(kept: Bool[Tensor, " J"]) -> Float[Tensor, " J"]:
        key = kept.numpy().tobytes()
        if key not in known:
            known[key] = _least_squares(g, b, kept)
        return known[key]

    full = solution(torch.ones(g.shape[1], dtype=torch.bool))
    size = (g @ full).norm()
    ratio = norm / g.norm(dim=0)
    best, least, chosen = full, float("inf"), grid[0]
    for threshold in grid:
        low = threshold * ratio.clamp(min=1.0)
        high = ratio.clamp(max=1.0) / threshold
        w, kept = full, torch.ones_like(ratio, dtype=torch.bool)
        for _ in range(g.shape[1] + 1):
            inside = kept & (w.abs() >= low) & (w.abs() <= high)
            if torch.equal(inside, kept):
                break
            kept = inside
            w = solution(kept)
        misfit = (g @ (w - full)).norm() / size
        terms = kept.double().mean()
        loss = (misfit_weight * misfit + (1 - misfit_weight) * terms).item()
        if loss < least:
            best, least, chosen = w, loss, threshold
    return best, chosen


def _least_squares(
    g: Float[Tensor, "K J"], b: Float[Tensor, " K"], kept: Bool[Tensor, " J"]
) -> Float[Tensor, " J"]:
    from scipy.linalg import lstsq

    w = torch.zeros(g.shape[1], dtype=g.dtype)
    if kept.any():
        columns = g[:, kept]
        norms = columns.norm(dim=0).clamp(min=torch.finfo(g.dtype).tiny)
        # Torch's `gelsy` starts from uninitialised pivots, which decide the rank where
        # columns are zero or depend on each other.
        found: Any = lstsq(
            (columns / norms).numpy(),
            b.numpy(),
            cond=max(columns.shape) * torch.finfo(g.dtype).eps,
            lapack_driver="gelsy",
        )
        w[kept] = torch.from_numpy(found[0]) / norms
    return w


@torch.no_grad()
def reweighted(
    field: LinearField,
    record: Series,
    sigma: Float[Tensor, " D"],
    settings: Reweighting,
) -> Float[Tensor, "J D"]:
    """Refits the coefficients that are not zero, in place.

    Repeats ``w <- argmin r(w)^T S(w)^-1 r(w)`` until it converges, where ``S(w)`` is
    the covariance of the weak residuals of all segments, to first order in the noise. S
    is banded: segments that share no sample are independent.

    Args:
        field: the terms to keep have coefficients different from zero.
        record: observations at equal distances, float64.
        sigma: standard deviation of the noise per component.
        settings: weak form and iteration.

    Returns:
        Standard errors of the coefficients, NaN for those left out.
    """
    from scipy.linalg import cho_solve_banded, cholesky_banded

    if record.dt is None:
        raise ValueError("`v` must have samples at equal distances for `reweight`.")
    form = replace(settings.form, q=settings.spacing)
    dim = record.v.shape[1]
    kept = (field.coefficients != 0).nonzero()
    runs = [
        record.v[first:stop]
        for first, stop in record.runs
        if stop - first > form.ell + 1
    ]
    sums = SegmentSums.at(None, form, dt=record.dt)
    problems = [_rows(field, v, sums, kept) for v in runs]
    w = field.coefficients[kept[:, 0], kept[:, 1]]
    if len(w) == 0 or not runs:
        return torch.full_like(field.coefficients, float("nan"))
    covariance = torch.eye(len(w), dtype=torch.float64)
    for _ in range(settings.rounds):
        normal = torch.zeros(len(w), len(w), dtype=torch.float64)
        right = torch.zeros(len(w), dtype=torch.float64)
        for v, (x, y) in zip(runs, problems, strict=True):
            bands = residual_covariance(field.jacobian(v), sigma, sums).numpy()
            bands[0] += settings.ridge * bands[0].mean()
            factor = cholesky_banded(bands, lower=True, overwrite_ab=True)
            weighted = torch.from_numpy(cho_solve_banded((factor, True), x.numpy()))
            normal += x.T @ weighted
            right += weighted.T @ y
        scale = normal.diagonal().sqrt()
        covariance = torch.linalg.pinv(normal / scale / scale[:, None], hermitian=True)
        covariance = covariance / scale / scale[:, None]
        new = covariance @ right
        change = (new - w).norm() / new.norm()
        w = new
        field.coefficients[kept[:, 0], kept[:, 1]] = w
        if change < settings.tolerance:
            break
    std = torch.full((field.n_features, dim), float("nan"), dtype=torch.float64)
    std[kept[:, 0], kept[:, 1]] = covariance.diagonal().sqrt()
    return std


def residual_covariance(
    jacobian: Float[Tensor, "N D D"],
    sigma: Float[Tensor, " D"],
    sums: SegmentSums,
) -> Float[Tensor, "bands KD"]:
    """Lower bands of the covariance of the weak residuals of one run.

    Row ``k D + d`` is component d of segment k; the block of segments k and k + m is ::

        sum_n M_{k,n} diag(sigma^2) M_{k+m,n}^T,   M_{k,n} = w_lhs[i] I + w_rhs[i] J_n

    with ``i = n - k q``, in the storage of :func:`scipy.linalg.cholesky_banded`.
    """
    left, right, q = sums.w_lhs, sums.w_rhs, sums.q
    n, dim, _ = jacobian.shape
    ell = len(left) - 1
    count = (n - 1 - ell) // q + 1
    once = jacobian * sigma.square()
    twice = once @ jacobian.mT
    flat = torch.stack([once, once.mT.contiguous(), twice]).reshape(3, n, dim * dim)
    lags = min(ell // q, count - 1)
    bands = torch.zeros((lags + 1) * dim, count * dim, dtype=torch.float64)
    for lag in range(lags + 1):
        shift = lag * q
        here_l, here_r = left[shift:], right[shift:]
        there_l, there_r = left[: ell + 1 - shift], right[: ell + 1 - shift]
        starts = q * torch.arange(lag, count)

        def summed(i: int, w: Tensor, starts: Tensor = starts) -> Tensor:
            return ops.corr(flat[i : i + 1], w.contiguous(), starts=starts)[0]

        block = summed(0, here_r * there_l) + summed(1, here_l * there_r)
        block = (block + summed(2, here_r * there_r)).reshape(-1, dim, dim)
        block = block + (here_l @ there_l) * sigma.square().diag()
        for d in range(dim):
            for e in range(0 if lag else d, dim):
                row = lag * dim + e - d
                bands[row, d : (count - lag) * dim : dim] = block[:, d, e]
    return bands


def _rows(
    field: LinearField,
    v: Float[Tensor, "N D"],
    sums: SegmentSums,
    kept: Tensor,
) -> tuple[Float[Tensor, "KD T"], Float[Tensor, " KD"]]:
    """The weak form as equations ``x w = y`` for the coefficients that are kept."""
    g, y = sums.right(field.features(v)[None])[0], -sums.left(v[None])[0]
    x = torch.zeros(len(g), v.shape[1], len(kept), dtype=torch.float64)
    terms = torch.arange(len(kept))
    x[:, kept[:, 1], terms] = g[:, kept[:, 0]]
    return x.flatten(0, 1), y.flatten()
