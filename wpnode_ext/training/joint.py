"""States as free variables beside the weights of a network.

A network has no closed form, but the same remedy: it is trained on states that may
leave the data. The sum ::

    mean |(v - u) / sigma|^2 + mu mean_ell mean_k |r_k(u, f) / (sigma |w_lhs|)|^2

is minimised over states u and weights by gradients; residuals are those of the weak
form for several lengths of segments, in units of what the noise would make of them. The
penalty mu rises in stages: the data lead first, the field in the end. A share of the
values is kept from all of it: when they are predicted worse, the stages end.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..coordinates.symmetry import Symmetry
from ..data import Series
from ..fields.base import call_field
from ..smoothing import Watch, first_states, hide_values
from ..weak.plan import SegmentSums, WeakForm
from ..weak.segments import window_starts
from .trainer import Row

# Short segments are needed: long ones do not see what changes from sample to sample.
LENGTHS = (4, 6, 16, 50)
# With less the states return to the data, noise and all.
PENALTIES = (10.0, 100.0, 1000.0)
# Where large weights almost cancel, a step may raise the sum by orders of magnitude. A
# stage that sees it raised by this factor begins again with a tenth of the rate, down
# to this share of the one asked for.
LEAP, LEAST_SHARE = 10.0, 1e-4
# Share of the values that judge the stages.
HELD_OUT = 0.05


@dataclass(frozen=True)
class JointResult:
    """States that a network was trained with.

    Attributes:
        states: those of the stage that was kept, ``[N, *state]``.
        sigma: noise, ``[*state]``, in the same units.
        hidden: values that were kept from the training, ``[N, *state]``.
        history: fidelity and residual of every stage at its end, and its `loss`: the
            mean square error at the hidden values, in variances of the noise.
        best: number of the stage that was kept; 0: field and states as they came.
        reason: why the stages ended.
    """

    states: Float[Tensor, "N ..."]
    sigma: Float[Tensor, "..."]
    hidden: Bool[Tensor, "N ..."]
    history: list[Row]
    best: int
    reason: str


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
    held_out: float = HELD_OUT,
    seed: int = 0,
    progress: Callable[[Row], None] = lambda row: None,
    symmetry: Symmetry | None = None,
) -> JointResult:
    """Trains a field and the states of a record together, all samples in every step.

    Args:
        field: the network, best trained on the data already; changed in place. It ends
            with the weights of the last stage that predicted hidden values no worse
            than the best one did.
        series: observations, in its coordinates.
        sigma: noise, ``[*state]``.
        p: exponent of the test functions.
        lengths: of the segments; those that no stretch has room for are left out.
        penalties: mu of each stage.
        steps: of the optimiser, in each stage.
        lr: rate for the weights, less where it is too large for them; it falls to zero
            in every stage like a cosine.
        states_lr: rate for the states, in units of sigma.
        held_out: share of the values that is hidden.
        seed: of the choice of these.
        progress: called with the record of every stage.
        symmetry: of the field; every step sees the states under one of its maps.
    """
    hidden = hide_values(series, held_out, seed)
    kept = without(series, hidden)
    parameters = [weight for weight in field.parameters() if weight.requires_grad]
    dtype, device = parameters[0].dtype, parameters[0].device
    # Segments end at missing samples, not at hidden values: there states are free.
    record = series.to(dtype, device)
    observed = record.v
    noise = sigma.to(device, dtype).clamp(min=torch.finfo(dtype).eps)
    seen = torch.ones_like(observed)
    if kept.mask is not None:
        seen = (~kept.mask).to(device, dtype)
    start = first_states(kept, sigma).states.to(device, dtype)
    moves = nn.Parameter(torch.zeros_like(start))
    terms = [_Segments(record, p, ell) for ell in lengths]
    terms = [term for term in terms if len(term.starts) > 0]
    if not terms:
        raise ValueError(f"`lengths` must have one that fits; got {list(lengths)}.")
    maps = None if symmetry is None else symmetry.matrices.to(device, dtype)
    turns = torch.Generator().manual_seed(seed)

    def both_terms() -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        u = start + noise * moves
        if maps is None:
            f = call_field(field, record.clock, u)
        else:
            g = maps[int(torch.randint(len(maps), (), generator=turns))]
            # Back where the states are: noise and data stay as they were.
            f = call_field(field, record.clock, u @ g.T) @ torch.linalg.inv(g).T
        misfit = seen * ((observed - u) / noise).square()
        residuals = torch.stack([term(u, f, noise) for term in terms])
        return misfit.sum() / seen.sum(), residuals.mean()

    def descend(penalty: float, rate: float) -> bool:
        """One stage; False as soon as the sum leaps up."""
        groups = [{"params": parameters, "lr": rate}, {"params": [moves]}]
        optimizer = torch.optim.Adam(groups, lr=states_lr)
        rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        first = float("inf")
        for number in range(steps):
            optimizer.zero_grad()
            fidelity, residual = both_terms()
            total = fidelity + penalty * residual
            total.backward()
            first = total.item() if number == 0 else first
            if not total.item() <= LEAP * first:
                return False
            optimizer.step()
            rates.step()
        return True

    def errors() -> Float[Tensor, " H"]:
        u = (start + noise * moves).detach().double().cpu()
        return ((series.v.double() - u) / sigma)[hidden].square()

    watch, history = Watch(), list[Row]()
    watch.judge(errors())
    best, reason, rate = 0, "the stages ended", lr
    for number, penalty in enumerate(penalties, start=1):
        before = deepcopy(field.state_dict()), moves.detach().clone()
        while not descend(penalty, rate) and rate > LEAST_SHARE * lr:
            rate /= 10
            _restore(field, moves, before)
        with torch.no_grad():
            fidelity, residual = both_terms()
        missed = errors()
        row = {
            "epoch": float(number - 1),
            "penalty": penalty,
            "fidelity": fidelity.item(),
            "residual": residual.item(),
            "loss": missed.mean().item(),
        }
        history.append(row)
        progress(row)
        if watch.judge(missed) == "worse":
            _restore(field, moves, before)
            reason = "held-out observations were predicted worse"
            break
        best = number
    states = (start + noise * moves).detach().double().cpu()
    return JointResult(states, sigma, hidden, history, best, reason)


def _restore(
    field: nn.Module, moves: nn.Parameter, saved: tuple[dict[str, Any], Tensor]
) -> None:
    field.load_state_dict(saved[0])
    moves.data.copy_(saved[1])


def without(series: Series, hidden: Bool[Tensor, "N ..."]) -> Series:
    """The series with more values missing."""
    return replace(series, mask=hidden if series.mask is None else series.mask | hidden)


class _Segments:
    """Weak residuals of one length in units of the noise they would have."""

    def __init__(self, record: Series, p: int, ell: int) -> None:
        v = record.v
        every = max(1, ell // 6)
        starts = window_starts(record.runs, ell + 1)[::every]
        self.starts = starts.contiguous().to(v.device)
        if len(starts) == 0:
            return
        sums = SegmentSums.at(starts, WeakForm(p, ell), dt=record.dt, t=record.t)
        # One number, or one for each segment where each has its own weights.
        self._size = sums.w_lhs.norm(dim=-1, keepdim=True).to(v.device, v.dtype)
        self._sums = sums.to(v.device, v.dtype)

    def __call__(self, u: Tensor, f: Tensor, noise: Tensor) -> Float[Tensor, ""]:
        flat = (1, len(u), -1)
        residual = self._sums.left(u.reshape(flat)) + self._sums.right(f.reshape(flat))
        return (residual / (self._size * noise.flatten())).square().mean()
