"""Lyapunov exponents of any field or map, from its tangent dynamics."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..common.arrays import Field
from ..solvers.rollouts import in_dtype
from ..solvers.runge_kutta import integrate


@dataclass(frozen=True)
class LyapunovResult:
    """Exponents in decreasing order, with their scatter.

    Attributes:
        exponents: mean over the members, ``[k]``.
        error: standard error of the mean, ``[k]``; NaN for a single member.
        members: exponents of every member, ``[B, k]``.
    """

    exponents: Float[Tensor, " k"]
    error: Float[Tensor, " k"]
    members: Float[Tensor, "B k"]

    @property
    def maximal(self) -> float:
        return self.exponents[0].item()

    @property
    def kaplan_yorke(self) -> float:
        """Dimension ``j + sum_{i<=j} l_i / |l_{j+1}|``; NaN if too few exponents."""
        sums = self.exponents.cumsum(0)
        if sums[0] < 0:
            return 0.0
        count = int((sums >= 0).sum())
        if count == len(sums):
            return float("nan")
        return count + (sums[count - 1] / self.exponents[count].abs()).item()


def lyapunov_exponents(
    field: Field,
    u0: Float[Tensor, "B ..."],
    *,
    dt: float,
    duration: float,
    n_exponents: int = 1,
    transient: float = 0.0,
    align: float = 0.0,
    renormalise_every: int = 10,
) -> LyapunovResult:
    """Largest exponents of ``du/dt = field(t, u)``, averaged over a batch of starts.

    Integrates states and tangent vectors together by classical RK4 steps and
    re-orthonormalises the vectors by QR (Benettin). Many starts with a short duration
    cost less time than one long run, and give an error bar.

    Args:
        field: callable ``field(t, u)`` that ``torch.func.jvp`` can differentiate. A
            module in another dtype than `u0` is copied into that of `u0`.
        u0: starts on the attractor, ``[B, *state]``.
        dt: step; short enough for RK4 to be accurate and stable.
        duration: time over which growth is averaged.

    Other Args:
        n_exponents: number of exponents, at most the size of the state.
        transient: time that the states are integrated for first.
        align: time in which the tangent vectors align before growth is counted.
        renormalise_every: steps between two QR decompositions.
    """
    field = in_dtype(field, u0.dtype)
    start = torch.zeros((), dtype=torch.float64, device=u0.device)

    def step(u: Tensor) -> Tensor:
        return integrate(field, u, start, [start + dt], method="rk4_classic")[0]

    return map_lyapunov_exponents(
        step,
        u0,
        dt=dt,
        duration=duration,
        n_exponents=n_exponents,
        transient=transient,
        align=align,
        renormalise_every=renormalise_every,
    )


@torch.no_grad()
def map_lyapunov_exponents(
    step: Callable[[Tensor], Tensor],
    u0: Float[Tensor, "B ..."],
    *,
    dt: float,
    duration: float,
    n_exponents: int = 1,
    transient: float = 0.0,
    align: float = 0.0,
    renormalise_every: int = 10,
) -> LyapunovResult:
    """Largest exponents of a map that advances states ``[B, *state]`` by the time `dt`.

    The map may be a discrete model, or a solver for a stiff field that RK4 cannot
    integrate. The other arguments are those of :func:`lyapunov_exponents`.
    """
    state = u0.shape[1:]
    if u0.dim() < 2:
        raise ValueError(f"`u0` must have shape [B, *state]; got {list(u0.shape)}.")
    if not 1 <= n_exponents <= state.numel():
        raise ValueError(
            f"`n_exponents` must be from 1 to {state.numel()}; got {n_exponents}."
        )
    if not (dt > 0 and duration >= dt * renormalise_every):
        raise ValueError(
            f"`duration` must be at least {renormalise_every} steps of {dt}; "
            f"got {duration}."
        )
    u = u0
    for _ in range(round(transient / dt)):
        u = step(u)
    tangents = torch.eye(state.numel(), dtype=u.dtype, device=u.device)
    tangents = tangents[:n_exponents].expand(len(u), -1, -1)

    def advance(u: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # Fields expect one batch axis, so each state is repeated for every vector.
        states = u.repeat_interleave(n_exponents, 0)
        vectors = tangents.reshape(-1, *state)
        for _ in range(renormalise_every):
            states, vectors = torch.func.jvp(step, (states,), (vectors,))[:2]
        columns = vectors.reshape(len(u), n_exponents, -1).mT
        basis, growth = torch.linalg.qr(columns)
        return states[::n_exponents], basis.mT, growth.diagonal(dim1=1, dim2=2).abs()

    period = dt * renormalise_every
    for _ in range(round(align / period)):
        u, tangents, _ = advance(u, tangents)
    count = round(duration / period)
    sums = u.new_zeros(len(u), n_exponents)
    for _ in range(count):
        u, tangents, growth = advance(u, tangents)
        sums += growth.log()
    if not sums.isfinite().all():
        raise ValueError(
            "the states or their tangents grew without bound; start on the attractor, "
            "or take a shorter `dt`."
        )
    members = sums / (count * period)
    spread = members.std(0) / len(members) ** 0.5
    order = members.mean(0).argsort(descending=True)
    return LyapunovResult(members.mean(0)[order], spread[order], members[:, order])
