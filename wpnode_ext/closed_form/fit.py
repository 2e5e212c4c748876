"""The weak fit of a field that is linear in its head, in closed form.

Rows of the least-squares problem are formed a block of segments at a time. Features are
computed once a sample: a block keeps those of the samples it shares with the next one,
so memory does not grow with the record.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..coordinates.symmetry import Symmetry
from ..data import Series
from ..fields import LinearField
from ..ops.checks import check_layout
from ..weak.plan import SegmentSums, WeakForm
from .ridge import (
    Ridge,
    RidgeChoice,
    choose_ridge,
    residuals,
    ridge_solution,
    target_size,
)
from .rows import Gram, Rows, Spectrum, Triangle

Accumulate = Literal["auto", "qr", "gram"]
Features = Callable[[slice], Float[Tensor, "M F"]]

# Most multiplications for which "auto" uses QR: about ten seconds on one core.
_QR_WORK = 1e11
# Segments closer than a sixth of their length carry the same noise.
_INDEPENDENT = 6


@dataclass(frozen=True)
class SolveSettings:
    """Settings of a closed-form solve.

    Attributes:
        ridge: "gcv" chooses it by generalised cross-validation; a list is the grid to
            choose from; a number is taken as it is.
        accumulate: "qr" keeps a triangular factor and all digits, "gram" the normal
            equations; "auto" takes the first unless the problem is large.
        block: most numbers in a block of features, 64 MB by default.
        least_ridge: smaller ridges are raised to it.
    """

    ridge: Ridge = "gcv"
    accumulate: Accumulate = "auto"
    block: int = 1 << 23
    least_ridge: float = 0.0

    def __post_init__(self) -> None:
        if self.accumulate not in ("auto", "qr", "gram"):
            raise ValueError(
                f"`accumulate` must be 'auto', 'qr' or 'gram'; got {self.accumulate!r}."
            )


@dataclass(frozen=True)
class ClosedFormFit:
    """A closed-form fit.

    Attributes:
        coefficients: of the field, float64 ``[J, O]``.
        choice: the ridge and the scores of those it was chosen from.
        n_rows: rows of the least-squares problem: segments times sites and maps.
        residual: root mean square of the weak residual, ``[O]``.
        relative: the same over the root mean square of the left-hand side, ``[O]``.
        accumulate: "qr" or "gram", the accumulator of the rows.
        spectrum: of the problem, from which :meth:`with_ridge` solves it again.
    """

    coefficients: Float[Tensor, "J O"]
    choice: RidgeChoice
    n_rows: int
    residual: Float[Tensor, " O"]
    relative: Float[Tensor, " O"]
    accumulate: str
    spectrum: Spectrum

    @property
    def size(self) -> Float[Tensor, " O"]:
        """Root mean square of the left-hand side, ``[O]``."""
        return target_size(self.spectrum)

    def with_ridge(self, ridge: float) -> Float[Tensor, "J O"]:
        """The coefficients for another ridge, without another pass over the data."""
        return ridge_solution(self.spectrum, ridge)


def fit_closed_form(
    field: LinearField,
    series: Series,
    *,
    states: Float[Tensor, "N D"] | None = None,
    p: int = 8,
    ell: int = 50,
    q: int = 2,
    symmetry: Symmetry | None = None,
    **settings: Any,
) -> ClosedFormFit:
    """Sets the coefficients of `field` to those of least squared weak residual.

    With ``phi_k = sum_i w_rhs[i] features(u[s_k + i])`` and
    ``lhs_k = sum_i w_lhs[i] v[s_k + i]`` the residual ``lhs_k + phi_k C`` is linear in
    the coefficients C, which are those that minimise

        ``mean_k |lhs_k + phi_k C|^2 + ridge |rms(phi) C|^2``,

    found in float64 from the singular values of the features. Several series, gaps,
    missing samples, irregular times and inputs are those of `series`.

    Args:
        field: the field, changed in place.
        series: observations ``[N, D]``, in the coordinates of the field.
        states: where features are evaluated, ``[N, D]``: filtered or smoothed states.
            The observations by default.
        p, ell, q: the weak form.
        symmetry: maps that take solutions to solutions; every segment counts once under
            each of them.
        **settings: the fields of :class:`SolveSettings`: `ridge`, `accumulate`,
            `block`, `least_ridge`.
    """
    if series.v.dim() != 2 or series.v.shape[1] != field.dim:
        raise ValueError(
            f"`series` must have states of size {field.dim}, as the field; "
            f"got {list(series.v.shape[1:])}."
        )
    if states is not None and states.shape != series.v.shape:
        raise ValueError(
            f"`states` must have the shape {list(series.v.shape)} of the "
            f"observations; got {list(states.shape)}."
        )
    device = field.coefficients.device
    base, basis = copy.deepcopy(field).to(torch.float64).unrestricted()
    record = series.to(torch.float64, device)
    where = record.v if states is None else states.to(device, torch.float64)
    x = series.forcing
    inputs = None if x is None else x.flatten(1).to(device, torch.float64)
    maps = None
    # A restricted field commutes with its maps already: the identity is enough.
    if symmetry is not None and basis is None:
        maps = symmetry.matrices.to(device)

    def features(samples: slice) -> Tensor:
        u, x = where[samples], None if inputs is None else inputs[samples]
        if maps is not None:
            u = torch.einsum("gij,nj->ngi", maps, u)
            if x is not None:
                x = x[:, None].expand(-1, len(maps), -1)
        return base.features(u, x).flatten(1)

    solution = solve_weak(
        record,
        features,
        (base.n_features, field.dim // base.sites),
        WeakForm(p, ell, q),
        SolveSettings(**settings),
        maps=maps,
        basis=basis,
    )
    field.set_coefficients(solution.coefficients)
    return solution


@torch.no_grad()
def solve_weak(
    record: Series,
    features: Features,
    shape: tuple[int, int],
    form: WeakForm,
    settings: SolveSettings,
    *,
    maps: Float[Tensor, "G D D"] | None = None,
    basis: Float[Tensor, "J O M"] | None = None,
) -> ClosedFormFit:
    """The coefficients of least weak residual for any features.

    Args:
        record: observations, float64.
        features: their values at a slice of the samples, ``[M, G S J]``: one row of J
            for every map and site.
        shape: ``(J, O)``, of the coefficients.
        form: the weak form.
        settings: see there.
        maps: linear maps of the left-hand side, in the order of the features.
        basis: where the coefficients are M numbers times it; these numbers are found.
    """
    n_features, outputs = shape
    accumulate = settings.accumulate
    if accumulate == "auto":
        copies = record.v[0].numel() // outputs * (1 if maps is None else len(maps))
        work = len(record.v) / form.q * copies * n_features**2
        accumulate = "qr" if work <= _QR_WORK else "gram"
    rows: Rows = Triangle() if accumulate == "qr" else Gram()
    for part in weak_blocks(record, features, form, numbers=settings.block):
        target = part.target
        if maps is not None:
            target = torch.einsum("gij,kj->kgi", maps, target)
        rows.add(part.features.reshape(-1, n_features), target.reshape(-1, outputs))
    if basis is not None:
        rows = rows.restricted(basis)
    spectrum = rows.spectrum()
    choice = choose_ridge(
        spectrum,
        settings.ridge,
        independent=min(1.0, _INDEPENDENT * form.q / form.ell),
        least=settings.least_ridge,
    )
    residual, relative = residuals(spectrum, choice.ridge)
    return ClosedFormFit(
        coefficients=ridge_solution(spectrum, choice.ridge),
        choice=choice,
        n_rows=rows.n_rows,
        residual=residual,
        relative=relative,
        accumulate=accumulate,
        spectrum=spectrum,
    )


class WeakBlock(NamedTuple):
    """Rows of the weak problem ``features @ coefficients = target``.

    Attributes:
        features: segment sums ``sum_i w_rhs[i] phi[s_k + i]``, ``[K, F]``.
        target: ``- sum_i w_lhs[i] v[s_k + i]``, ``[K, D]``.
    """

    features: Float[Tensor, "K F"]
    target: Float[Tensor, "K D"]


def weak_blocks(
    record: Series,
    features: Features,
    form: WeakForm,
    *,
    numbers: int = SolveSettings.block,
) -> Iterator[WeakBlock]:
    """Blocks of segments of all stretches without a gap.

    Args:
        record: observations in float64.
        features: their values at a slice of the samples, ``[M, F]``, float64.
        form: the weak form.
        numbers: of a block of features.
    """
    ell, q = form.ell, form.q
    check_layout(ell, q)
    longest = record.longest_run
    if longest <= ell:
        raise ValueError(
            f"the longest stretch without a gap has {longest} samples, fewer than the "
            f"ell + 1 = {ell + 1} of a segment; use a smaller `ell`."
        )
    observed = record.v.reshape(1, len(record.v), -1)
    width = 0
    for first, stop in record.runs:
        known: Tensor | None = None
        begin = first
        while begin + ell < stop:
            room = (stop - begin - 1 - ell) // q + 1
            # The first block, of one segment, shows how wide a row is.
            wanted = 1 if width == 0 else max(1, (numbers // width - ell - 1) // q + 1)
            count = min(room, wanted)
            end = begin + (count - 1) * q + ell + 1
            done = 0 if known is None else len(known)
            fresh = features(slice(begin + done, end))
            known = fresh if known is None else torch.cat([known, fresh])
            width = known.shape[1]
            sums = SegmentSums.at(
                torch.arange(0, count * q, q),
                form,
                dt=record.dt,
                t=None if record.t is None else record.t[begin:end],
            )
            target = -sums.left(observed[:, begin:end].contiguous())[0]
            yield WeakBlock(sums.right(known[None])[0], target)
            begin += count * q
            known = known[count * q :] if count * q < len(known) else None
