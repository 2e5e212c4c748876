"""Selection of the coefficients that the data need, by sequential thresholding."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..data import Series
from ..fields import LinearField
from ..weak.plan import WeakForm
from .fit import weak_blocks
from .rows import Gram

# Contributions below which terms are left out, over that of all terms together.
THRESHOLDS: tuple[float, ...] = (0.0, *(10.0 ** (n / 4) for n in range(-16, 1)))
# Keeps equations solvable where features depend on each other.
_RIDGE = 1e-12


@torch.no_grad()
def find_support(
    field: LinearField,
    series: Series,
    *,
    states: Float[Tensor, "N D"] | None = None,
    p: int = 8,
    ell: int = 50,
    q: int = 2,
    fraction: float = 0.2,
    thresholds: Sequence[float] = THRESHOLDS,
) -> Bool[Tensor, "J D"]:
    """Coefficients that predict held-out segments best.

    Each output is thinned separately by the sequential thresholding of SINDy: terms
    whose contribution ``rms(phi_j) |c_j|`` is below a share of the left-hand side are
    left out and the others are fitted again, until no term falls below it. The share
    rises from small to large. The chosen support has the least squared weak residual
    on the last `fraction` of the record. It may keep some terms that are not needed.

    Args:
        field: all terms, without inputs, one site; it is not changed.
        series: observations ``[N, D]``, in the coordinates of the field.
        states: where features are evaluated, ``[N, D]``; the observations by default.
        p, ell, q: the weak form.
        fraction: of the record, kept from the fits.
        thresholds: shares that are tried, rising.

    Raises:
        ValueError: the record is too short to keep a part of it.
    """
    if field.sites != 1 or field.forcing_dim:
        raise ValueError(
            "`field` must be of one site without forcing; got "
            f"{field.sites} sites and {field.forcing_dim} inputs."
        )
    at = series if states is None else replace(series, v=states, mask=None)
    lhs, where = (x.split(fraction, min_length=ell + 1) for x in (series, at))
    form = WeakForm(p, ell, q)
    seen, held = (
        _gram(field, part, there.v, form)
        for part, there in zip(lhs, where, strict=True)
    )
    aa, ay, yy = seen.sums()
    rms = (aa.diagonal() / seen.n_rows).sqrt()
    rms = torch.where(rms > 0, rms, 1.0)
    info, right = _scaled(aa, ay, rms, seen.n_rows)
    check, wanted = _scaled(*held.sums()[:2], rms, held.n_rows)
    size = (yy / seen.n_rows).sqrt()
    support = torch.zeros_like(right, dtype=torch.bool)
    for output in range(right.shape[1]):
        best = torch.inf
        for kept, c in _thinned(info, right[:, output], size[output], thresholds):
            # The squares of the left-hand side are left out: all supports share them.
            error = (c @ check @ c - 2 * c @ wanted[:, output]).item()
            if error < best:
                best, support[:, output] = error, kept
    return support


def _thinned(
    info: Float[Tensor, "J J"],
    right: Float[Tensor, " J"],
    size: Float[Tensor, ""],
    thresholds: Sequence[float],
) -> Iterator[tuple[Bool[Tensor, " J"], Float[Tensor, " J"]]]:
    """Terms that stay and their coefficients, threshold by threshold."""
    kept = torch.ones_like(right, dtype=torch.bool)
    c = _solved(info, right, kept)
    for threshold in thresholds:
        while True:
            large = kept & (c.abs() >= threshold * size)
            if torch.equal(large, kept):
                break
            kept, c = large, _solved(info, right, large)
        yield kept, c
        if not kept.any():
            break


def _solved(
    info: Float[Tensor, "J J"], right: Float[Tensor, " J"], kept: Bool[Tensor, " J"]
) -> Float[Tensor, " J"]:
    c, own = torch.zeros_like(right), kept.nonzero().flatten()
    block = info[own][:, own]
    block.diagonal().add_(_RIDGE)
    c[own] = torch.linalg.solve(block, right[own])
    return c


def _gram(field: LinearField, series: Series, states: Tensor, form: WeakForm) -> Gram:
    rows = Gram()
    for part in weak_blocks(series, lambda some: field.features(states[some]), form):
        rows.add(part.features, part.target)
    return rows


def _scaled(
    aa: Tensor, ay: Tensor, rms: Tensor, count: int
) -> tuple[Float[Tensor, "J J"], Float[Tensor, "J O"]]:
    """Mean products of features of size one."""
    return aa / (rms * rms[:, None]) / count, ay / rms[:, None] / count
