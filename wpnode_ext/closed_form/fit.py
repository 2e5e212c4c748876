"""The weak fit of a field that is linear in its head, in closed form."""

import copy
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..coordinates.symmetry import Symmetry
from ..data import Series
from ..fields import LinearField
from .blocks import BLOCK, Features, weak_blocks
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
# Multiplications up to which rows are taken in by QR: some ten seconds on one core.
_QR_WORK = 1e11
# Segments closer than a sixth of their length tell the same about the noise.
_INDEPENDENT = 6


@dataclass(frozen=True)
class ClosedFormFit:
    """How a closed-form fit came out.

    Attributes:
        coefficients: of the field, float64 ``[J, O]``.
        choice: the ridge and the scores of those it was chosen from.
        n_rows: rows of the least-squares problem: segments times sites and maps.
        residual: root mean square of the weak residual, ``[O]``.
        relative: the same over the root mean square of the left-hand side, ``[O]``.
        accumulate: "qr" or "gram", how rows were taken in.
        spectrum: what solutions for other ridges are made of; see :meth:`with_ridge`.
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
        """The coefficients another ridge gives, without another pass over the data."""
        return ridge_solution(self.spectrum, ridge)


def fit_closed_form(
    field: LinearField,
    series: Series,
    *,
    states: Float[Tensor, "N D"] | None = None,
    p: int = 8,
    ell: int = 50,
    q: int = 2,
    ridge: Ridge = "gcv",
    symmetry: Symmetry | None = None,
    accumulate: Accumulate = "auto",
    block: int = BLOCK,
) -> ClosedFormFit:
    """Sets the coefficients of `field` to those of least squared weak residual.

    With ``phi_k = sum_i w_rhs[i] features(u[s_k + i])`` and
    ``lhs_k = sum_i w_lhs[i] v[s_k + i]`` the residual ``lhs_k + phi_k C`` is linear in
    the coefficients C, which are those that minimise

        ``mean_k |lhs_k + phi_k C|^2 + ridge |rms(phi) C|^2``,

    found in float64 from the singular values of the features. Several series, gaps,
    missing samples, irregular times and inputs are those of `series`.

    Args:
        field: what is fitted, in place.
        series: observations ``[N, D]``, in the coordinates of the field.
        states: where features are evaluated, ``[N, D]``: filtered or smoothed states.
            The observations by default.
        p, ell, q: the weak form.
        ridge: "gcv" chooses it by generalised cross-validation; a list is the grid to
            choose from; a number is taken as it is.
        symmetry: maps that take solutions to solutions; every segment counts once under
            each of them.
        accumulate: "qr" keeps a triangular factor and all digits, "gram" the normal
            equations; "auto" takes the first unless the problem is large.

    Other Args:
        block: numbers of features held at a time.
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
    exact = copy.deepcopy(field).to(torch.float64)
    record = series.to(torch.float64, device)
    where = record.v if states is None else states.to(device, torch.float64)
    x = series.forcing
    inputs = None if x is None else x.flatten(1).to(device, torch.float64)
    maps = None if symmetry is None else symmetry.matrices.to(device)
    shape = (field.n_features, field.dim // field.sites)
    exact, basis = exact.unrestricted()
    if basis is not None:
        # A restricted field has its symmetries for any data: no map is applied.
        maps = None
        shape = (exact.n_features, field.dim)

    def features(samples: slice) -> Tensor:
        u, felt = where[samples], None if inputs is None else inputs[samples]
        if maps is not None:
            u = torch.einsum("gij,nj->ngi", maps, u)
            if felt is not None:
                felt = felt[:, None].expand(-1, len(maps), -1)
        return exact.features(u, felt).flatten(1)

    solution = solve_weak(
        record,
        features,
        shape,
        p=p,
        ell=ell,
        q=q,
        ridge=ridge,
        maps=maps,
        basis=basis,
        accumulate=accumulate,
        block=block,
    )
    field.set_coefficients(solution.coefficients)
    return solution


@torch.no_grad()
def solve_weak(
    record: Series,
    features: Features,
    shape: tuple[int, int],
    *,
    p: int,
    ell: int,
    q: int,
    ridge: Ridge = "gcv",
    maps: Float[Tensor, "G D D"] | None = None,
    basis: Float[Tensor, "J O M"] | None = None,
    accumulate: Accumulate = "auto",
    block: int = BLOCK,
    least_ridge: float = 0.0,
) -> ClosedFormFit:
    """The coefficients of least weak residual for features of any origin.

    Args:
        record: observations, float64.
        features: their values at a slice of the samples, ``[M, G S J]``: one row of J
            for every map and site.
        shape: ``(J, O)``, of the coefficients.
        maps: linear maps of the left-hand side, in the order of the features.
        basis: of the coefficients, where they are M numbers times it; these are found.
        least_ridge: ridges below it are not considered.

    The other arguments are those of :func:`fit_closed_form`.
    """
    if accumulate not in ("auto", "qr", "gram"):
        raise ValueError(
            f"`accumulate` must be 'auto', 'qr' or 'gram'; got {accumulate!r}."
        )
    n_features, outputs = shape
    copies = record.v[0].numel() // outputs * (1 if maps is None else len(maps))
    if accumulate == "auto":
        work = len(record.v) / q * copies * n_features**2
        accumulate = "qr" if work <= _QR_WORK else "gram"
    rows: Rows = Triangle() if accumulate == "qr" else Gram()
    for part in weak_blocks(record, features, p=p, ell=ell, q=q, numbers=block):
        target = part.target
        if maps is not None:
            target = torch.einsum("gij,kj->kgi", maps, target)
        rows.add(part.features.reshape(-1, n_features), target.reshape(-1, outputs))
    if basis is not None:
        rows = rows.restricted(basis)
    spectrum = rows.spectrum()
    choice = choose_ridge(
        spectrum, ridge, independent=min(1.0, _INDEPENDENT * q / ell), least=least_ridge
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
