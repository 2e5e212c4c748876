"""States as free variables beside the weights of a network.

A network has no closed form, but the same remedy: it is trained on states that may
leave the data. The sum ::

    mean |(v - u) / sigma|^2 + mu mean_ell mean_k |r_k(u, f) / (sigma |w_lhs|)|^2

is minimised over states u and weights by gradients; residuals are those of the weak
form for several lengths of segments, in units of what the noise would make of them. The
penalty mu rises in stages: the data lead first, the field in the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .. import ops
from ..data import Series
from ..quadrature import segment_weights
from ..record import Record
from ..runs import window_starts
from ..scaling import Scaler
from ..smoothing import local_polynomial
from ..strong import call_field
from ..symmetry import Symmetry
from .loop import Row
from .reduced import scaled_series

# Short segments are needed: long ones do not see what changes from sample to sample.
LENGTHS = (4, 6, 16, 50)
# With less the states return to the data, noise and all.
PENALTIES = (10.0, 100.0, 1000.0)


@dataclass(frozen=True)
class JointResult:
    """States that a network was trained with.

    Attributes:
        states: ``[N, *state]``.
        sigma: noise, ``[*state]``, in the same units.
        history: fidelity and residual of every stage at its end.
    """

    states: Float[Tensor, "N ..."]
    sigma: Float[Tensor, "..."]
    history: list[Row]


def train_jointly(
    field: nn.Module,
    series: Series,
    sigma: Float[Tensor, "..."],
    *,
    p: int = 8,
    lengths: Sequence[int] = LENGTHS,
    penalties: Sequence[float] = PENALTIES,
    steps: int = 200,
    lr: float = 1e-3,
    states_lr: float = 5e-2,
    symmetry: Symmetry | None = None,
) -> JointResult:
    """Trains a field and the states of a record together, all samples in every step.

    Args:
        field: the network, best trained on the data already; changed in place.
        series: observations at equal distances, in its coordinates.
        sigma: noise, ``[*state]``.
        p: exponent of the test functions.
        lengths: of the segments; those that no stretch has room for are left out.
        penalties: mu of each stage.
        steps: of the optimiser, in each stage.
        lr: rate for the weights; it falls to zero in every stage like a cosine.
        states_lr: rate for the states, in units of sigma.
        symmetry: of the field; every step sees the states under one of its maps.
    """
    if series.dt is None:
        raise ValueError("`series` must have samples at equal distances.")
    parameters = [weight for weight in field.parameters() if weight.requires_grad]
    dtype, device = parameters[0].dtype, parameters[0].device
    record = Record(**series.plan_arguments()).to(device, dtype)
    noise = sigma.to(device, dtype).clamp(min=torch.finfo(dtype).eps)
    seen = torch.ones_like(record.v)
    if series.mask is not None:
        seen = (~series.mask).to(device, dtype)
    start = local_polynomial(series).states.to(device, dtype)
    moves = nn.Parameter(torch.zeros_like(start))
    terms = [_Segments(record, p, ell, series.dt) for ell in lengths]
    terms = [term for term in terms if len(term.starts) > 0]
    if not terms:
        raise ValueError(f"`lengths` must have one that fits; got {list(lengths)}.")
    maps = None if symmetry is None else symmetry.matrices.to(device, dtype)
    generator = torch.Generator().manual_seed(0)
    history: list[Row] = []
    for number, penalty in enumerate(penalties):
        optimizer = torch.optim.Adam(
            [
                {"params": parameters, "lr": lr},
                {"params": [moves], "lr": states_lr},
            ]
        )
        rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        fidelity = residual = start.new_zeros(())
        for _ in range(steps):
            optimizer.zero_grad()
            u = start + noise * moves
            if maps is None:
                f = call_field(field, record.t, u)
            else:
                g = maps[int(torch.randint(len(maps), (), generator=generator))]
                # Back where the states are: noise and data stay as they were.
                f = call_field(field, record.t, u @ g.T) @ torch.linalg.inv(g).T
            misfit = seen * ((record.v - u) / noise).square()
            fidelity = misfit.sum() / seen.sum()
            residual = torch.stack([term(u, f, noise) for term in terms]).mean()
            (fidelity + penalty * residual).backward()
            optimizer.step()
            rates.step()
        history.append(
            {
                "stage": number,
                "penalty": penalty,
                "fidelity": fidelity.item(),
                "residual": residual.item(),
            }
        )
    return JointResult((start + noise * moves).detach(), sigma, history)


def refine_network(
    field: nn.Module,
    series: Series,
    scaler: Scaler,
    p: int,
    symmetry: Symmetry | None = None,
) -> JointResult:
    """:func:`train_jointly` for data in their own units; noise is estimated.

    The symmetry is that of the scaled states.
    """
    if series.forcing is not None:
        raise ValueError("`refine` must be False for a network with inputs.")
    scaled = scaled_series(series, scaler, None)
    first = local_polynomial(scaled)
    found = train_jointly(field, scaled, first.sigma, p=p, symmetry=symmetry)
    states = scaler.inverse(found.states.double().cpu())
    return JointResult(states, scaler.spread(first.sigma), found.history)


class _Segments:
    """Weak residuals of one length in units of the noise they would have."""

    def __init__(self, record: Record, p: int, ell: int, dt: float) -> None:
        v = record.v
        every = max(1, ell // 6)
        starts = window_starts(record.runs, ell + 1)[::every]
        self.starts = starts.contiguous().to(v.device)
        w_lhs, w_rhs = segment_weights(p, ell, dt)
        self._size = w_lhs.norm().item()
        self._w_lhs, self._w_rhs = (w.to(v.device, v.dtype) for w in (w_lhs, w_rhs))

    def __call__(self, u: Tensor, f: Tensor, noise: Tensor) -> Float[Tensor, ""]:
        flat = (1, len(u), -1)
        left = ops.corr(u.reshape(flat), self._w_lhs, starts=self.starts)
        right = ops.corr(f.reshape(flat), self._w_rhs, starts=self.starts)
        return ((left + right) / (self._size * noise.flatten())).square().mean()
