"""Forecasts against a reference trajectory: how long they hold, how large they err."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ._arrays import as_float64
from ._typing import Array, Field
from .metrics import VPTResult, vpt
from .solvers import rollout


@dataclass(frozen=True)
class Evaluation:
    """Forecasts from several starts beside the truth, and numbers made of them.

    Attributes:
        vpt: valid prediction time, the paper's definition ("pooled").
        other_vpt: the other two definitions, by name.
        t: lead times, ``[T]``.
        u_hat, u: forecasts and truth, ``[T, B, *state]``.
        rmse, rmse_persistence: root mean square error at each lead time in units of the
            spread of the reference, of the model and of "nothing changes", ``[T]``.
        diverged: share of forecasts that left every bound.
        starts: samples of the reference the forecasts began at, ``[B]``.
        unit: "Lyapunov times", or "units of time" where no exponent was given.
    """

    vpt: VPTResult
    other_vpt: dict[str, VPTResult]
    t: Float[Tensor, " T"]
    u_hat: Float[Tensor, "T B ..."]
    u: Float[Tensor, "T B ..."]
    rmse: Float[Tensor, " T"]
    rmse_persistence: Float[Tensor, " T"]
    diverged: float
    starts: Tensor
    unit: str

    def rows(self) -> list[tuple[str, str]]:
        """A short table: what, and its value."""
        low, high = self.vpt.interval
        rows = [
            (
                f"valid prediction time ({self.unit})",
                f"{self.vpt.mean:.2f} (95 % interval {low:.2f} to {high:.2f})",
            ),
            ("  in units of time", f"{self.vpt.mean_time:.3g}"),
        ]
        rows += [
            (f"  definition {name!r}", f"{result.mean:.2f}")
            for name, result in self.other_vpt.items()
        ]
        for share in (0.1, 0.5, 1.0):
            n = max(1, round(share * (len(self.t) - 1)))
            rows.append(
                (
                    f"error after {self.t[n].item():.3g} units of time",
                    f"{self.rmse[n].item():.3f} (unchanged state: "
                    f"{self.rmse_persistence[n].item():.3f})",
                )
            )
        rows.append(("forecasts that diverged", f"{100 * self.diverged:.0f} %"))
        rows.append(
            (
                "starts, threshold, exponent",
                f"{len(self.starts)}, {self.vpt.threshold:g}, "
                f"{self.vpt.lyapunov_exponent:g}",
            )
        )
        return rows

    def summary(self) -> dict[str, Any]:
        """The numbers with what they mean, as builtin types."""
        return {
            "vpt": self.vpt.mean,
            "vpt_std": self.vpt.std,
            "vpt_interval": list(self.vpt.interval),
            "vpt_time": self.vpt.mean_time,
            "vpt_unit": self.unit,
            "vpt_censored": int(self.vpt.censored.sum()),
            **{f"vpt_{name}": r.mean for name, r in self.other_vpt.items()},
            "threshold": self.vpt.threshold,
            "lyapunov_exponent": self.vpt.lyapunov_exponent,
            "starts": len(self.starts),
            "horizon": self.t[-1].item(),
            "rmse_at_horizon": self.rmse[-1].item(),
            "diverged": self.diverged,
        }

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def evaluate_field(
    field: Field,
    u: Array,
    dt: float,
    *,
    lyapunov_exponent: float | None = None,
    threshold: float = 0.3,
    starts: int = 30,
    horizon: float | None = None,
    method: str = "dopri5",
    seed: int = 0,
    **options: Any,
) -> Evaluation:
    """Forecasts from random states of a reference trajectory, compared with it.

    Args:
        field: ``field(t, u)`` in the units of the reference.
        u: reference ``[N, *state]``; forecasts start on its states as they are. Clean
            ones give the paper's numbers; from noisy ones a perfect model is limited,
            too.
        dt: distance of its samples.
        lyapunov_exponent: maximal exponent; times are in units of time without it.
        threshold: normalised error up to which a forecast counts as valid.
        starts: number of forecasts.
        horizon: time to forecast; default ten Lyapunov times, at most a quarter of the
            reference.
        method: solver of the forecasts.
        seed: of the choice of starts.
        **options: of :func:`~wpnode_ext.rollout`.
    """
    truth = as_float64(u, "u")
    n = len(truth)
    if horizon is None:
        horizon = dt * (n // 4)
        if lyapunov_exponent is not None:
            horizon = min(horizon, 10.0 / lyapunov_exponent)
    steps = max(1, round(horizon / dt))
    if steps >= n:
        raise ValueError(
            f"`u` must be longer than the horizon of {steps} samples; it has {n}. "
            "Shorten `horizon`."
        )
    generator = torch.Generator().manual_seed(seed)
    first = torch.randperm(n - steps, generator=generator)[:starts].sort()[0]
    t = dt * torch.arange(steps + 1, dtype=torch.float64)
    result = rollout(field, truth[first], t, method=method, **options)
    wanted = torch.stack([truth[s : s + steps + 1] for s in first.tolist()], dim=1)
    sigma = truth.std(0, correction=0)
    judged = {
        name: vpt(
            result.u,
            wanted,
            dt=dt,
            lyapunov_exponent=lyapunov_exponent or 1.0,
            threshold=threshold,
            definition=name,
            sigma=None if name == "segment" else sigma,
        )
        for name in ("pooled", "componentwise", "segment")
    }
    spread = sigma.square().sum().sqrt()
    return Evaluation(
        vpt=judged.pop("pooled"),
        other_vpt=judged,
        t=t,
        u_hat=result.u,
        u=wanted,
        rmse=_rmse(result.u - wanted) / spread,
        rmse_persistence=_rmse(wanted[:1] - wanted) / spread,
        diverged=result.diverged.double().mean().item(),
        starts=first,
        unit="units of time" if lyapunov_exponent is None else "Lyapunov times",
    )


def _rmse(error: Float[Tensor, "T B ..."]) -> Float[Tensor, " T"]:
    """Root of the mean over forecasts of the squared norm; those that ended are out."""
    return error.flatten(2).square().sum(-1).nanmean(1).sqrt()
