"""Weak-form sparse identification: polynomials of few terms, as equations to read.

Sequential thresholding of the weak least-squares problem (Messenger and Bortz, 2021),
and iterative reweighting by the covariance noise gives its residuals (WENDy, 2023).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from scipy.linalg import lstsq
from torch import Tensor, nn

from ..closed_form.blocks import weak_blocks
from ..closed_form.rows import Triangle
from ..data import Series
from ..fields import LibraryField
from ..settings.config import WeakForm
from ..weak.noise import estimate_noise
from ..weak.record import Record
from .base import Baseline, Learned, ScalerKind
from .held_out import simplest
from .progress import progress
from .ridge import square_system
from .weak_covariance import reweighted

# Thresholds tried where none is given.
GRID: tuple[float, ...] = tuple(10.0 ** (-4 + 4 * n / 49) for n in range(50))
# Weight of the misfit against the number of terms in the choice of the threshold.
_MISFIT = 0.8
# Degrees tried where none is given, and terms up to which they are.
DEGREES: tuple[int, ...] = (2, 3, 5)
_TERMS = 1000


@dataclass(kw_only=True, eq=False)
class WeakSINDy(Baseline):
    """Polynomial field with few terms, fitted to the weak form.

    Data are divided by their largest absolute values, not shifted, so that terms which
    are absent from the system stay absent. Coefficient j of a component is kept while
    ``threshold max(1, |b| / |G_j|) <= |w_j| <= min(1, |b| / |G_j|) / threshold``, with
    b and G the two sides of the weak form, and the others are fitted anew.

    Args:
        degree: highest total degree; by default the lowest of 2, 3 and 5 that
            forecasts held-out data as well as the best of them, to within two standard
            errors of the difference. All data are then fitted with it.
        threshold: of the terms; by default the one of 50 between 1e-4 and 1 with the
            least ``0.8 |G (w - w_LS)| / |G w_LS| + 0.2 (terms left) / (terms)``.
        p, ell, q: the weak form; chosen from the data where they are not given.
        reweight: fit the remaining terms anew with residuals weighted by the inverse of
            the covariance noise gives them, which depends on the field.

    Attributes:
        threshold_: threshold of each component.
        std_: standard errors of the coefficients where they were reweighted, ``[J,
            D]``, NaN for absent terms; else None.

    The other arguments are those of :class:`Baseline`; :meth:`equations` prints what
    was found.
    """

    name: ClassVar[str] = "weak_sindy"

    scaler: ScalerKind = "identity"
    degree: int | None = None
    threshold: float | None = None
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

        Weak residuals of held-out data cannot tell: noise at the arguments of the field
        flattens it, and powers the system does not have make up for that.
        """
        dim = series.v.shape[1]
        degrees = [n for n in DEGREES if comb(dim + n, n) <= _TERMS] or [DEGREES[0]]
        if len(degrees) == 1:
            return degrees[0]
        series, judge = self._split(series, validation)
        if judge is None or judge.dt is None:
            raise ValueError(
                "`degree` must be given where no data at equal distances can be held "
                "out to choose it by."
            )
        shown = progress(degrees, len(degrees), self.verbose, "degrees")
        fields = [self._identify(series, n)[0] for n in shown]
        return degrees[
            simplest([judge.errors(self._step(field, judge.dt)) for field in fields])
        ]

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
        # Components that are always zero have no size, and need none.
        size = torch.where(size > 0, size, 1.0)
        unit = replace(series, v=series.v / size)
        dim, weak = len(size), self._settings().weak
        field = LibraryField(dim, degree, dtype=torch.float64)
        record = Record(**unit.plan_arguments())
        rows = Triangle()
        blocks = weak_blocks(
            record,
            lambda samples: field.features(record.v[samples]),
            p=weak.p,
            ell=weak.ell,
            q=weak.q,
        )
        for block in blocks:
            rows.add(block.features, block.target)
        spectrum = rows.spectrum()
        g, b = square_system(spectrum)
        norms = (b.square().sum(0) + spectrum.n_rows * spectrum.rest).sqrt()
        grid = GRID if self.threshold is None else (self.threshold,)
        components = progress(range(dim), dim, self.verbose, "components")
        found = [sparse_solution(g, b[:, d], norms[d], grid) for d in components]
        field.set_coefficients(torch.stack([w for w, _ in found], dim=1))
        std = None
        if self.reweight:
            noise = estimate_noise(unit.v, mask=unit.mask, lengths=unit.lengths)
            std = reweighted(field, record, noise.sigma, p=weak.p, ell=weak.ell)
        # Terms in the units of the data: a monomial is divided by its own size.
        powers = torch.tensor(field.exponents, dtype=torch.float64)
        factor = size / (size**powers).prod(1, keepdim=True)
        field.set_coefficients(field.coefficients * factor)
        return field, [lam for _, lam in found], None if std is None else std * factor


@dataclass(kw_only=True, eq=False)
class WENDy(WeakSINDy):
    """:class:`WeakSINDy` with residuals weighted by the covariance of the noise."""

    name: ClassVar[str] = "wendy"

    reweight: Literal[True] = True  # type: ignore[assignment]


def sparse_solution(
    g: Float[Tensor, "K J"],
    b: Float[Tensor, " K"],
    norm: Float[Tensor, ""],
    grid: Sequence[float],
) -> tuple[Float[Tensor, " J"], float]:
    """Coefficients after sequential thresholding, and the threshold of least loss.

    Args:
        g, b: the least-squares problem ``g w = b``, or rows with its normal equations.
        norm: of the right-hand side of all rows.
        grid: thresholds to choose from, smallest first.
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
        loss = (_MISFIT * misfit + (1 - _MISFIT) * terms).item()
        if loss < least:
            best, least, chosen = w, loss, threshold
    return best, chosen


def _least_squares(
    g: Float[Tensor, "K J"], b: Float[Tensor, " K"], kept: Bool[Tensor, " J"]
) -> Float[Tensor, " J"]:
    w = torch.zeros(g.shape[1], dtype=g.dtype)
    if kept.any():
        columns = g[:, kept]
        norms = columns.norm(dim=0).clamp(min=torch.finfo(g.dtype).tiny)
        # Torch leaves the first order of the columns to what the memory holds, which
        # decides the rank where columns are zero or depend on each other.
        found: Any = lstsq(
            (columns / norms).numpy(),
            b.numpy(),
            cond=max(columns.shape) * torch.finfo(g.dtype).eps,
            lapack_driver="gelsy",
        )
        w[kept] = torch.from_numpy(found[0]) / norms
    return w
