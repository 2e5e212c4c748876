"""Forecasts compared with a reference trajectory: prediction times and errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..common.arrays import Array, Field, as_float64
from ..fields.base import device_of
from ..solvers.rollouts import rollout
from ..weak.segments import Runs, gap_free_runs, window_starts
from .vpt import VPTResult, error_by_lead_time, vpt


@dataclass(frozen=True)
class Evaluation:
    """Forecasts from several starts, the truth, and the measures of their agreement.

    Attributes:
        vpt: valid prediction time, the paper's definition ("pooled").
        other_vpt: the other two definitions, by name.
        t: lead times, ``[T]``.
        u_hat, u: forecasts and truth, ``[T, B, *state]``.
        rmse, rmse_persistence: root mean square error of the model and of an unchanged
            state at each lead time, in units of the spread of the reference, ``[T]``.
        finite: share of the forecasts that count in the error at each lead time,
            ``[T]``.
        diverged: share of the forecasts that diverged.
        starts: samples of the reference at which the forecasts begin, ``[B]``.
        unit: "Lyapunov times", or "units of time" where no exponent was given.
    """

    vpt: VPTResult
    other_vpt: dict[str, VPTResult]
    t: Float[Tensor, " T"]
    u_hat: Float[Tensor, "T B ..."]
    u: Float[Tensor, "T B ..."]
    rmse: Float[Tensor, " T"]
    rmse_persistence: Float[Tensor, " T"]
    finite: Float[Tensor, " T"]
    diverged: float
    starts: Tensor
    unit: str

    def rows(self) -> list[tuple[str, str]]:
        """Rows of a short table: name and value."""
        low, high = self.vpt.interval
        scaled = self.unit != "units of time"
        rows = [
            (
                f"valid prediction time ({self.unit})",
                f"{self.vpt.mean:.2f} (95 % interval {low:.2f} to {high:.2f})",
            ),
        ]
        if scaled:
            rows.append(("  in units of time", f"{self.vpt.mean_time:.3g}"))
        rows += [
            (f"  definition {name!r}", f"{result.mean:.2f}")
            for name, result in self.other_vpt.items()
        ]
        censored = int(self.vpt.censored.sum())
        if censored:
            text = f"{censored}; their times are lower bounds"
            rows.append(("  forecasts still valid at the end", text))
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
        rows.append(("starts, threshold", f"{len(self.starts)}, {self.vpt.threshold}"))
        if scaled:
            rows.append(("Lyapunov exponent", f"{self.vpt.lyapunov_exponent:g}"))
        return rows

    def summary(self) -> dict[str, Any]:
        """The measures by name, as builtin types."""
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
    lengths: Sequence[int] | None = None,
    mask: Array | None = None,
    **options: Any,
) -> Evaluation:
    """Compares forecasts from random states of a reference trajectory with it.

    Args:
        field: ``field(t, u)`` in the units of the reference.
        u: reference ``[N, *state]``; forecasts start from its states. The paper uses a
            clean reference; a noisy one limits the prediction time of any model.
        dt: interval of its samples.
        lyapunov_exponent: maximal exponent; times are in units of time without it.
        threshold: normalised error up to which a forecast counts as valid.
        starts: number of forecasts.
        horizon: time to forecast; default ten Lyapunov times, at most a quarter of the
            reference.
        method: solver of the forecasts.
        seed: seed of the choice of starts.
        lengths: lengths of several concatenated series; no forecast is compared with
            samples of two of them.
        mask: True where a value is missing, ``[N]`` or the shape of `u`; no forecast is
            compared with such samples.
        **options: further arguments of :func:`~wpnode_ext.rollout`.
    """
    truth = as_float64(u, "u")
    runs = reference_runs(len(truth), lengths, mask)
    longest = max((stop - first for first, stop in runs), default=0)
    if horizon is None:
        horizon = dt * (longest // 4)
        if lyapunov_exponent is not None:
            horizon = min(horizon, 10.0 / lyapunov_exponent)
    steps = max(1, round(horizon / dt))
    first = draw_starts(runs, steps, starts, seed)
    t = dt * torch.arange(steps + 1, dtype=torch.float64)
    begun = truth[first].to(device_of(field))
    result = rollout(field, begun, t, method=method, **options)
    u_hat = result.u.to(truth.device)
    wanted = torch.stack([truth[s : s + steps + 1] for s in first.tolist()], dim=1)
    seen = torch.cat([truth[a:b] for a, b in runs])
    sigma = seen.std(0, correction=0)
    judged = {
        name: vpt(
            u_hat,
            wanted,
            dt=dt,
            lyapunov_exponent=lyapunov_exponent or 1.0,
            threshold=threshold,
            definition=name,
            sigma=None if name == "segment" else sigma,
        )
        for name in ("pooled", "componentwise", "segment")
    }
    error = error_by_lead_time(u_hat, wanted, sigma=sigma)
    still = error_by_lead_time(wanted[:1].expand_as(wanted), wanted, sigma=sigma)
    return Evaluation(
        vpt=judged.pop("pooled"),
        other_vpt=judged,
        t=t,
        u_hat=u_hat,
        u=wanted,
        rmse=error.rmse,
        rmse_persistence=still.rmse,
        finite=error.finite,
        diverged=result.diverged.double().mean().item(),
        starts=first,
        unit="units of time" if lyapunov_exponent is None else "Lyapunov times",
    )


def reference_runs(
    n_samples: int, lengths: Sequence[int] | None, mask: Array | None
) -> Runs:
    """Stretches of a reference without a border or a missing value."""
    missing = None
    if mask is not None:
        missing = (as_float64(mask, "mask") != 0).reshape(n_samples, -1).any(1)
    return gap_free_runs(n_samples, lengths=lengths, missing=missing)


def draw_starts(runs: Runs, steps: int, count: int, seed: int) -> Int[Tensor, " B"]:
    """Random starts of forecasts that have `steps` samples of the reference ahead."""
    candidates = window_starts(runs, steps + 1)
    if len(candidates) == 0:
        longest = max((stop - first for first, stop in runs), default=0)
        raise ValueError(
            f"`u` must be longer than the horizon of {steps} samples; its longest "
            f"stretch without a gap has {longest}. Shorten `horizon`."
        )
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(candidates), generator=generator)[:count]
    return candidates[chosen.sort()[0]]
