"""Observations as one record: a batch or several series, laid end to end."""

import copy
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .segments import check_times, gap_free_runs, missing_samples


class Record:
    """Data ``[N, *state]`` with their times and the runs that have no gap.

    A batch becomes series laid end to end. Missing values are zero here: no loss reads
    them, but a field that met NaN would spoil the gradients of its weights.

    Args:
        v: observations, ``[*batch, N, *state]``.
        dt: distance of uniform samples. Give either `dt` or `t`.
        t: times of the samples, ``[N]``, increasing within each series.
        dim: time axis; axes before it are a batch, axes after it are the state.
        lengths: lengths of several series laid end to end along `dim`.
        mask: True where a sample is missing, ``[N]``, ``[*batch, N]`` or the shape of
            `v`.
        max_gap: with `t`, a longer step is a gap; default three median steps.
        clock: times the field is given, ``[N]``, where those that follow from `dt` are
            not the ones it knows (several series, each with its own first time).

    Attributes:
        v: ``[B N, *state]``.
        t: float64 times, broadcastable against `v`.
        dt: distance of the samples, or None where steps may differ.
        runs: pairs (first, stop) of samples that follow one another.
    """

    def __init__(
        self,
        v: Float[Tensor, "..."],
        *,
        dt: float | None = None,
        t: Float[Tensor, " N"] | None = None,
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        max_gap: float | None = None,
        clock: Float[Tensor, " N"] | None = None,
    ) -> None:
        if (dt is None) == (t is None):
            raise ValueError("give either `dt` or `t`, the times of the samples.")
        if not -v.dim() <= dim < v.dim():
            raise ValueError(
                f"`dim` must be an axis of `v`, which has {v.dim()}; got {dim}."
            )
        dim %= v.dim()
        batch, n = v.shape[:dim].numel(), v.shape[dim]
        self.state = v.shape[dim + 1 :]
        self.dt = dt
        times = _times(n, dt, t, v.device).repeat(batch)
        missing = None
        self.v = self.flat(v)
        ones = (1,) * len(self.state)
        if mask is not None:
            missing = missing_samples(mask, v, dim).expand(v.shape[: dim + 1]).flatten()
            self.v = self.v.masked_fill(missing.to(v.device).reshape(-1, *ones), 0.0)
        self.runs = gap_free_runs(
            batch * n,
            lengths=list(lengths or [n]) * batch,
            missing=missing,
            t=None if t is None else times,
            max_gap=max_gap,
        )
        if clock is not None:
            times = _times(n, None, clock, v.device).repeat(batch)
        self.t = times.reshape(-1, *ones)

    def to(self, device: torch.device, dtype: torch.dtype) -> "Record":
        """The same record elsewhere, its values in another precision."""
        moved = copy.copy(self)
        moved.v, moved.t = self.v.to(device, dtype), self.t.to(device)
        return moved

    def flat(self, x: Tensor) -> Float[Tensor, " N *state"]:
        """A tensor of the shape of the data in the layout of the record."""
        return x.reshape(-1, *self.state)


def _times(
    n: int, dt: float | None, t: Tensor | None, device: torch.device
) -> Float[Tensor, " N"]:
    if t is None:
        if dt is None or not dt > 0:
            raise ValueError(f"`dt` must be positive; got {dt}.")
        return dt * torch.arange(n, dtype=torch.float64, device=device)
    times = torch.as_tensor(t, dtype=torch.float64, device=device)
    check_times(times, n)
    return times
