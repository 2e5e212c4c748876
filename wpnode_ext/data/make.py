"""Checks the arrays of a user and builds a `Series` from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..common.arrays import Array, as_float64
from ..weak.segments import missing_values
from .series import Series, irregular_steps

# Observations of a user: one array, several, or a series.
Data = Array | Sequence[Array] | Series

# A weak form needs ell + 1 >= 3 samples, whatever else is chosen.
FEWEST_SAMPLES = 3


@dataclass(frozen=True)
class GridRule:
    """Tolerances by which :func:`make_series` recognises times on a uniform grid.

    Attributes:
        same_step: largest relative difference between a given `dt` and the step of the
            times.
        slack: largest distance of times from the grid, as a share of the step, beyond
            their rounding.
        coarsest: largest rounding of times, as a share of the step, that counts as
            rounding; a larger one hides the grid.
        decimals: most decimals to which times may have been rounded when written.
        long_gap: absent samples in a row at which a series may be cut in two.
    """

    same_step: float = 1e-4
    slack: float = 1e-6
    coarsest: float = 0.1
    decimals: int = 9
    long_gap: int = 100


_GRID = GridRule()


def make_series(
    v: Array | Sequence[Array],
    *,
    dt: float | None = None,
    t: Array | Sequence[Array] | None = None,
    mask: Array | Sequence[Array] | None = None,
    forcing: Array | Sequence[Array] | None = None,
    names: Sequence[str] | None = None,
    meta: Mapping[str, Any] | None = None,
    grid: GridRule = _GRID,
) -> Series:
    """Checked observations of one series, or of many given as a list.

    Times that lie on a uniform grid, up to their rounding, are replaced by `dt`. Grid
    points without a sample become missing samples; a series is cut in two at a gap so
    long that its missing samples would double the record. Other times stay as they are.

    Args:
        v: observations, ``[N, *state]`` or ``[N]`` (a state of one entry), or a list of
            such arrays of different N. NaN marks a missing value.
        dt: distance of the samples. Beside `t` it must be the step of its grid.
        t: times of the samples, ``[N]``, strictly increasing; a list for a list.
        mask: True where a value is missing, ``[N]`` or the shape of `v`.
        forcing: known inputs at the samples, ``[N]`` or ``[N, *forcing]``. A sample
            whose forcing is NaN is missing.
        names: names of the entries of the state.
        meta: facts about the source.
        grid: tolerances that decide whether times are on a grid.

    Raises:
        ValueError: the data cannot be used; the message says why.
        TypeError: they are not real numbers.
    """
    values, many = _as_list(v)
    if dt is None and t is None:
        raise ValueError("one of `dt` and `t` must be given; got neither.")
    if dt is not None and not 0 < dt < float("inf"):
        raise ValueError(f"`dt` must be positive; got {dt}.")
    count = len(values)
    times = _each(t, "t", count, many)
    masks = _each(mask, "mask", count, many)
    inputs = _each(forcing, "forcing", count, many)
    pieces = [
        _Piece.checked(*given, name=f"series {i}" if many else "`v`")
        for i, given in enumerate(zip(values, times, masks, inputs, strict=True))
    ]
    shapes = {tuple(piece.v.shape[1:]) for piece in pieces}
    if len(shapes) > 1:
        raise ValueError(f"all series must have one state shape; got {sorted(shapes)}.")
    if t is not None:
        step, pieces = _on_grid(pieces, grid)
        if dt is not None:
            _check_same_step(dt, step, pieces, grid)
        dt = step
    return _joined(pieces, dt, names, meta)


class _Piece:
    """One series before it is joined to others; missing values and inputs are NaN."""

    def __init__(self, v: Tensor, t: Tensor | None, forcing: Tensor | None) -> None:
        self.v, self.t, self.forcing = v, t, forcing

    @classmethod
    def checked(
        cls,
        v: Tensor,
        t: Tensor | None,
        mask: Tensor | None,
        forcing: Tensor | None,
        name: str,
    ) -> "_Piece":
        """The piece for arrays of a user, which are checked first."""
        if v.dim() == 0:
            raise ValueError(f"{name} must have a time axis; got a single number.")
        v = v[:, None].clone() if v.dim() == 1 else v.clone()
        n = len(v)
        if n < FEWEST_SAMPLES:
            raise ValueError(
                f"{name} must have at least {FEWEST_SAMPLES} samples; got {n}. The "
                "shortest weak form needs as many, usual ones 20 to 100."
            )
        if v.isinf().any():
            raise ValueError(
                f"{name} must not hold infinity; mark it as missing (NaN)."
            )
        for other, label in ((t, "t"), (mask, "mask"), (forcing, "forcing")):
            if other is not None and (other.dim() == 0 or len(other) != n):
                raise ValueError(
                    f"`{label}` must have one entry for each of the {n} samples of "
                    f"{name}; got shape {list(other.shape)}."
                )
        if t is not None:
            _check_times(t, name)
        if mask is not None:
            v[missing_values(mask, v)] = float("nan")
        if forcing is not None:
            forcing = forcing[:, None] if forcing.dim() == 1 else forcing.clone()
            gone = ~forcing.flatten(1).isfinite().all(1)
            v[gone] = float("nan")
            forcing[~forcing.isfinite()] = float("nan")
        return cls(v, t, forcing)


def as_series(v: Data, **arguments: Any) -> Series:
    """`v` if it is a series, else the result of :func:`make_series`."""
    if not isinstance(v, Series):
        return make_series(v, **arguments)
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        names = " and ".join(f"`{name}`" for name in given)
        raise ValueError(
            f"{names} must not be given beside a Series, which has its own."
        )
    return v


def _as_list(v: Any) -> tuple[list[Tensor], bool]:
    """Arrays of all series, and whether they were given as a list of them."""
    if isinstance(v, (list, tuple)) and all(np.ndim(x) > 0 for x in v) and v:
        return [as_float64(x, f"v[{i}]") for i, x in enumerate(v)], True
    array = np.asarray(v) if isinstance(v, (list, tuple)) else v
    return [as_float64(array, "v")], False


def _each(given: Any, name: str, count: int, many: bool) -> list[Tensor | None]:
    """An optional argument as one array, or None, for each of `count` series."""
    if given is None:
        return [None] * count
    if not many:
        return [as_float64(given, name)]
    if not isinstance(given, (list, tuple)) or len(given) != count:
        raise ValueError(f"`{name}` must be a list of {count} arrays, one a series.")
    return [as_float64(x, f"{name}[{i}]") for i, x in enumerate(given)]


def _check_times(t: Float[Tensor, " N"], name: str) -> None:
    if t.dim() != 1:
        raise ValueError(f"`t` must be 1-D; got shape {list(t.shape)}.")
    if not t.isfinite().all():
        raise ValueError(f"the times of {name} must be finite.")
    backward = (t.diff() <= 0).nonzero()
    if len(backward) > 0:
        i = int(backward[0]) + 1
        raise ValueError(
            f"the times of {name} must be strictly increasing; got {t[i].item():g} at "
            f"index {i} after {t[i - 1].item():g}. Sort the samples and merge repeated "
            "times."
        )


def _check_same_step(
    dt: float, step: float | None, pieces: list[_Piece], grid: GridRule
) -> None:
    """Raises unless `dt` is the step of the grid that the times are on."""
    if step is not None and abs(dt - step) <= grid.same_step * step:
        return
    times = [piece.t for piece in pieces if piece.t is not None]
    irregular = f"are irregular, {irregular_steps(times)}"
    found = f"have a step of {step:.6g}" if step else irregular
    raise ValueError(
        f"`dt` must be the step of the times where both are given; got {dt:g}, but the "
        f"times {found}. Leave `dt` out: the times are used."
    )


def _on_grid(pieces: list[_Piece], grid: GridRule) -> tuple[float | None, list[_Piece]]:
    """The step of the grid that all times are on, and the series laid out on it.

    Times are on a grid if they differ from it by rounding only, and if it has a sample
    at half of its points or more, long gaps not counted.

    Returns:
        ``(None, pieces)`` if the times are irregular.
    """
    times = [piece.t for piece in pieces if piece.t is not None]
    steps = torch.cat([t.diff() for t in times])
    exact = max(_float_error(t) for t in times)
    written = max(_written_error(t, grid.decimals) for t in times)
    # Where every other sample is absent the median is a multiple of the step.
    for guess in (steps.median(), steps.min()):
        near = steps[(steps / guess - 1).abs() < 0.25]
        counts = [_counts(t, near.mean()) for t in times]
        if torch.cat([count.diff() for count in counts]).min() < 1:
            continue
        dt, distance = _fitted_grid(times, counts)
        rounded = written if written <= grid.coarsest * dt else 0.0
        if distance > exact + max(rounded, grid.slack * dt):
            continue
        pairs = zip(pieces, counts, strict=True)
        laid = [_laid_out(piece, rows, grid.long_gap) for piece, rows in pairs]
        if all(parts for parts in laid):
            return dt, [part for parts in laid for part in parts]
    return None, pieces


def _counts(t: Float[Tensor, " N"], step: Tensor) -> Int[Tensor, " N"]:
    """Grid index of every time; steps are rounded one by one, so errors do not add."""
    return torch.cat([t.new_zeros(1), (t.diff() / step).round().cumsum(0)]).long()


def _fitted_grid(times: list[Tensor], counts: list[Tensor]) -> tuple[float, float]:
    """The step that fits all series best, and the largest distance of a time from it.

    The start of each grid is fitted as well, because first times are rounded, too.
    """
    rows = [c.double() - c.double().mean() for c in counts]
    spans = [t - t.mean() for t in times]
    pairs = list(zip(rows, spans, strict=True))
    dt = sum(float(c @ x) for c, x in pairs) / sum(float(c @ c) for c in rows)
    off = [x - dt * c for c, x in pairs]
    return dt, max((x.max() - x.min()).item() / 2 for x in off)


def _float_error(t: Float[Tensor, " N"]) -> float:
    """Error of times that are float32 numbers, or sums of steps in float64."""
    largest = t.abs().max().item()
    single = torch.equal(t.float().double(), t)
    eps = torch.finfo(torch.float32 if single else torch.float64).eps
    return 4 * eps * largest * (1.0 if single else len(t) ** 0.5)


def _written_error(t: Float[Tensor, " N"], decimals: int) -> float:
    """Rounding of times that were written with few decimals, or 0."""
    eps = 4 * torch.finfo(torch.float64).eps * t.abs().max().item()
    for unit in (10.0**-digits for digits in range(decimals + 1)):
        if ((t / unit).round() * unit - t).abs().max() <= eps:
            # The fitted grid may miss a rounded time by a little more than half a unit.
            return 1.1 * unit / 2
    return 0.0


def _laid_out(piece: _Piece, rows: Int[Tensor, " N"], long_gap: int) -> list[_Piece]:
    """A series with one row for each point of its grid, NaN where no sample is.

    If more rows would be NaN than not, the series is split at its longest gaps. Returns
    an empty list if gaps of at least `long_gap` do not suffice for that.
    """
    assert piece.t is not None
    absent = rows.diff() - 1
    too_many = int(absent.sum()) - len(rows)
    longest = absent.argsort(descending=True)
    saved = absent[longest].cumsum(0)
    cuts = int((saved < too_many).sum()) + 1 if too_many > 0 else 0
    if cuts > len(longest) or (cuts and absent[longest[cuts - 1]] < long_gap):
        return []
    ends = (longest[:cuts] + 1).sort().values.tolist()
    parts = []
    for first, stop in zip([0, *ends], [*ends, len(rows)], strict=True):
        part = _Piece(
            piece.v[first:stop],
            piece.t[first:stop],
            None if piece.forcing is None else piece.forcing[first:stop],
        )
        own_rows = rows[first:stop] - rows[first]
        n = int(own_rows[-1]) + 1
        if len(own_rows) < n:
            part.v = _spread(part.v, own_rows, n)
            if part.forcing is not None:
                part.forcing = _spread(part.forcing, own_rows, n)
        parts.append(part)
    return parts


def _joined(
    pieces: list[_Piece],
    dt: float | None,
    names: Sequence[str] | None,
    meta: Mapping[str, Any] | None,
) -> Series:
    mask = torch.cat([piece.v.isnan() for piece in pieces])
    empty = mask.all(0)
    if empty.any():
        where = empty.nonzero()[0].tolist()
        raise ValueError(
            "`v` must have a sample of every entry of the state; got none for "
            f"{int(empty.sum())} of {empty.numel()}, e.g. {where}. Drop these entries."
        )
    state = pieces[0].v.shape[1:]
    if names is not None and (len(state) != 1 or len(names) != state[0]):
        raise ValueError(
            f"`names` must name the entries of a state {list(state)}; got {len(names)}."
        )
    return Series(
        v=torch.cat([_interpolated(piece.v, piece.t) for piece in pieces]),
        lengths=tuple(len(piece.v) for piece in pieces),
        dt=dt,
        t=None
        if dt is not None
        else torch.cat([p.t for p in pieces if p.t is not None]),
        mask=mask if mask.any() else None,
        forcing=_inputs(pieces),
        t0=tuple(0.0 if p.t is None else p.t[0].item() for p in pieces),
        names=None if names is None else tuple(names),
        meta=dict(meta or {}),
    )


def _spread(
    x: Float[Tensor, "M ..."], rows: Int[Tensor, " M"], n: int
) -> Float[Tensor, "N ..."]:
    """An array of `n` rows: those of `x` at `rows`, NaN elsewhere."""
    wide = x.new_full((n, *x.shape[1:]), float("nan"))
    wide[rows] = x
    return wide


def _inputs(pieces: list[_Piece]) -> Float[Tensor, "N ..."] | None:
    """Inputs of all pieces; missing ones are interpolated, because zeros would act."""
    inputs = [_interpolated(p.forcing, p.t) for p in pieces if p.forcing is not None]
    return torch.cat(inputs) if inputs else None


def _interpolated(
    x: Float[Tensor, "N ..."], t: Float[Tensor, " M"] | None
) -> Float[Tensor, "N ..."]:
    """`x`, missing values interpolated in time; 0 where all of a column are missing."""
    flat = x.flatten(1)
    gone: Bool[Tensor, "N D"] = flat.isnan()
    if gone.any():
        n = len(flat)
        # Times and rows differ in number only if rows of a grid were added.
        rows = np.arange(n) if t is None or len(t) != n else t.numpy()
        filled = flat.numpy().copy()
        for j in gone.any(0).nonzero().flatten().tolist():
            absent = gone[:, j].numpy()
            if absent.all():
                filled[:, j] = 0.0
            else:
                there = ~absent
                filled[absent, j] = np.interp(
                    rows[absent], rows[there], filled[there, j]
                )
        flat = torch.from_numpy(filled)
    return flat.reshape(x.shape)
