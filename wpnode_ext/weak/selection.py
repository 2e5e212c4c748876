"""Chooses (p, q, ell) from the data alone."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..common.arrays import Array, as_float64
from .filter import filter_series, marked_missing, noise_share, score_filter
from .noise import estimate_noise
from .segments import gap_free_runs

Criterion = Literal["risk", "J"]


@dataclass(frozen=True)
class SearchSettings:
    """The candidates :func:`select_weak_form` compares, and how it chooses.

    Attributes:
        exponents: values of p.
        windows: values of ell.
        spacings: values of q.
        densest, sparsest: range of q in standard deviations of the bump. Denser bumps
            are almost dependent: together they pass signals that a single bump, as the
            loss uses it, does not. Sparser bumps leave gaps.
        narrowest: standard deviation of a bump, in samples, below which samples no
            longer resolve it.
        indifference: relative distance from the smallest risk within which the shortest
            window wins.
        segments_per_bump: segments of the loss for each bump of the filter. Denser
            segments add no information.
        pieces: pieces a long record is cut into.
        components: most entries of a state that are filtered.
    """

    exponents: tuple[int, ...] = (2, 4, 8, 16)
    windows: tuple[int, ...] = (10, 16, 24, 36, 50, 80, 120, 180)
    spacings: tuple[int, ...] = (*range(1, 13), *range(14, 25, 2), *range(28, 61, 4))
    densest: float = 1.1
    sparsest: float = 2.0
    narrowest: float = 1.8
    indifference: float = 0.1
    segments_per_bump: int = 4
    pieces: int = 5
    components: int = 16


_DEFAULT = SearchSettings()


@dataclass(frozen=True)
class Candidate:
    """One row of the table: a filter and its scores on the data.

    Attributes:
        risk: estimate of the mean squared error of the filtered series in units of the
            noise variance; below 1 the filter improves on the data.
        J, J_smooth, J_pred: the paper's scores, see
            :class:`~wpnode_ext.weak.filter.FilterScore`.
    """

    p: int
    ell: int
    q: int
    risk: float
    J: float
    J_smooth: float
    J_pred: float


@dataclass(frozen=True)
class WeakFormChoice:
    """Parameters of the weak form, and the table behind them.

    Attributes:
        p, ell: test function and length of the segments.
        q: distance of segments for the loss.
        q_filter: distance of bumps for :func:`~wpnode_ext.filter_series`.
        window: length of a segment in time, ``ell dt``; in samples if `dt` is unknown.
        criterion: the score that was minimised.
        sigma: noise the risk was computed with, ``[*state]``.
        table: every candidate, best first.
        note: the share of the data that was used, or "" for all.
    """

    p: int
    ell: int
    q: int
    q_filter: int
    window: float
    criterion: Criterion
    sigma: Float[Tensor, "..."]
    table: tuple[Candidate, ...]
    note: str

    def rows(self) -> list[dict[str, Any]]:
        """The table as dictionaries, for CSV files and data frames."""
        return [asdict(candidate) for candidate in self.table]


def select_weak_form(
    v: Array,
    dt: float | None = None,
    *,
    p: Sequence[int] | None = None,
    ell: Sequence[int] | None = None,
    q: Sequence[int] | None = None,
    criterion: Criterion = "risk",
    sigma: Array | float | None = None,
    mask: Array | None = None,
    lengths: Sequence[int] | None = None,
    max_samples: int = 10_000,
    settings: SearchSettings = _DEFAULT,
) -> WeakFormChoice:
    """Chooses (p, q, ell) by how well the filter they define cleans the data.

    With noise of variance ``sigma^2`` ::

        risk = mean |v - u_K|^2 - sigma^2 + 2 sigma^2 (degrees of freedom) / N

    estimates the squared error of the filtered series without bias and without clean
    data (Stein, Mallows). On Lorenz-63 with 1, 5 and 20 % noise the filter of least
    risk has an error within 2 % of the best filter of the grid; that of least J, the
    paper's score, is 12, 59 and 120 % worse, because its smoothness target suits one
    noise level. Among choices within 10 % of the smallest risk the shortest window
    wins, because it needs fewer samples without a gap.

    Args:
        v: series, ``[N, *state]`` with uniform steps; NaN marks missing values.
        dt: distance of samples, to report the window in time.
        p, ell, q: values to try instead of those of `settings`. By default windows
            that fit ten times into the data; never spacings above half a window.
        criterion: "risk", or "J" of the paper (then ``q = q_filter``).
        sigma: standard deviation of the noise, a number or ``[*state]``; default
            :func:`~wpnode_ext.estimate_noise`.
        mask, lengths: as in :func:`~wpnode_ext.filter_series`.
        max_samples: most samples used, in pieces spread over the record.
        settings: candidates and rule of choice.
    """
    if criterion not in ("risk", "J"):
        raise ValueError(f"`criterion` must be 'risk' or 'J'; got {criterion!r}.")
    data = as_float64(v, "v")
    data = data[:, None] if data.dim() == 1 else data
    level = estimate_noise(data, mask=mask, lengths=lengths).sigma
    if sigma is not None:
        level = torch.as_tensor(sigma, dtype=torch.float64).expand(data.shape[1:])
    if mask is not None:
        data = marked_missing(data, mask)
    sample = _sample(data, lengths, level, max_samples, settings)
    if ell is None:
        ell = _windows(min(sample.lengths), settings)
        ell = _with_room(ell, data, lengths)
    forms = [
        (exponent, window, spacing)
        for exponent in p or settings.exponents
        for window in ell
        for spacing in q or _spacings(exponent, window, settings)
        if spacing <= window // 2
    ]
    if not forms:
        raise ValueError(
            f"no candidate among p = {list(p or settings.exponents)} and ell = "
            f"{list(ell)}: every `q` is above ell / 2, or every bump is narrower than "
            "two samples. Give a larger `ell`, or a smaller `q`."
        )
    table = [_candidate(sample, *form) for form in forms]
    table.sort(key=lambda row: row.risk if criterion == "risk" else row.J)
    best = _simplest(table, settings) if criterion == "risk" else table[0]
    denser = settings.segments_per_bump if criterion == "risk" else 1
    return WeakFormChoice(
        p=best.p,
        ell=best.ell,
        q=max(1, best.q // denser),
        q_filter=best.q,
        window=best.ell * (1.0 if dt is None else dt),
        criterion=criterion,
        sigma=level,
        table=tuple(table),
        note=sample.note,
    )


class _Sample(NamedTuple):
    """Pieces of the data laid end to end, their lengths, their noise, and a note."""

    x: Float[Tensor, "n d"]
    lengths: list[int]
    sigma: Float[Tensor, " d"]
    note: str


def _simplest(table: Sequence[Candidate], settings: SearchSettings) -> Candidate:
    """The candidate of the shortest window among those about as good as the first."""
    # Differences far below the noise do not count either.
    least = table[0].risk
    limit = least + max(settings.indifference * abs(least), 1e-3)
    near = [row for row in table if row.risk <= limit]
    return min(near, key=lambda row: (row.ell, row.risk))


def _candidate(sample: _Sample, p: int, ell: int, q: int) -> Candidate:
    x, pieces, sigma, _ = sample
    u = filter_series(x, p=p, ell=ell, q=q, lengths=pieces)
    variance = sigma.square()
    misfit = (x - u).square().nanmean(0) / variance
    risk = misfit.mean().item() - 1 + 2 * noise_share(p, ell, q)
    score = score_filter(x, p=p, ell=ell, q=q, lengths=pieces, u_filtered=u)
    return Candidate(p, ell, q, risk, score.J, score.J_smooth, score.J_pred)


def _spacings(p: int, ell: int, settings: SearchSettings) -> list[int]:
    deviation = ell / 2 / (2 * p + 3) ** 0.5
    if deviation < settings.narrowest:
        return []
    low, high = settings.densest, settings.sparsest
    return [q for q in settings.spacings if low <= q / deviation <= high]


def _windows(shortest: int, settings: SearchSettings) -> Sequence[int]:
    fitting = tuple(window for window in settings.windows if 10 * window <= shortest)
    if not fitting:
        raise ValueError(
            f"`v` must have {10 * settings.windows[0]} samples in each piece, ten "
            f"windows, to compare windows; the shortest has {shortest}. "
            "Choose p, q and ell yourself."
        )
    return fitting


def _with_room(
    windows: Sequence[int],
    data: Float[Tensor, "N ..."],
    lengths: Sequence[int] | None,
) -> Sequence[int]:
    """The windows for which some run of whole samples holds a segment.

    The filter treats every entry by itself; segments need all entries of a sample.
    """
    missing = ~data.reshape(len(data), -1).isfinite().all(1)
    runs = gap_free_runs(len(data), lengths=lengths, missing=missing)
    longest = max((stop - first for first, stop in runs), default=0)
    return tuple(window for window in windows if window < longest) or windows[:1]


def _sample(
    data: Float[Tensor, "N ..."],
    lengths: Sequence[int] | None,
    sigma: Float[Tensor, "..."],
    max_samples: int,
    settings: SearchSettings,
) -> _Sample:
    """Pieces spread over the record, at most `max_samples` samples together."""
    most, count = settings.components, settings.pieces
    flat = data.reshape(len(data), -1)
    pieces = [len(flat)] if lengths is None else list(lengths)
    notes = []
    keep = torch.arange(flat.shape[1])
    if len(keep) > most:
        keep = torch.linspace(0, len(keep) - 1, most).round().long()
        notes.append(f"{most} of {flat.shape[1]} entries of the state")
    parts = list(flat.split(pieces))
    if len(flat) > max_samples:
        size = max(1, max_samples // count)
        whole = [part for part in parts if len(part) >= size]
        parts = _spread_pieces(whole, size, count) if whole else []
        if not parts:
            # Many short series: every k-th of them.
            parts = list(flat.split(pieces)[:: -(-len(flat) // max_samples)])
        notes.append(f"{sum(map(len, parts))} of {len(flat)} samples")
    note = f"chosen from {' and '.join(notes)}" if notes else ""
    x = torch.cat([part[:, keep] for part in parts])
    return _Sample(x, [len(part) for part in parts], sigma.flatten()[keep], note)


def _spread_pieces(parts: list[Tensor], size: int, count: int) -> list[Tensor]:
    """`count` pieces of `size` samples, spread evenly over all parts."""
    # A piece can begin at so many samples of each part, counted through all of them.
    ends = list(accumulate(len(part) - size + 1 for part in parts))
    pieces = []
    for number in range(count):
        place = (ends[-1] - 1) * number // max(1, count - 1)
        part = bisect_right(ends, place)
        first = place - (ends[part - 1] if part else 0)
        pieces.append(parts[part][first : first + size])
    return pieces
