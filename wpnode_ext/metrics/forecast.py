"""Forecasts: error against lead time, boundedness, dependence on the solver."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from ..common.arrays import as_float64
from ..common.typing import Array, Field
from ..solvers.rollouts import rollout
from .distances import kl_divergence
from .vpt import Definition, normalised_error

# The solvers the paper swaps.
SOLVERS = ("dopri5", "bosh3", "euler", "midpoint", "rk4")


@dataclass(frozen=True)
class LeadTimeError:
    """Error of a set of forecasts against lead time.

    Attributes:
        rmse: root mean square of the normalised error over members still finite,
            ``[T]``; NaN where no member is left.
        finite: share of the members that are finite, ``[T]``: an error that stops
            growing because members were lost is no success.
    """

    rmse: Float[Tensor, " T"]
    finite: Float[Tensor, " T"]


def error_by_lead_time(
    u_hat: Array,
    u: Array,
    *,
    definition: Definition = "pooled",
    sigma: Array | None = None,
) -> LeadTimeError:
    """Root mean square over forecasts of the error of :func:`~wpnode_ext.vpt`.

    Args:
        u_hat, u: forecasts and truth, ``[T, B, *state]``.
        definition: how components are weighted, as in :func:`~wpnode_ext.vpt`.
        sigma: standard deviations ``[*state]``; default those of `u`.
    """
    forecast, truth = _pair(u_hat, u)
    error = normalised_error(forecast, truth, definition=definition, sigma=sigma)
    there = error.isfinite()
    total = error.masked_fill(~there, 0.0).square().sum(1)
    return LeadTimeError(
        rmse=(total / there.sum(1)).sqrt(), finite=there.double().mean(1)
    )


@dataclass(frozen=True)
class Boundedness:
    """Which long forecasts stay where the truth lives.

    Attributes:
        share: of the members that never leave.
        bounded: ``[B]``.
        leaves_at: row at which a member first leaves, ``[B]``; T if never.
    """

    share: float
    bounded: Bool[Tensor, " B"]
    leaves_at: Tensor


def boundedness(u_hat: Array, u: Array, *, margin: float = 0.5) -> Boundedness:
    """Whether forecasts stay in the box of the truth, widened by `margin` of its sides.

    Args:
        u_hat: long forecasts, ``[T, B, *state]``.
        u: true states, ``[..., *state]``.
        margin: how far beyond the truth's range counts as inside.
    """
    forecast, truth = as_float64(u_hat, "u_hat"), as_float64(u, "u")
    state = forecast.shape[2:]
    if forecast.dim() < 3 or truth.shape[truth.dim() - len(state) :] != state:
        raise ValueError(
            "`u_hat` must have shape [T, B, *state] and `u` end in the same state; "
            f"got {list(forecast.shape)} and {list(truth.shape)}."
        )
    states = truth.reshape(-1, *state)
    low, high = states.amin(0), states.amax(0)
    room = margin * (high - low)
    # NaN is outside: no comparison with it holds.
    inside = ((forecast >= low - room) & (forecast <= high + room)).flatten(2).all(2)
    still = inside.cummin(0).values
    bounded = still[-1]
    return Boundedness(
        share=bounded.double().mean().item(), bounded=bounded, leaves_at=still.sum(0)
    )


@dataclass(frozen=True)
class SolverRow:
    """What one solver makes of a field.

    Attributes:
        diverged: share of members that left every bound.
        distance: of the climate from the reference; infinity if all members diverged.
    """

    method: str
    diverged: float
    distance: float


def solver_robustness(
    field: Field,
    u0: Float[Tensor, "B ..."],
    t: Array,
    *,
    reference: Array | None = None,
    methods: Sequence[str] = SOLVERS,
    step: float | None = None,
    distance: Callable[[Tensor, Tensor], float] | None = None,
    tolerance: float = 1e-6,
) -> list[SolverRow]:
    """Long rollouts of one field by several solvers; a good field does not care.

    Args:
        field: callable ``field(t, u)``.
        u0: starts, ``[B, *state]``.
        t: times, ``[T]``.
        reference: states ``[..., *state]`` of the truth; default the rollouts of the
            first solver.
        methods: solvers, see :func:`~wpnode_ext.rollout`.
        step: longest step of the fixed-step ones; default the distance of `t`.
        distance: of rollouts from the reference; default the marginal
            :func:`~wpnode_ext.metrics.kl_divergence`.
        tolerance: rtol and atol of the adaptive ones.
    """
    rows: list[SolverRow] = []
    truth = None if reference is None else as_float64(reference, "reference")
    measure = distance or (lambda u_hat, u: kl_divergence(u_hat, u))
    for method in methods:
        result = rollout(
            field, u0, t, method=method, step=step, rtol=tolerance, atol=tolerance
        )
        u = result.u.cpu()
        if truth is None:
            truth = u
        gone = result.diverged.cpu()
        far = float("inf") if gone.all() else measure(u[:, ~gone], truth)
        rows.append(SolverRow(method, gone.double().mean().item(), far))
    return rows


def _pair(u_hat: Array, u: Array) -> tuple[Tensor, Tensor]:
    forecast, truth = as_float64(u_hat, "u_hat"), as_float64(u, "u")
    if forecast.shape != truth.shape or truth.dim() < 3:
        raise ValueError(
            "`u_hat` and `u` must have one shape [T, B, *state]; "
            f"got {list(forecast.shape)} and {list(truth.shape)}."
        )
    return forecast, truth
