"""States as free variables beside the weights of a network.

Noise in the states biases a network that is trained on the data. Here states may leave
the data. The sum ::

    mean |(v - u) / sigma|^2 + mu mean_ell mean_k |r_k(u, f) / (sigma |w_lhs|)|^2

is minimised over states u and weights by gradients; residuals are those of the weak
form for several lengths of segments, in units of the residuals of noise alone. The
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
from ..settings.config import JointConfig
from ..smoothing import Watch, first_states, hide_values
from ..weak.plan import SegmentSums, WeakForm
from ..weak.segments import window_starts
from .trainer import Row


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
    config: JointConfig | None = None,
    *,
    p: int = 8,
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
        config: stages, rates and hidden values.
        p: exponent of the test functions.
        seed: of the choice of hidden values.
        progress: called with the record of every stage.
        symmetry: of the field; every step sees the states under one of its maps.
    """
    config = config or JointConfig()
    hidden = hide_values(series, config.held_out, seed)
    problem = _Problem(field, series, sigma, hidden, config.lengths, p, symmetry, seed)
    watch, history = Watch(), list[Row]()
    watch.judge(problem.errors())
    best, reason, rate = 0, "the stages ended", config.lr
    for number, penalty in enumerate(config.penalties, start=1):
        before = problem.saved()
        while (
            not problem.descend(penalty, rate, config)
            and rate > config.least_lr * config.lr
        ):
            rate /= 10
            problem.restore(before)
        missed = problem.errors()
        row = problem.row(penalty) | {
            "epoch": float(number - 1),
            "loss": missed.mean().item(),
        }
        history.append(row)
        progress(row)
        if watch.judge(missed) == "worse":
            problem.restore(before)
            reason = "held-out observations were predicted worse"
            break
        best = number
    return JointResult(problem.states(), sigma, hidden, history, best, reason)


class _Problem:
    """The sum to be minimised, as a function of weights and states."""

    def __init__(
        self,
        field: nn.Module,
        series: Series,
        sigma: Float[Tensor, "..."],
        hidden: Bool[Tensor, "N ..."],
        lengths: Sequence[int],
        p: int,
        symmetry: Symmetry | None,
        seed: int,
    ) -> None:
        kept = without(series, hidden)
        self._field, self._series = field, series
        self._sigma, self._hidden = sigma, hidden
        self._weights = [w for w in field.parameters() if w.requires_grad]
        dtype, device = self._weights[0].dtype, self._weights[0].device
        # Segments end at missing samples, not at hidden values: there states are free.
        self._record = series.to(dtype, device)
        self._noise = sigma.to(device, dtype).clamp(min=torch.finfo(dtype).eps)
        self._seen = torch.ones_like(self._record.v)
        if kept.mask is not None:
            self._seen = (~kept.mask).to(device, dtype)
        self._start = first_states(kept, sigma).states.to(device, dtype)
        self._moves = nn.Parameter(torch.zeros_like(self._start))
        terms = [_Segments(self._record, p, ell) for ell in lengths]
        self._terms = [term for term in terms if len(term.starts) > 0]
        if not self._terms:
            raise ValueError(f"`lengths` must have one that fits; got {list(lengths)}.")
        self._maps = None if symmetry is None else symmetry.matrices.to(device, dtype)
        self._turns = torch.Generator().manual_seed(seed)

    def __call__(self) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Misfit to the data and weak residual, in units of the noise."""
        u, clock = self._u(), self._record.clock
        if self._maps is None:
            f = call_field(self._field, clock, u)
        else:
            turn = int(torch.randint(len(self._maps), (), generator=self._turns))
            g = self._maps[turn]
            # Back where the states are: noise and data stay as they were.
            f = call_field(self._field, clock, u @ g.T) @ torch.linalg.inv(g).T
        misfit = self._seen * ((self._record.v - u) / self._noise).square()
        residuals = torch.stack([term(u, f, self._noise) for term in self._terms])
        return misfit.sum() / self._seen.sum(), residuals.mean()

    def descend(self, penalty: float, rate: float, config: JointConfig) -> bool:
        """One stage; False as soon as the sum leaps up."""
        groups = [{"params": self._weights, "lr": rate}, {"params": [self._moves]}]
        optimizer = torch.optim.Adam(groups, lr=config.states_lr)
        rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
        first = float("inf")
        for number in range(config.steps):
            optimizer.zero_grad()
            fidelity, residual = self()
            total = fidelity + penalty * residual
            total.backward()
            first = total.item() if number == 0 else first
            if not total.item() <= config.leap * first:
                return False
            optimizer.step()
            rates.step()
        return True

    @torch.no_grad()
    def row(self, penalty: float) -> Row:
        """Both terms at the end of a stage."""
        fidelity, residual = self()
        return {
            "penalty": penalty,
            "fidelity": fidelity.item(),
            "residual": residual.item(),
        }

    def states(self) -> Float[Tensor, "N ..."]:
        """States as they are now, float64."""
        return self._u().detach().double().cpu()

    def errors(self) -> Float[Tensor, " H"]:
        """Squared errors at the hidden values, in variances of the noise."""
        missed = (self._series.v.double() - self.states()) / self._sigma
        return missed[self._hidden].square()

    def saved(self) -> tuple[dict[str, Any], Tensor]:
        """A copy of weights and states."""
        return deepcopy(self._field.state_dict()), self._moves.detach().clone()

    def restore(self, saved: tuple[dict[str, Any], Tensor]) -> None:
        """Takes back weights and states of :meth:`saved`."""
        self._field.load_state_dict(saved[0])
        self._moves.data.copy_(saved[1])

    def _u(self) -> Float[Tensor, "N ..."]:
        return self._start + self._noise * self._moves


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
