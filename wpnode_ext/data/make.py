"""From arrays as users have them to a `Series`, or to a refusal with the reason."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .._arrays import as_float64
from .._typing import Array
from .series import Series

# Observations as users have them: one array, several, or a series.
Data = Array | Sequence[Array] | Series

# A weak form needs ell + 1 >= 3 samples, whatever else is chosen.
FEWEST_SAMPLES = 3


def make_series(
    v: Array | Sequence[Array],
    *,
    dt: float | None = None,
    t: Array | Sequence[Array] | None = None,
    mask: Array | Sequence[Array] | None = None,
    forcing: Array | Sequence[Array] | None = None,
    names: Sequence[str] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Series:
    """Checked observations of one series, or of many given as a list.

    Times that are uniform up to rounding become `dt`. Uniform times of which some are
    left out become `dt` too, and the absent samples are missing ones.

    Args:
        v: observations, ``[N, *state]`` or ``[N]`` (a state of one entry), or a list of
            such arrays of different N. NaN marks a missing value.
        dt: distance of the samples. Give either `dt` or `t`.
        t: times of the samples, ``[N]``, strictly increasing; a list for a list.
        mask: True where a value is missing, ``[N]`` or the shape of `v`.
        forcing: known inputs at the samples, ``[N]`` or ``[N, *forcing]``. A sample
            whose forcing is NaN is missing.
        names: names of the entries of the state.
        meta: what is known of the source.

    Raises:
        ValueError: the data cannot be used; the message says why.
        TypeError: they are not real numbers.
    """
    values, many = _as_list(v)
    if (dt is None) == (t is None):
        raise ValueError("one of `dt` and `t` must be given, the other not.")
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
    if dt is None:
        dt = _on_common_grid(pieces)
    return _joined(pieces, dt, names, meta)


class _Piece:
    """One series on its way: values and inputs with NaN where missing, times."""

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
        if v.dim() == 0:
            raise ValueError(f"{name} must have a time axis; got a single number.")
        v = v[:, None].clone() if v.dim() == 1 else v.clone()
        n = len(v)
        if n < FEWEST_SAMPLES:
            raise ValueError(
                f"{name} has {n} samples; the shortest weak form needs "
                f"{FEWEST_SAMPLES}, and usual ones 20 to 100."
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
            gone = mask != 0
            if gone.shape not in (v.shape[:1], v.shape):
                raise ValueError(
                    f"`mask` must have shape {list(v.shape[:1])} or {list(v.shape)}; "
                    f"got {list(gone.shape)}."
                )
            v[gone] = float("nan")
        if forcing is not None:
            forcing = forcing[:, None] if forcing.dim() == 1 else forcing.clone()
            gone = ~forcing.flatten(1).isfinite().all(1)
            v[gone] = float("nan")
            forcing[~forcing.isfinite()] = float("nan")
        return cls(v, t, forcing)


def as_series(v: Data, **arguments: Any) -> Series:
    """`v` if it is a series, else what :func:`make_series` makes of it."""
    if not isinstance(v, Series):
        return make_series(v, **arguments)
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise ValueError(f"a Series has its own {', '.join(given)}; do not give them.")
    return v


def _as_list(v: Any) -> tuple[list[Tensor], bool]:
    """Arrays of all series, and whether they were given as a list of them."""
    if isinstance(v, (list, tuple)) and all(np.ndim(x) > 0 for x in v) and v:
        return [as_float64(x, f"v[{i}]") for i, x in enumerate(v)], True
    array = np.asarray(v) if isinstance(v, (list, tuple)) else v
    return [as_float64(array, "v")], False


def _each(given: Any, name: str, count: int, many: bool) -> list[Tensor | None]:
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


def _on_common_grid(pieces: list[_Piece]) -> float | None:
    """The step all series share up to rounding, absent samples inserted; else None."""
    times = [piece.t for piece in pieces if piece.t is not None]
    steps = torch.cat([t.diff() for t in times])
    largest = max(t.abs().max().item() for t in times)
    dt = steps.median().item()
    slack = 1e-6 * dt + 4 * torch.finfo(torch.float64).eps * largest
    counts = (steps / dt).round()
    whole = ((steps - counts * dt).abs() <= slack * counts.clamp(min=1)).all()
    # Long gaps are cheaper as they are: a loss drops what lies across them.
    if not whole or counts.min() < 1 or counts.sum() > 2 * len(steps):
        return None
    # The mean over all steps has the rounding of none.
    dt = (steps.sum() / counts.sum()).item()
    for piece in pieces:
        assert piece.t is not None
        rows = ((piece.t - piece.t[0]) / dt).round().long()
        if len(rows) <= rows[-1]:
            n = int(rows[-1]) + 1
            piece.v = _spread(piece.v, rows, n)
            if piece.forcing is not None:
                piece.forcing = _spread(piece.forcing, rows, n)
    return dt


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
            f"{int(empty.sum())} of {empty.numel()} entries of the state have no "
            f"sample at all, e.g. {where}; drop them before."
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
    """`x` in its rows of n, NaN in the others."""
    wide = x.new_full((n, *x.shape[1:]), float("nan"))
    wide[rows] = x
    return wide


def _inputs(pieces: list[_Piece]) -> Float[Tensor, "N ..."] | None:
    """Those of absent samples are no zeros, which would be felt by what reads them."""
    there = [_interpolated(p.forcing, p.t) for p in pieces if p.forcing is not None]
    return torch.cat(there) if there else None


def _interpolated(
    x: Float[Tensor, "N ..."], t: Float[Tensor, " M"] | None
) -> Float[Tensor, "N ..."]:
    """Missing values on the line between their neighbours in time."""
    flat = x.flatten(1)
    gone: Bool[Tensor, "N D"] = flat.isnan()
    if gone.any():
        n = len(flat)
        # Where absent samples were inserted the others are on a grid.
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
