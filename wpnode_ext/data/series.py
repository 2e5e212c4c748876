"""Observations as losses, filters and fits take them: series laid end to end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from typing import Any, Literal, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..weak.segments import (
    Runs,
    check_times,
    checked_lengths,
    gap_free_runs,
    missing_samples,
)

# Spread, in units of the largest value, that rounding gives to a constant.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Series:
    """One or many series of the same state, laid end to end.

    :func:`make_series` builds one from the arrays of a user, :func:`lay_end_to_end`
    from the arguments of a loss.

    All values are finite: missing ones are interpolated and marked in `mask`. Losses
    do not read them, but a field evaluated at NaN would spoil its own gradients.

    Attributes:
        v: observations, ``[N, *state]``.
        lengths: samples of each series; their sum is N.
        dt: distance of the samples, or None where times are irregular.
        t: float64 times ``[N]``, increasing within each series; None where `dt` is
            given.
        mask: True where a value is missing, ``[N, *state]``; None if none is.
        forcing: known inputs at the samples, ``[N, *forcing]``, or None.
        t0: time of the first sample of each series.
        names: names of the entries of a state with one axis, or None.
        meta: facts about the source, e.g. units.
        max_gap: with `t`, a longer step is a gap; default three median steps.
    """

    v: Float[Tensor, "N ..."]
    lengths: tuple[int, ...]
    dt: float | None = None
    t: Float[Tensor, " N"] | None = None
    mask: Bool[Tensor, "N ..."] | None = None
    forcing: Float[Tensor, "N ..."] | None = None
    t0: tuple[float, ...] = ()
    names: tuple[str, ...] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    max_gap: float | None = None

    def __post_init__(self) -> None:
        n = len(self.v)
        if (self.dt is None) == (self.t is None):
            raise ValueError("one of `dt` and `t` must be given; got both or neither.")
        if self.dt is not None and not self.dt > 0:
            raise ValueError(f"`dt` must be positive; got {self.dt}.")
        checked_lengths(self.lengths, n)
        if self.t is not None:
            check_times(self.t, n)
        if self.mask is not None and self.mask.shape != self.v.shape:
            raise ValueError(
                f"`mask` must have the shape {list(self.v.shape)} of `v`; "
                f"got {list(self.mask.shape)}."
            )
        if self.forcing is not None and len(self.forcing) != n:
            raise ValueError(
                f"`forcing` must have {n} rows, one a sample; got {len(self.forcing)}."
            )
        if not self.t0:
            object.__setattr__(self, "t0", (0.0,) * len(self.lengths))
        elif len(self.t0) != len(self.lengths):
            raise ValueError(
                f"`t0` must have one time for each of {len(self.lengths)} series; "
                f"got {len(self.t0)}."
            )

    @property
    def n_samples(self) -> int:
        return len(self.v)

    @property
    def n_series(self) -> int:
        return len(self.lengths)

    @property
    def state_shape(self) -> torch.Size:
        return self.v.shape[1:]

    @cached_property
    def times(self) -> Float[Tensor, " N"]:
        """Time of every sample in float64, from `t` or from `dt` and `t0`."""
        if self.t is not None:
            return self.t
        assert self.dt is not None
        where = {"dtype": torch.float64, "device": self.v.device}
        steps = [torch.arange(n, **where) for n in self.lengths]
        pairs = zip(self.t0, steps, strict=True)
        return torch.cat([first + self.dt * step for first, step in pairs])

    @property
    def clock(self) -> Float[Tensor, " N *ones"]:
        """The times with as many axes as `v`, as arguments of a field."""
        return self.times.reshape(-1, *(1,) * len(self.state_shape))

    @cached_property
    def runs(self) -> Runs:
        """Pairs (first, stop) of samples that follow one another without a gap."""
        missing = None if self.mask is None else self.missing
        return gap_free_runs(
            self.n_samples,
            lengths=self.lengths,
            missing=missing,
            t=self.t,
            max_gap=self.max_gap,
        )

    @property
    def longest_run(self) -> int:
        """Samples of the longest run; 0 where all are missing."""
        return max((stop - first for first, stop in self.runs), default=0)

    @property
    def missing(self) -> Bool[Tensor, " N"]:
        """True where any value of a sample is missing."""
        if self.mask is None:
            return torch.zeros(self.n_samples, dtype=torch.bool, device=self.v.device)
        return self.mask.flatten(1).any(1)

    def describe(self) -> str:
        """Number and distance of the samples, and how many are missing, in words."""
        text = f"{self.n_samples} samples"
        if self.n_series > 1:
            text += f" in {self.n_series} series"
        if self.dt is not None:
            text += f", {self.dt:.6g} apart"
        else:
            text += " at irregular times, "
            text += irregular_steps([part.times for part in self.parts()])
        gone = int(self.missing.sum())
        return f"{text}, {gone} of them missing" if gone else text

    def with_nan(self) -> Float[Tensor, "N ..."]:
        """The values, NaN where they are missing."""
        if self.mask is None:
            return self.v
        return self.v.masked_fill(self.mask, float("nan"))

    def mean_and_spread(self) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
        """Mean and standard deviation of every entry of a state, 0 for constants."""
        v = self.with_nan().double().flatten(1)
        mean = v.nanmean(0)
        spread = (v - mean).square().nanmean(0).sqrt()
        rounding = ROUNDING * v.abs().nan_to_num().amax(0)
        return mean, torch.where(spread > rounding, spread, 0.0)

    def plan_arguments(self) -> dict[str, Any]:
        """Keywords for :class:`~wpnode_ext.WeakPlan` and for the losses."""
        times = {"t": self.t} if self.dt is None else {"dt": self.dt}
        lengths = list(self.lengths) if self.n_series > 1 else None
        return {"v": self.v, "lengths": lengths, "mask": self.mask, **times}

    def parts(self) -> list["Series"]:
        """Every series by itself."""
        return [self.cut([(i, 0, n)]) for i, n in enumerate(self.lengths)]

    def cut(self, pieces: Sequence[tuple[int, int, int]]) -> "Series":
        """The samples ``first .. stop - 1`` of the given series, in this order.

        Args:
            pieces: triples (number of the series, first, stop).
        """
        offsets = [sum(self.lengths[:i]) for i in range(self.n_series)]
        rows = torch.cat(
            [torch.arange(offsets[i] + a, offsets[i] + b) for i, a, b in pieces]
        )
        times = self.times
        return replace(
            self,
            v=self.v[rows],
            lengths=tuple(b - a for _, a, b in pieces),
            t=None if self.t is None else self.t[rows],
            mask=None if self.mask is None else self.mask[rows],
            forcing=None if self.forcing is None else self.forcing[rows],
            t0=tuple(times[offsets[i] + a].item() for i, a, _ in pieces),
        )

    def split(
        self,
        fraction: float = 0.2,
        *,
        by: Literal["time", "series"] = "time",
        min_length: int = 2,
    ) -> tuple["Series", "Series"]:
        """Training and validation parts; the validation part comes later in time.

        Args:
            fraction: share of the validation part, between 0 and 1.
            by: "time" holds out the end of every series, "series" the last series.
            min_length: pieces with fewer samples are dropped; e.g. ``ell + 1``.

        Returns:
            ``(training, validation)``.

        Raises:
            ValueError: a part would be empty.
        """
        if not 0 < fraction < 1:
            raise ValueError(f"`fraction` must lie between 0 and 1; got {fraction}.")
        if by == "series":
            held = ceil(fraction * self.n_series)
            border = self.n_series - held
            cuts = [n if i < border else 0 for i, n in enumerate(self.lengths)]
        elif by == "time":
            cuts = [n - ceil(fraction * n) for n in self.lengths]
        else:
            raise ValueError(f"`by` must be 'time' or 'series'; got {by!r}.")
        train = [(i, 0, c) for i, c in enumerate(cuts) if c >= min_length]
        ends = enumerate(zip(cuts, self.lengths, strict=True))
        held_out = [(i, c, n) for i, (c, n) in ends if n - c >= min_length]
        for name, pieces in (("training", train), ("validation", held_out)):
            if not pieces:
                raise ValueError(
                    f"`fraction` must leave both parts a piece of {min_length}; "
                    f"got {fraction}, and the {name} part would be empty (`by` is "
                    f"{by!r}, series have {_summary(self.lengths)} samples). Give more "
                    "data or change `fraction`."
                )
        return self.cut(train), self.cut(held_out)

    def require(self, n_samples: int, why: str) -> Self:
        """Returns the series if one of its runs has `n_samples` or more, else raises.

        Args:
            n_samples: the minimum.
            why: the reason, e.g. "ell + 1 = 51, the samples of a segment".
        """
        if self.longest_run < n_samples:
            raise ValueError(
                f"`v` must have {n_samples} samples in a row without a gap ({why}); "
                f"its longest run has {self.longest_run}."
            )
        return self

    def at_times(self, times: Float[Tensor, " N"]) -> "Series":
        """The same samples with their clock moved: `times` must have the old steps."""
        if self.t is not None:
            return replace(self, t=times)
        firsts = torch.tensor([0, *self.lengths]).cumsum(0)[:-1]
        return replace(self, t0=tuple(times[firsts].tolist()))

    def to(
        self,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> "Series":
        """Observations and forcing in another dtype, everything on another device."""

        def moved(x: Tensor | None) -> Tensor | None:
            wanted = dtype if x is not None and x.dtype == self.v.dtype else None
            return None if x is None else x.to(device=device, dtype=wanted)

        times = None if self.t is None else self.t.to(device=device)
        v = self.v.to(device=device, dtype=dtype)
        return replace(
            self, v=v, t=times, mask=moved(self.mask), forcing=moved(self.forcing)
        )


def component_names(
    names: Sequence[str] | None, count: int, letter: str = "u"
) -> list[str]:
    """Names of the entries of a state; u0, u1, ... where the data have none."""
    return [f"{letter}{i}" for i in range(count)] if names is None else list(names)


def lay_end_to_end(
    v: Float[Tensor, "..."],
    *,
    dt: float | None = None,
    t: Tensor | None = None,
    dim: int = 0,
    lengths: Sequence[int] | None = None,
    mask: Tensor | None = None,
    max_gap: float | None = None,
) -> Series:
    """Makes a Series from the arguments of a loss, the elements of a batch end to end.

    Missing samples are set to zero: no loss reads them, but a field evaluated at NaN
    would spoil the gradients of its weights.

    Args:
        v: observations, ``[*batch, N, *state]``.
        dt: distance of uniform samples. Give either `dt` or `t`.
        t: times of the samples, ``[N]``, increasing within each series.
        dim: time axis; axes before it are a batch, axes after it are the state.
        lengths: lengths of several series laid end to end along `dim`.
        mask: True where a sample is missing, ``[N]``, ``[*batch, N]`` or the shape of
            `v`. A sample with a missing value is missing.
        max_gap: with `t`, a longer step is a gap; default three median steps.
    """
    if not -v.dim() <= dim < v.dim():
        raise ValueError(
            f"`dim` must be an axis of `v`, which has {v.dim()}; got {dim}."
        )
    dim %= v.dim()
    batch, n, state = v.shape[:dim].numel(), v.shape[dim], v.shape[dim + 1 :]
    parts = checked_lengths(lengths, n)
    flat, gone = v.reshape(-1, *state), None
    if mask is not None:
        missing = missing_samples(mask, v, dim).expand(v.shape[: dim + 1]).to(v.device)
        gone = missing.reshape(-1, *(1,) * len(state)).expand(flat.shape)
        flat = flat.masked_fill(gone, 0.0)
    if t is not None:
        t = torch.as_tensor(t, dtype=torch.float64, device=v.device)
        check_times(t, n)
        t = t.repeat(batch)
    # Time goes on from one series of a batch element to the next.
    firsts = [(dt or 0.0) * sum(parts[:i]) for i in range(len(parts))]
    return Series(
        flat,
        tuple(parts * batch),
        dt,
        t,
        gone,
        t0=tuple(firsts * batch),
        max_gap=max_gap,
    )


def irregular_steps(times: Sequence[Float[Tensor, " N"]]) -> str:
    """Range and median of the steps between times, in words."""
    steps = torch.cat([t.diff() for t in times])
    low, middle, high = (x.item() for x in (steps.min(), steps.median(), steps.max()))
    return f"{low:.4g} to {high:.4g} apart (median {middle:.4g})"


def _summary(lengths: Sequence[int]) -> str:
    if len(lengths) <= 4:
        return ", ".join(map(str, lengths))
    return f"{min(lengths)} to {max(lengths)}"
