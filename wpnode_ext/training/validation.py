"""How well a field forecasts held-out data while it is being trained."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..data import Series
from ..fields.base import device_of
from ..fields.linear import LinearField
from ..solvers.exponential import exponential_steps, stiff_part
from ..solvers.strong import solve_windows
from ..weak.segments import window_starts


@dataclass(frozen=True)
class ForecastLimits:
    """How errors of forecasts count, in units of the spread of the data.

    Attributes:
        lost: errors beyond this one count alike. Two unrelated states of the data
            differ by about 1.4.
        runaway: a forecast of a map ends at a larger error, before it overflows.
        valid: errors up to this one count as a valid prediction.
        longest: most samples of a forecast whose horizon is not given.
    """

    lost: float = 1.0
    runaway: float = 100.0
    valid: float = 0.3
    longest: int = 500


_DEFAULT = ForecastLimits()


class ForecastValidation:
    """Mean error of forecasts from states of a held-out, filtered record.

    With ``E(t) = |u_hat(t) - u(t)|`` in units of the spread of the record (root of the
    summed variances), the score is the mean of ``min(E, 1)`` over starts and lead
    times; lower is better. It falls as the forecasts stay right for longer, and unlike
    a valid prediction time it changes with every small gain. Forecasts take steps of
    the samples: RK4, or exponential ones where part of the field decays too fast for
    it, see :mod:`~wpnode_ext.solvers.exponential`.

    Args:
        record: filtered data that were not trained on, scaled as the training data.
        starts: number of forecasts, from starts spread evenly over the record.
        horizon: samples to forecast; default a quarter of the longest stretch, at most
            500. At most half of that stretch, which leaves room for different starts.
        limits: how errors count.
    """

    def __init__(
        self,
        record: Series,
        *,
        starts: int = 32,
        horizon: int | None = None,
        limits: ForecastLimits = _DEFAULT,
    ) -> None:
        self._limits = limits
        longest = record.longest_run
        wanted = min(longest // 4, limits.longest) if horizon is None else horizon
        self.horizon = max(1, min(wanted, longest // 2))
        candidates = window_starts(record.runs, self.horizon + 1)
        if len(candidates) == 0:
            raise ValueError(
                "the held-out data have no two samples without a gap between them; "
                "hold out a larger `validation.fraction`."
            )
        chosen = torch.linspace(0, len(candidates) - 1, min(starts, len(candidates)))
        self._starts = candidates[chosen.round().long()].to(record.v.device)
        self._record = record
        flat = record.v.flatten(1)
        inside = torch.cat([flat[first:stop] for first, stop in record.runs])
        self._spread = inside.var(0, correction=0).sum().sqrt()

    @torch.no_grad()
    def __call__(self, field: nn.Module) -> dict[str, float]:
        """``val_error``, the score, and ``val_time``, mean time until E exceeds 0.3."""
        errors, lengths = self.errors(field)
        valid = (errors <= self._limits.valid).long().cumprod(0)
        return {
            "val_error": errors.clamp(max=self._limits.lost).mean().item(),
            "val_time": (valid * lengths).sum(0).mean().item(),
        }

    @torch.no_grad()
    def compare(
        self, field: LinearField, heads: Float[Tensor, "R J O"]
    ) -> Float[Tensor, " R"]:
        """``val_error`` of a field with each of several coefficients.

        Fields that Runge-Kutta steps can follow are forecast together.
        """
        own, scores = field.coefficients.clone(), torch.empty(len(heads)).double()
        t, v, steps = self._clock()
        stiff = torch.zeros(len(heads), dtype=torch.bool)
        for number, values in enumerate(heads):
            field.set_coefficients(values)
            if self._stiff_part(field, t, v[self._starts]) is not None:
                stiff[number] = True
                scores[number] = self(field)["val_error"]
        field.set_coefficients(own)
        if not stiff.all():
            together = field.with_heads(heads[~stiff])
            starts = v[self._starts].expand(int((~stiff).sum()), -1, -1)
            states = solve_windows(
                lambda _, u: together(u), starts, t, steps, method="rk4"
            )
            errors = self._errors(states, v)
            scores[~stiff] = errors.clamp(max=self._limits.lost).mean((0, 2)).to(scores)
        return scores

    def errors(
        self, field: nn.Module
    ) -> tuple[Float[Tensor, "H B"], Float[Tensor, "H B"]]:
        """E of every lead time and start, and the lengths of the steps before it."""
        states, v, lengths = self._forecasts(field)
        return self._errors(states, v), lengths

    def error_of_map(self, step: Callable[[Tensor], Tensor]) -> float:
        """The score of a map from one sample to the next, between 0 and 1."""
        return self.errors_of_map(step).mean().item()

    @torch.no_grad()
    def errors_of_map(self, step: Callable[[Tensor], Tensor]) -> Float[Tensor, " B"]:
        """Mean of ``min(E, 1)`` over the lead times of every start.

        Args:
            step: takes states ``[B, D]`` one sample ahead. Samples must be at equal
                distances.
        """
        v, lost = self._record.v, self._limits.lost
        u = v[self._starts]
        alive = torch.ones(len(u), dtype=torch.bool, device=u.device)
        errors = u.new_full((self.horizon, len(u)), lost)
        for lead in range(self.horizon):
            u = step(u)
            wanted = v[self._starts + lead + 1]
            error = (u - wanted).norm(dim=1) / self._spread
            alive &= error < self._limits.runaway
            if not alive.any():
                break
            errors[lead] = torch.where(alive, error.clamp(max=lost), lost)
            # Forecasts that ran away wait on the data, where any map is finite.
            u = torch.where(alive[:, None], u, wanted)
        return errors.mean(0)

    @torch.no_grad()
    def forecasts(
        self, field: nn.Module
    ) -> tuple[
        Float[Tensor, "H B ..."],
        Float[Tensor, "H B ..."],
        Float[Tensor, "B ..."],
        Float[Tensor, "H B"],
    ]:
        """Forecasts, the record at their times, their starts, and lengths of steps."""
        states, v, lengths = self._forecasts(field)
        wanted = [v[self._starts + lead + 1] for lead in range(self.horizon)]
        return torch.stack(states), torch.stack(wanted), v[self._starts], lengths

    def _forecasts(
        self, field: nn.Module
    ) -> tuple[list[Float[Tensor, "B ..."]], Float[Tensor, "N ..."], Tensor]:
        """States after every step, the record, and the lengths of the steps."""
        self._follow(device_of(field, self._starts.device))
        t, v, steps = self._clock()
        u, lengths = v[self._starts], torch.stack([h.flatten(1)[:, 0] for h in steps])
        linear = self._stiff_part(field, t, u)
        if linear is None:
            return solve_windows(field, u, t, steps, method="rk4"), v, lengths
        dt = self._record.dt
        assert dt is not None
        return exponential_steps(field, linear, u, t, dt, len(steps)), v, lengths

    def _clock(self) -> tuple[Tensor, Float[Tensor, "N ..."], list[Tensor]]:
        """Times of the starts, the record, and the lengths of the steps from there."""
        t = self._record.clock
        times = [t[self._starts + lead] for lead in range(self.horizon + 1)]
        steps = [after - before for before, after in pairwise(times)]
        return times[0], self._record.v, steps

    def _stiff_part(
        self, field: nn.Module, t: Tensor, u: Float[Tensor, "B ..."]
    ) -> Float[Tensor, "D D"] | None:
        """The linear part of a field that Runge-Kutta steps cannot follow, or None."""
        dt = self._record.dt
        return None if dt is None else stiff_part(field, t.flatten()[0], u.mean(0), dt)

    def _errors(
        self, states: list[Float[Tensor, "..."]], v: Float[Tensor, "N ..."]
    ) -> Float[Tensor, "H *many B"]:
        """E of states at every lead time."""
        axes = tuple(range(1 - v.dim(), 0))
        errors = [
            (u - v[self._starts + lead]).square().sum(axes).sqrt() / self._spread
            for lead, u in enumerate(states, start=1)
        ]
        lost = self._limits.lost
        return torch.stack(errors).nan_to_num(nan=lost, posinf=lost)

    def _follow(self, device: torch.device) -> None:
        """The record where the field is: training may move it after this was made."""
        if self._starts.device != device:
            self._record = self._record.to(device=device)
            self._starts = self._starts.to(device)
            self._spread = self._spread.to(device)
