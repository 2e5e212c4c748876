"""Long forecasts compared with a reference: bounds, statistics, choice of solver."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..common.arrays import Array, Field, as_float64
from ..solvers.rollouts import rollout
from .distances import kl_divergence, spectral_distance, state_space_divergence
from .evaluation import draw_starts, reference_runs
from .lyapunov import LyapunovResult, lyapunov_exponents

# Components up to which boxes of the state space hold enough states each.
FEW_COMPONENTS = 5
# Default duration, in Lyapunov times.
DURATION = 20.0
# Share of the duration tangent vectors are given to turn before growth is counted.
ALIGN = 0.1
# Of the adaptive solvers: far below the error of any model.
TOLERANCE = 1e-6
# The solvers the paper swaps.
SOLVERS = ("dopri5", "bosh3", "euler", "midpoint", "rk4")


@dataclass(frozen=True)
class Boundedness:
    """Which long forecasts stay in the range of the truth.

    Attributes:
        share: of the members that never leave.
        bounded: ``[B]``.
        leaves_at: row at which a member first leaves, ``[B]``; T if never.
    """

    share: float
    bounded: Bool[Tensor, " B"]
    leaves_at: Tensor


def boundedness(u_hat: Array, u: Array, *, margin: float = 0.5) -> Boundedness:
    """Tests which forecasts stay in the box of the truth, widened by `margin`.

    Args:
        u_hat: long forecasts, ``[T, B, *state]``.
        u: true states, ``[..., *state]``.
        margin: share of each side of the box by which it is widened at both ends.
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
    """Long forecasts of a field by one solver.

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
    """Long forecasts of one field by several solvers, which agree for a good field.

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


@dataclass(frozen=True)
class Climate:
    """Long forecasts, and how far their statistics are from those of the reference.

    Attributes:
        kl: Kullback-Leibler divergence of the densities; see `kl_kind`.
        kl_halves: of one half of the reference from the other: scatter alone.
        kl_kind: "marginal" (mean over components) or "joint" (of u_x and u_xx).
        state_space: D_stsp, "binned" up to five components, "gmm" for more.
        spectral: D_H, Hellinger distance of the power spectra, 0 to 1.
        bounded: which forecasts stay where the reference lives.
        lyapunov: maximal exponent of the field, over the forecasts that stay bounded;
            None where it was not asked for, or there are none.
        lyapunov_reference: exponent of the system, where it was given.
        solvers: divergence and diverged share of the same forecasts by other solvers.
        t, u_hat: the forecasts, ``[T]`` and ``[T, B, *state]``.
    """

    kl: float
    kl_halves: float
    kl_kind: Literal["marginal", "joint"]
    state_space: float
    spectral: float
    bounded: Boundedness
    lyapunov: LyapunovResult | None
    lyapunov_reference: float | None
    solvers: tuple[SolverRow, ...]
    t: Float[Tensor, " T"]
    u_hat: Float[Tensor, "T B ..."]

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, the rows of a short table."""
        members, duration = self.u_hat.shape[1], self.t[-1].item()
        rows = [
            (
                "long forecasts that stay bounded",
                f"{100 * self.bounded.share:.0f} % of {members} over {duration:.3g} "
                "units of time",
            ),
            (
                f"KL divergence of the densities ({self.kl_kind})",
                f"{self.kl:.3g} (halves of the reference: {self.kl_halves:.3g})",
            ),
            ("state-space divergence D_stsp", f"{self.state_space:.3g}"),
            ("spectral distance D_H (0 to 1)", f"{self.spectral:.3g}"),
            ("maximal Lyapunov exponent of the field", self._exponent()),
        ]
        rows += [
            (
                f"  solved by {row.method}",
                f"KL {row.distance:.3g}, {100 * row.diverged:.0f} % diverged",
            )
            for row in self.solvers
        ]
        return rows

    def summary(self) -> dict[str, Any]:
        """The numbers as builtin types."""
        return {
            "kl": self.kl,
            "kl_halves": self.kl_halves,
            "kl_kind": self.kl_kind,
            "state_space_divergence": self.state_space,
            "spectral_distance": self.spectral,
            "bounded": self.bounded.share,
            "duration": self.t[-1].item(),
            "lyapunov_of_field": None if self.lyapunov is None else self._maximal(),
            "solvers": {
                row.method: {"kl": row.distance, "diverged": row.diverged}
                for row in self.solvers
            },
        }

    def _maximal(self) -> float:
        assert self.lyapunov is not None
        return self.lyapunov.maximal

    def _exponent(self) -> str:
        if self.lyapunov is None:
            return "not computed, or forecasts and their tangents ran away"
        text = f"{self._maximal():.3g} +- {self.lyapunov.error[0].item():.2g}"
        if self.lyapunov_reference is None:
            return text
        return f"{text} (system: {self.lyapunov_reference:g})"


@dataclass(frozen=True)
class ClimateSettings:
    """Settings of :func:`evaluate_climate`.

    Attributes:
        duration: time of each forecast; default 20 Lyapunov times, at most half of the
            longest stretch of the reference.
        members: number of forecasts.
        length: length of the periodic line the states live on; then densities are those
            of (u_x, u_xx), else of every component.
        solvers: the first makes the forecasts; all are compared.
        step: longest step of the fixed-step ones; default the distance of the samples.
        exponent: whether the maximal Lyapunov exponent of the field is computed, which
            takes as long as several forecasts.
        seed: of the choice of starts.
    """

    duration: float | None = None
    members: int = 20
    length: float | None = None
    solvers: Sequence[str] = SOLVERS
    step: float | None = None
    exponent: bool = True
    seed: int = 0


def evaluate_climate(
    field: Field,
    u: Array,
    dt: float,
    *,
    lyapunov_exponent: float | None = None,
    lengths: Sequence[int] | None = None,
    mask: Array | None = None,
    **settings: Any,
) -> Climate:
    """Compares long forecasts from states of a reference with the whole of it.

    Args:
        field: ``field(t, u)`` in the units of the reference.
        u: reference ``[N, *state]``; as clean as can be had.
        dt: distance of its samples.
        lyapunov_exponent: of the system, for the table and the default duration.
        lengths, mask: as in :func:`~wpnode_ext.metrics.evaluation.evaluate_field`.
        **settings: the fields of :class:`ClimateSettings`, for instance `duration`.
    """
    how, truth = ClimateSettings(**settings), as_float64(u, "u")
    runs = reference_runs(len(truth), lengths, mask)
    duration = how.duration
    if duration is None:
        duration = dt * (max((stop - a for a, stop in runs), default=0) // 2)
        if lyapunov_exponent is not None:
            duration = min(duration, DURATION / lyapunov_exponent)
    steps = max(1, round(duration / dt))
    starts = draw_starts(runs, steps, how.members, how.seed)
    t = dt * torch.arange(steps + 1, dtype=torch.float64)
    first = truth[starts]
    states = torch.cat([truth[a:b] for a, b in runs]).flatten(1)
    # A component that never changes has no density.
    moving = states.std(0, correction=0) > 0
    divergence = partial(_divergence, moving=moving, length=how.length)
    result = rollout(
        field,
        first,
        t,
        method=how.solvers[0],
        step=how.step,
        rtol=TOLERANCE,
        atol=TOLERANCE,
    )
    u_hat = result.u.cpu()
    path = u_hat.flatten(2)[..., moving]
    wanted = torch.stack([truth[s : s + steps + 1] for s in starts.tolist()], 1)
    others = solver_robustness(
        field,
        first,
        t,
        reference=states,
        methods=how.solvers[1:],
        step=how.step,
        distance=divergence,
        tolerance=TOLERANCE,
    )
    kl, half = divergence(u_hat, states), len(states) // 2
    bounded = boundedness(u_hat, truth)
    own = SolverRow(how.solvers[0], result.diverged.double().mean().item(), kl)
    lyapunov = None
    if how.exponent:
        # Of the attractor, if there is one: not of forecasts that left it.
        lyapunov = _exponent(field, first[bounded.bounded], dt, duration)
    few = int(moving.sum()) <= FEW_COMPONENTS
    return Climate(
        kl=kl,
        kl_halves=divergence(states[:half], states[half:]),
        kl_kind="marginal" if how.length is None else "joint",
        state_space=state_space_divergence(
            path, states[:, moving], method="binned" if few else "gmm", seed=how.seed
        ),
        spectral=spectral_distance(path, wanted.flatten(2)[..., moving]),
        bounded=bounded,
        lyapunov=lyapunov,
        lyapunov_reference=lyapunov_exponent,
        solvers=(own, *others),
        t=t,
        u_hat=u_hat,
    )


def _divergence(
    u_hat: Tensor, reference: Tensor, *, moving: Tensor, length: float | None
) -> float:
    """KL divergence of the densities; infinity where few states are finite."""
    x = u_hat.reshape(-1, len(moving))
    x = x[x.isfinite().all(1)]
    if len(x) < 10:
        return float("inf")
    if length is None:
        return kl_divergence(x[:, moving], reference[:, moving])
    return kl_divergence(x, reference, kind="joint", length=length)


def _exponent(
    field: Field, u0: Float[Tensor, "B ..."], dt: float, duration: float
) -> LyapunovResult | None:
    if len(u0) == 0:
        return None
    steps = min(10, max(1, round(duration / dt)))
    try:
        return lyapunov_exponents(
            field,
            u0,
            dt=dt,
            duration=max(duration, steps * dt),
            align=ALIGN * duration,
            renormalise_every=steps,
        )
    except ValueError:
        # Raised where states or tangents are no longer finite.
        return None
