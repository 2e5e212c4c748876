"""The choice of (p, q, ell) from the data alone."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..common.arrays import as_float64
from ..common.typing import Array
from .filter import filter_series, noise_share, score_filter
from .noise import estimate_noise
from .segments import gap_free_runs

Criterion = Literal["risk", "J"]

EXPONENTS = (2, 4, 8, 16)
WINDOWS = (10, 16, 24, 36, 50, 80, 120, 180)
SPACINGS = (*range(1, 13), *range(14, 25, 2), *range(28, 61, 4))
# Spacing of the bumps in units of their standard deviation. Denser bumps are almost
# dependent and pass what a single one, as the loss uses it, would not; sparser ones
# leave gaps.
DENSEST, SPARSEST = 1.1, 2.0
# Standard deviation below which samples no longer resolve a bump.
NARROWEST = 1.8
# Of choices whose risk is this close to the smallest, the shortest window is taken.
INDIFFERENCE = 0.1
# Segments of the weak form per bump of the filter: they overlap for free, and denser
# ones carry nothing new.
SEGMENTS_PER_BUMP = 4
# Longest piece filtered whole, and entries of the state, where the data have more.
PIECE, PIECES, COMPONENTS = 2000, 5, 16


@dataclass(frozen=True)
class Candidate:
    """One row of the table: a filter and how it did on the data.

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
        criterion: what was minimised.
        sigma: noise the risk was computed with, ``[*state]``.
        table: every candidate, best first.
        note: what was left out to bound time and memory, or "".
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
    p: Sequence[int] = EXPONENTS,
    ell: Sequence[int] | None = None,
    q: Sequence[int] | None = None,
    criterion: Criterion = "risk",
    sigma: Array | float | None = None,
    mask: Array | None = None,
    lengths: Sequence[int] | None = None,
    max_samples: int = PIECE * PIECES,
) -> WeakFormChoice:
    """Chooses (p, q, ell) by how well the filter they define cleans the data.

    With noise of variance ``sigma^2`` the squared error of the filtered series is, up
    to its own scatter, ::

        risk = mean |v - u_K|^2 - sigma^2 + 2 sigma^2 (degrees of freedom) / N,

    an unbiased estimate that needs no clean data (Stein, Mallows). On Lorenz-63 with 1,
    5 and 20 % noise its minimum has an error within 2 % of the best filter of the grid;
    that of the paper's score J is 12, 59 and 120 % worse, because its smoothness target
    suits one noise level. Among choices within 10 % of the smallest risk (5 % in root
    mean square) the shortest window wins: it needs fewer samples without a gap.

    Args:
        v: series, ``[N, *state]`` with uniform steps; NaN marks missing values.
        dt: distance of samples; only to report the window in time.
        p, ell, q: values to try; default exponents 2 to 16, windows 10 to 180 where the
            data have at least ten of them, and spacings of 1.1 to 2 standard deviations
            of the bump. Spacings above half a window are left out.
        criterion: "risk", or "J" of the paper (then ``q = q_filter``).
        sigma: standard deviation of the noise, a number or ``[*state]``; default
            :func:`~wpnode_ext.estimate_noise`.
        mask, lengths: as in :func:`~wpnode_ext.filter_series`.
        max_samples: samples used at most, in five pieces spread over the record.
    """
    if criterion not in ("risk", "J"):
        raise ValueError(f"`criterion` must be 'risk' or 'J'; got {criterion!r}.")
    data = as_float64(v, "v")
    if data.dim() == 1:
        data = data[:, None]
    level = estimate_noise(data, mask=mask, lengths=lengths).sigma
    if sigma is not None:
        level = torch.as_tensor(sigma, dtype=torch.float64).expand(data.shape[1:])
    if mask is not None:
        gone = (as_float64(mask, "mask") != 0).reshape(len(data), -1)
        flat = data.reshape(len(data), -1).masked_fill(gone, float("nan"))
        data = flat.reshape(data.shape)
    x, pieces, levels, note = _sample(data, lengths, level, max_samples)
    windows = tuple(ell) if ell is not None else _windows(min(pieces))
    if ell is None:
        windows = _with_room(windows, data, lengths)
    table = [
        _candidate(x, pieces, levels, exponent, window, spacing)
        for exponent in p
        for window in windows
        for spacing in (_spacings(exponent, window) if q is None else q)
        if spacing <= window // 2
    ]
    if not table:
        raise ValueError(
            f"no candidate among p = {list(p)}, ell = {list(windows)}: every `q` is "
            "above ell / 2, or every bump is narrower than two samples."
        )
    table.sort(key=lambda row: row.risk if criterion == "risk" else row.J)
    best = table[0]
    if criterion == "risk":
        # Differences far below the noise do not count either.
        limit = best.risk + max(INDIFFERENCE * abs(best.risk), 1e-3)
        near = [row for row in table if row.risk <= limit]
        best = min(near, key=lambda row: (row.ell, row.risk))
    return WeakFormChoice(
        p=best.p,
        ell=best.ell,
        q=max(1, best.q // SEGMENTS_PER_BUMP) if criterion == "risk" else best.q,
        q_filter=best.q,
        window=best.ell * (1.0 if dt is None else dt),
        criterion=criterion,
        sigma=level,
        table=tuple(table),
        note=note,
    )


def _candidate(
    x: Float[Tensor, "n d"],
    pieces: list[int],
    sigma: Float[Tensor, " d"],
    p: int,
    ell: int,
    q: int,
) -> Candidate:
    u = filter_series(x, p=p, ell=ell, q=q, lengths=pieces)
    variance = sigma.square()
    misfit = (x - u).square().nanmean(0) / variance
    risk = misfit.mean().item() - 1 + 2 * noise_share(p, ell, q)
    score = score_filter(x, p=p, ell=ell, q=q, lengths=pieces, u_filtered=u)
    return Candidate(p, ell, q, risk, score.J, score.J_smooth, score.J_pred)


def _spacings(p: int, ell: int) -> list[int]:
    deviation = ell / 2 / (2 * p + 3) ** 0.5
    if deviation < NARROWEST:
        return []
    return [q for q in SPACINGS if DENSEST <= q / deviation <= SPARSEST]


def _windows(shortest: int) -> tuple[int, ...]:
    fitting = tuple(window for window in WINDOWS if 10 * window <= shortest)
    if not fitting:
        raise ValueError(
            f"the shortest piece of `v` has {shortest} samples; ten times the smallest "
            f"window, {10 * WINDOWS[0]}, are needed to compare windows. "
            "Choose p, q and ell yourself."
        )
    return fitting


def _with_room(
    windows: tuple[int, ...],
    data: Float[Tensor, "N ..."],
    lengths: Sequence[int] | None,
) -> tuple[int, ...]:
    """Those for which some stretch of whole samples holds a segment.

    The filter takes every entry by itself; segments need all entries of a sample.
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
) -> tuple[Float[Tensor, "n d"], list[int], Float[Tensor, " d"], str]:
    """Pieces spread over the record, laid end to end, and what was left out."""
    flat = data.reshape(len(data), -1)
    pieces = [len(flat)] if lengths is None else list(lengths)
    notes = []
    keep = torch.arange(flat.shape[1])
    if len(keep) > COMPONENTS:
        keep = torch.linspace(0, len(keep) - 1, COMPONENTS).round().long()
        notes.append(f"{COMPONENTS} of {flat.shape[1]} entries of the state")
    parts = list(flat.split(pieces))
    if len(flat) > max_samples:
        size = max(1, max_samples // PIECES)
        whole = [part for part in parts if len(part) >= size]
        parts = [_cut(whole, size, number) for number in range(PIECES)] if whole else []
        if not parts:
            # Many short series: every k-th of them.
            parts = list(flat.split(pieces)[:: -(-len(flat) // max_samples)])
        notes.append(f"{sum(map(len, parts))} of {len(flat)} samples")
    note = f"chosen from {' and '.join(notes)}" if notes else ""
    x = torch.cat([part[:, keep] for part in parts])
    return x, [len(part) for part in parts], sigma.flatten()[keep], note


def _cut(parts: list[Tensor], size: int, number: int) -> Tensor:
    """Piece `number` of those spread evenly over all long parts."""
    room = [len(part) - size + 1 for part in parts]
    place = (sum(room) - 1) * number // (PIECES - 1)
    for part, space in zip(parts, room, strict=True):
        if place < space:
            return part[place : place + size]
        place -= space
    raise AssertionError("the place lies within the parts")
