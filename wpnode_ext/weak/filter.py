"""The filter behind the weak form: it projects a series on translated bumps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .. import ops
from ..common.arrays import Array, as_float64, like_given
from ..ops.checks import check_layout
from .segments import missing_values
from .test_functions import PolynomialBump

# Numbers filtered at once, so that memory stays near that of the data.
ENTRIES = 2**23


@dataclass(frozen=True)
class FilterSettings:
    """Numerical choices of the filter.

    Attributes:
        ridge: directions of the span whose Gram eigenvalue is below this share of a
            bump's squared norm are damped, because rounding decides them.
        refinements: steps of iterative refinement, which undo the ridge elsewhere.
        overhang: least share of a bump's squared norm inside of the record.
        negligible: mean square of the part of a constant that bumps miss, below which
            it is rounding.
    """

    ridge: float = 1e-13
    refinements: int = 2
    overhang: float = 1e-4
    negligible: float = 1e-20


_DEFAULT = FilterSettings()


def filter_series(
    v: Array,
    *,
    p: int,
    ell: int,
    q: int,
    mask: Array | None = None,
    lengths: Sequence[int] | None = None,
    settings: FilterSettings = _DEFAULT,
) -> Float[Tensor, "N ..."]:
    """``u_K`` of the paper: the series in the span of bumps `q` samples apart.

    ``u_K(t) = sum_k c_k phi((t - t_k) / (ell dt / 2))`` with the coefficients that
    solve ``sum_k <phi_i, phi_k> c_k = <v, phi_i>``. Inner products are sums over the
    samples that are not missing, so ``u_K`` is their least-squares fit, and filtering
    twice changes nothing. The span also has the constants, of which bumps miss up to
    0.5 %: the mean of a series does not change its noise.

    The variance of white noise falls to about 1/q, and signals outside of the span are
    lost: `q` trades noise against bias, and ``ell / 6`` is a good start. The Gram
    matrix is banded: time and memory are linear in N.

    Bumps hang over both ends of a record, so that its first and last samples are fitted
    too, with about twice the error of the others. For small `q` the bumps are almost
    dependent; directions of the span that rounding cannot resolve (Gram eigenvalues
    below 1e-13 of a bump's squared norm) are damped.

    Args:
        v: series, ``[N, *state]`` with uniform steps; NaN marks missing values.
        p: exponent of the bump ``(1 - s^2)^p``.
        ell: bumps have ``ell + 1`` samples (even).
        q: distance between neighbouring bumps, in samples, at most ``ell / 2``.
        mask: True where a value is missing, ``[N]`` or ``[N, *state]``.
        lengths: lengths of several series laid end to end; each is filtered alone.
        settings: numerical choices.

    Returns:
        Filtered series in the shape and dtype of `v`, computed in float64; NaN where
        values are missing.
    """
    data = as_float64(v, "v")
    bump = _Bump.of(p, ell, q, settings)
    if data.dim() == 0 or len(data) < ell + 1:
        raise ValueError(
            f"`v` has {data.shape[0] if data.dim() else 1} samples, fewer than the "
            f"ell + 1 = {ell + 1} a bump needs; use a smaller `ell`."
        )
    if mask is not None:
        data = marked_missing(data, mask)
    flat = data.reshape(len(data), -1)
    missing = ~flat.isfinite()
    pieces = [len(data)] if lengths is None else list(lengths)
    if min(pieces, default=0) < ell + 1 or sum(pieces) != len(data):
        raise ValueError(
            f"`lengths` must be at least ell + 1 = {ell + 1} and add up to "
            f"{len(data)}; got {pieces}."
        )
    filtered = torch.empty_like(flat)
    for seen, parts in _alike(~missing, pieces):
        values = torch.cat([flat[rows, columns] for rows, columns in parts], -1)
        values.masked_fill_(~seen[:, None], 0.0)
        fitted = _project(values, seen, bump)
        fitted.masked_fill_(~seen[:, None], float("nan"))
        widths = [len(columns) for _, columns in parts]
        for (rows, columns), part in zip(parts, fitted.split(widths, -1), strict=True):
            filtered[rows, columns] = part
    return like_given(filtered.reshape(data.shape), v)


@dataclass(frozen=True)
class FilterScore:
    """Scores of a filter from the noisy series alone; smaller is better.

    Attributes:
        J: ``(J_smooth + J_pred) / 2``, the paper's score.
        J_smooth: ``|log(Var(du_K) / Var(dv) / 0.2)|``: distance from a fixed amount of
            smoothing, which suits about 5 % noise only.
        J_pred: squared error of the forecast "as the filtered value before" over that
            of "as the value before".

    Scores are means over the components that change.
    """

    J: float
    J_smooth: float
    J_pred: float


def score_filter(
    v: Array,
    *,
    p: int,
    ell: int,
    q: int,
    mask: Array | None = None,
    lengths: Sequence[int] | None = None,
    u_filtered: Array | None = None,
    smoothness_target: float = 0.2,
) -> FilterScore:
    """Scores of the filter with these parameters; see :class:`FilterScore`.

    Args:
        v, p, ell, q, mask, lengths: as in :func:`filter_series`.
        u_filtered: the filtered series, if it is known.
        smoothness_target: ratio of variances that J_smooth aims at, 0.2 in the paper.
    """
    data = as_float64(v, "v")
    if u_filtered is None:
        u_filtered = filter_series(data, p=p, ell=ell, q=q, mask=mask, lengths=lengths)
    u = as_float64(u_filtered, "u_filtered")
    if mask is not None:
        data = marked_missing(data, mask)
    x, y = data.reshape(len(data), -1), u.reshape(len(data), -1)
    follows = torch.ones(len(x) - 1, dtype=torch.bool)
    if lengths is not None:
        follows[torch.tensor(list(lengths)).cumsum(0)[:-1] - 1] = False
    dx, dy = x.diff(dim=0)[follows], y.diff(dim=0)[follows]
    ahead = (x[1:] - y[:-1])[follows]
    smooth = (_nanvar(dy) / _nanvar(dx) / smoothness_target).log().abs()
    prediction = ahead.square().nansum(0) / dx.square().nansum(0)
    J_smooth, J_pred = smooth.nanmean().item(), prediction.nanmean().item()
    return FilterScore(J=(J_smooth + J_pred) / 2, J_smooth=J_smooth, J_pred=J_pred)


def marked_missing(data: Float[Tensor, "N ..."], mask: Array) -> Float[Tensor, "N ..."]:
    """The data with NaN where the mask, ``[N]`` or ``[N, *state]``, is True."""
    return data.masked_fill(missing_values(mask, data), float("nan"))


def noise_share(p: int, ell: int, q: int) -> float:
    """Share of the variance of white noise that the filter keeps.

    It equals the degrees of freedom of the filter per sample: ``1/q`` for independent
    bumps, less where directions of the span are damped. Computed from the symbol of the
    Gram matrix, that is for samples far from the ends.
    """
    bump = _Bump.of(p, ell, q)
    gram, ridge = bump.gram / bump.gram[0], bump.settings.ridge
    angles = np.linspace(0.0, np.pi, 1001)
    modes = np.cos(np.outer(angles, np.arange(1, len(gram))))
    eigenvalues = np.maximum(gram[0] + 2 * modes @ gram[1:], 0.0)
    kept = 1 - (ridge / (eigenvalues + ridge)) ** (bump.settings.refinements + 1)
    return float(kept.mean() / q)


class _Bump(NamedTuple):
    """Samples of a bump, and inner products with its translates by 0, q, 2q, ..."""

    phi: Float[Tensor, " w"]
    gram: Float[np.ndarray, " b"]
    q: int
    settings: FilterSettings

    @classmethod
    def of(
        cls, p: int, ell: int, q: int, settings: FilterSettings = _DEFAULT
    ) -> "_Bump":
        check_layout(ell, q)
        if q > ell // 2:
            raise ValueError(
                f"`q` must be at most ell / 2 = {ell // 2}, or bumps leave samples "
                f"between them uncovered; got {q}."
            )
        phi = PolynomialBump(p).phi(np.arange(-ell, ell + 1, 2) / ell)
        shifts = range(0, ell, q)
        gram = np.array([phi[m:] @ phi[: ell + 1 - m] for m in shifts])
        return cls(torch.from_numpy(phi), gram, q, settings)

    @property
    def overhang(self) -> int:
        """Samples by which a bump may begin before the record."""
        inside = self.phi.square().flip(0).cumsum(0).flip(0)
        return int((inside >= self.settings.overhang * self.gram[0]).sum()) - 1


def _project(
    x: Float[Tensor, "N D"], seen: Bool[Tensor, " N"], bump: _Bump
) -> Float[Tensor, "N D"]:
    """Least-squares fit of the samples seen (others must be 0) by translated bumps."""

    from scipy.linalg import cho_solve_banded, cholesky_banded

    phi, q = bump.phi, bump.q
    n, width = len(x), len(phi)
    room = n + 2 * bump.overhang
    count = (room - width) // q + 1
    # The two ends share the samples that the spacing leaves over.
    before = bump.overhang - (room - width - (count - 1) * q) // 2
    length = (count - 1) * q + width
    # The last column is the constant, as far as it was seen.
    columns = x.new_zeros(1, length, x.shape[1] + 1)
    columns[0, before : before + n, :-1] = x
    columns[0, before : before + n, -1] = seen.double()
    there = columns[..., -1:].contiguous()
    factor = cholesky_banded(
        _gram(there, bump, count), lower=True, overwrite_ab=True, check_finite=False
    )
    coefficients = columns.new_zeros(1, count, columns.shape[2])
    misfit = columns
    for _ in range(1 + bump.settings.refinements):
        right = ops.corr(misfit, phi, q=q)[0].numpy()
        del misfit  # frees memory for the next one
        change = cho_solve_banded((factor, True), right, check_finite=False)
        coefficients += torch.from_numpy(change)
        fitted = ops.corr_t(coefficients, phi, n_samples=length, q=q)
        misfit = fitted.neg_().add_(columns).mul_(there)
    # Valid where samples were seen; the caller uses no others.
    fitted = columns.sub_(misfit)[0, before : before + n]
    del misfit
    # The part of the constant that bumps miss is orthogonal to them: a direction more.
    missed = 1 - fitted[:, -1:]
    seen_missed = seen.double()[:, None] * missed
    size = seen_missed.square().sum()
    if size < bump.settings.negligible * seen.sum():
        return fitted[:, :-1]
    return fitted[:, :-1].addmm_(missed, seen_missed.mT @ x / size)


def _gram(
    there: Float[Tensor, "1 L 1"], bump: _Bump, count: int
) -> Float[np.ndarray, "b K"]:
    """Lower bands of the Gram matrix over the samples that are not missing."""
    phi, q = bump.phi, bump.q
    # In the order LAPACK works in: it would copy any other.
    bands = np.empty((min(count, len(bump.gram)), count), order="F")
    bands[:] = bump.gram[:count, None]
    # Complete windows have the same inner products; those at ends and gaps are summed.
    ones = torch.ones_like(phi)
    full = ops.corr(there, ones, q=q)[0, :, 0] == len(phi)
    partial = (~full).nonzero().flatten()
    for number in range(len(bands)):
        shift = number * q
        product = torch.zeros_like(phi)
        product[shift:] = phi[shift:] * phi[: len(phi) - shift]
        sums = ops.corr(there, product, starts=partial * q)[0, :, 0]
        bands[number, partial.numpy()] = sums.numpy()
    bands[0] += bump.settings.ridge * bump.gram[0]
    return bands


Part = tuple[slice, list[int]]


def _alike(
    there: Bool[Tensor, "N D"], pieces: Sequence[int]
) -> Iterator[tuple[Bool[Tensor, " n"], list[Part]]]:
    """Rows and columns that miss the same samples, and so share a Gram matrix."""
    whole: dict[int, list[Part]] = {}
    first = 0
    for length in pieces:
        rows = slice(first, first + length)
        first += length
        for columns in _same_columns(there[rows]):
            seen = there[rows, columns[0]]
            width = max(1, ENTRIES // length)
            for left in range(0, len(columns), width):
                part = (rows, columns[left : left + width])
                if seen.all():
                    whole.setdefault(length, []).append(part)
                else:
                    yield seen, [part]
    for length, parts in whole.items():
        together: list[Part] = []
        for part in parts:
            if sum(len(columns) for _, columns in [*together, part]) * length > ENTRIES:
                yield there.new_ones(length), together
                together = []
            together.append(part)
        yield there.new_ones(length), together


def _same_columns(there: Bool[Tensor, "N D"]) -> list[list[int]]:
    """Columns grouped by the samples they have."""
    if there.all():
        return [list(range(there.shape[1]))]
    _, group = torch.unique(there.T, dim=0, return_inverse=True)
    return [
        (group == g).nonzero().flatten().tolist() for g in range(int(group.max()) + 1)
    ]


def _nanvar(x: Float[Tensor, "N D"]) -> Float[Tensor, " D"]:
    return (x - x.nanmean(0)).square().nanmean(0)
