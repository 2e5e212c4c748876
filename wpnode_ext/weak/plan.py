"""The weak form: its weights, its segments and the left-hand sides the data fix.

All weak residuals of the package come from here: those of losses from a
:class:`WeakPlan`, those of fits that choose segments themselves from the
:class:`SegmentSums` that a plan is made of.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .. import ops
from ..ops import fused, reference
from ..ops.checks import (
    SERIES_DTYPES,
    check_device,
    check_finite,
    check_layout,
    check_starts,
    count_segments,
    is_uniform,
)
from .segments import check_times, missing_samples, segment_starts
from .weights import Rule, shared_or_own_weights, uniform_step

Reduction = Literal["mean", "sum", "none"]
Backend = Literal["fused", "reference"]

_BACKENDS: dict[str, ModuleType] = {"fused": ops, "reference": reference}
# Segments with weights of their own that are prepared at a time: bounds the memory.
_BLOCK = 1 << 16


@dataclass
class WeakForm:
    """Test function ``(1 - s^2)^p`` on segments of ``ell + 1`` samples, `q` apart.

    0 stands for a choice from the data; where none is made, for the paper's value.
    """

    p: int = 0
    ell: int = 0
    q: int = 0


@dataclass(frozen=True)
class SegmentSums:
    """Both weighted sums of the weak form, over the same segments.

    Attributes:
        w_lhs, w_rhs: weights, ``[ell + 1]`` where all segments share them, else
            ``[K, ell + 1]``; float64 on the CPU as they are made.
        starts: first samples of the segments, ``[K]``; None where segment k starts at
            sample ``k q``.
        q: distance of the segments where `starts` is None.
        backend: "fused" or "reference".
    """

    w_lhs: Float[Tensor, "..."]
    w_rhs: Float[Tensor, "..."]
    starts: Int[Tensor, " K"] | None = None
    q: int = 1
    backend: Backend = "fused"

    @classmethod
    def at(
        cls,
        starts: Int[Tensor, " K"] | None,
        form: WeakForm,
        *,
        dt: float | None = None,
        t: Float[Tensor, " N"] | None = None,
        d: int = 1,
        rule: Rule = "auto",
        backend: Backend = "fused",
    ) -> "SegmentSums":
        """The sums over the segments that start at the samples `starts`.

        Args:
            starts: int64 ``[K]``, at least one; None for every q-th sample, with `dt`.
            form: the test function; its q matters where `starts` is None.
            dt: distance of uniform samples. Give either `dt` or `t`.
            t: times of the samples, ``[N]``.
            d, rule: as in :func:`~wpnode_ext.segment_weights`.
            backend: "fused" or "reference" (stock torch).
        """
        begins = starts = None if starts is None else starts.contiguous()
        if t is not None and starts is not None:
            # Only the times that segments reach: blocks of a long record stay cheap.
            first, last = int(starts.min()), int(starts.max())
            t, begins = t[first : last + form.ell + 1], starts.cpu() - first
        weights = shared_or_own_weights(form.p, form.ell, dt, t, d, begins, rule)
        q = form.q if starts is None else 1
        return cls(*weights, starts, q, backend)

    def to(self, device: torch.device, dtype: torch.dtype) -> "SegmentSums":
        """The same sums with weights on another device, in another precision."""
        starts = None if self.starts is None else self.starts.to(device)
        w_lhs, w_rhs = (w.to(device, dtype) for w in (self.w_lhs, self.w_rhs))
        return replace(self, w_lhs=w_lhs, w_rhs=w_rhs, starts=starts)

    def left(self, v: Float[Tensor, "B N D"]) -> Float[Tensor, "B K D"]:
        """``sum_i w_lhs[i] v[s_k + i]``: of observations, the left-hand side."""
        return self.weighted(v, self.w_lhs)

    def right(self, f: Float[Tensor, "B N D"]) -> Float[Tensor, "B K D"]:
        """``sum_i w_rhs[i] f[s_k + i]``."""
        return self.weighted(f, self.w_rhs)

    def weighted(
        self, x: Float[Tensor, "B N D"], w: Float[Tensor, "..."]
    ) -> Float[Tensor, "B K D"]:
        """``sum_i w[i] x[s_k + i]`` with any weights, e.g. products of the two.

        Weights and sums have the precision of `x`, or float32 for 16-bit series.
        """
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        w = w.to(x.device, wide).contiguous()
        starts = None if self.starts is None else self.starts.to(x.device)
        return _BACKENDS[self.backend].corr(x.to(wide), w, q=self.q, starts=starts)


def segment_blocks(
    starts: Int[Tensor, " K"] | None,
    form: WeakForm,
    *,
    dt: float | None = None,
    t: Float[Tensor, " N"] | None = None,
    d: int = 1,
    rule: Rule = "auto",
    backend: Backend = "fused",
) -> Iterator[SegmentSums]:
    """The sums over all segments, in blocks where segments have weights of their own.

    Only the weights of one block are in memory at a time. Arguments are those of
    :meth:`SegmentSums.at`.
    """
    parts: Sequence[Tensor | None] = [starts]
    if t is not None and starts is not None and dt is None:
        step = uniform_step(t, form.ell, starts=starts)
        if step is not None and rule == "auto":
            if form.q and is_uniform(starts, len(t), form.ell, form.q):
                parts = [None]
            dt, t = step, None
        else:
            parts = starts.split(_BLOCK)
    for part in parts:
        yield SegmentSums.at(part, form, dt=dt, t=t, d=d, rule=rule, backend=backend)


def prepare(
    blocks: Iterable[SegmentSums],
    v: Float[Tensor, "B N D"],
    dtype: torch.dtype | None = None,
) -> tuple[Float[Tensor, "B K D"], Float[Tensor, "..."]]:
    """Left-hand sides of the segments, and the weights of the field at all of them.

    Args:
        blocks: segments, from :func:`segment_blocks`.
        v: observations; sums are taken in their precision.
        dtype: precision of both results; by default that of the sums.
    """
    left, right = [], []
    for sums in blocks:
        lhs = sums.left(v).to(dtype=dtype)
        left.append(lhs)
        right.append(sums.w_rhs.to(lhs.device, lhs.dtype).contiguous())
    return _joined(left, 1), _joined(right, 0)


class WeakPlan:
    """The weak form of one data set, prepared once and used in every training step.

    It computes the left-hand side ``lhs[k] = sum_i w_lhs[i] v[s_k + i]`` once and adds
    ``sum_i w_rhs[i] f[s_k + i]`` for given field values `f`.

    Args:
        v: observations, ``[*batch, N, *state]``; the time axis is `dim`.
        dt: distance of uniform samples. Give either `dt` or `t`.
        t: times of the samples, ``[N]``, increasing within each series.
        p: exponent of the test function ``(1 - s^2)^p``.
        ell: segments have ``ell + 1`` samples (even).
        q: distance between neighbouring segments, in samples.

    Other Args:
        dim: time axis; axes before it are a batch, axes after it are the state.
        d: order of the differential equation; ``f`` is the d-th derivative.
        mask: True where a sample is missing, ``[N]``, ``[*batch, N]`` or the shape of
            `v`. No segment touches one, and segments begin anew after it; the values
            there are not read.
        lengths: lengths of several series laid end to end along `dim`.
        starts: first sample of every segment, ``[K]``, non-decreasing, instead of
            those that `q`, `lengths` and `mask` give; see
            :func:`~wpnode_ext.weak.segments.segment_starts`.
        max_gap: with `t`, a longer step is a gap, as a missing sample is; default
            three median steps.
        rule: quadrature at irregular times, see :func:`segment_weights`.
        store_weights: False generates the weights of irregular times inside the fused
            kernel, from the times of each segment, instead of keeping ``[K, ell + 1]``
            of them; for ``rule="linear"``.
        backend: "fused" or "reference" (stock torch).

    Attributes:
        n_segments: number K of segments (of every batch element).
        starts: int64 ``[K]``, or None where segment k starts at sample ``k q``.
        lhs: ``[*batch, K, *state]``.

    A mask that differs between batch elements leaves them with different segments; the
    batch is then one record of ``B N`` samples, and residuals are ``[K, *state]``.

    Example:
        >>> plan = WeakPlan(v, dt=0.01, p=8, ell=50, q=2)
        >>> for _ in range(1000):
        ...     loss = plan.loss(field(None, v))
    """

    def __init__(
        self,
        v: Float[Tensor, "..."],
        *,
        dt: float | None = None,
        t: Float[Tensor, " N"] | None = None,
        p: int = 8,
        ell: int = 50,
        q: int = 2,
        dim: int = 0,
        d: int = 1,
        mask: Bool[Tensor, "..."] | None = None,
        lengths: Sequence[int] | None = None,
        starts: Int[Tensor, " K"] | None = None,
        max_gap: float | None = None,
        rule: Rule = "auto",
        store_weights: bool = True,
        backend: Backend = "fused",
    ) -> None:
        if backend not in _BACKENDS:
            raise ValueError(
                f"`backend` must be 'fused' or 'reference'; got {backend!r}."
            )
        self._backend: Backend = backend
        check_layout(ell, q)
        self._shape, self._dtype, self._device = v.shape, v.dtype, v.device
        self.q = q
        gaps = {"mask": mask, "lengths": lengths, "max_gap": max_gap}
        form = WeakForm(p, ell, q)
        layout = _lay_out(v, _check_data(v, dim, ell), form, starts, t, **gaps)
        starts, t, n_samples = layout.starts, layout.t, layout.n_samples
        self._batch, self._state = layout.batch, layout.state
        self._flat_shape = (self._batch.numel(), n_samples, self._state.numel())
        blocks = segment_blocks(
            starts, form, dt=dt, t=t, d=d, rule=rule, backend=backend
        )
        if starts is not None and is_uniform(starts, n_samples, ell, q):
            starts = None
        self.starts = None if starts is None else starts.to(v.device)
        self.n_segments = (
            count_segments(n_samples, ell, q) if starts is None else len(starts)
        )
        # Weights of the field, or the times they are generated from; see `fused`.
        self._recipe: tuple[int, int] | None = None
        flat = self._flat(v)
        if store_weights:
            self._lhs, self._w_rhs = prepare(blocks, flat)
        else:
            _check_generated(t, rule, backend)
            self._lhs = _joined([sums.left(flat) for sums in blocks], 1)
            self._w_rhs = torch.as_tensor(t, dtype=torch.float64, device=v.device)
            self._recipe = (p, ell)
        check_finite(
            self._lhs,
            "`v` must be finite in the samples that segments touch; got NaN or "
            "infinity. Pass `mask=` to leave missing samples out.",
        )

    @property
    def _ops(self) -> ModuleType:
        # Looked up each time: a plan that held a module could not be copied.
        return _BACKENDS[self._backend]

    @property
    def lhs(self) -> Float[Tensor, "..."]:
        return self._lhs.reshape(*self._batch, self.n_segments, *self._state)

    def residual(self, f: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """``lhs + sum_i w_rhs[i] f[s_k + i]`` (plus sign), ``[*batch, K, *state]``."""
        w = fused.stored_weights(
            self._w_rhs, self._recipe, self._lhs, self.starts, self.q
        )
        flat = self._flat(self._matching(f)).to(w.dtype)
        right = self._ops.corr(flat, w, q=self.q, starts=self.starts)
        residual = self._lhs + right
        return residual.reshape(*self._batch, self.n_segments, *self._state)

    def loss(
        self, f: Float[Tensor, "..."], *, reduction: Reduction = "mean"
    ) -> Float[Tensor, "..."]:
        """Squared norm of the residual, summed over the state.

        Args:
            f: field values at the samples, shape of the data.
            reduction: "mean" over all segments and batch elements, "sum" over them, or
                "none" for ``[*batch, K]``.
        """
        if reduction == "none":
            squares = self.residual(f).square()
            return (
                squares.flatten(len(self._batch) + 1).sum(-1)
                if self._state
                else squares
            )
        if reduction not in ("mean", "sum"):
            raise ValueError(
                f"`reduction` must be 'mean', 'sum' or 'none'; got {reduction!r}."
            )
        terms = self._batch.numel() * self.n_segments if reduction == "mean" else 1
        f = self._matching(f)
        if self._ops is reference:
            return reference.squared_residual(
                self._flat(f),
                self._lhs,
                self._w_rhs,
                q=self.q,
                starts=self.starts,
                scale=1.0 / terms,
            )
        # The checks of `ops` are not repeated: the constructor checked all but `f`.
        return fused.squared_residual(
            f,
            self._lhs,
            self._w_rhs,
            self.starts,
            self.q,
            1.0 / terms,
            self._flat_shape,
            self._recipe,
        )

    def _flat(self, x: Tensor) -> Float[Tensor, "B N D"]:
        return x.reshape(self._flat_shape)

    def _matching(self, f: Tensor) -> Tensor:
        """`f`, promoted under autocast, if it fits the data; an error otherwise."""
        if f.dtype != self._dtype and torch.is_autocast_enabled(f.device.type):
            f = f.to(self._dtype)
        if (f.shape, f.dtype, f.device) != (self._shape, self._dtype, self._device):
            raise ValueError(
                f"`f` must match `v`; got {_describe(f.dtype, f.shape, f.device)} and "
                f"{_describe(self._dtype, self._shape, self._device)}."
            )
        return f


class _Layout(NamedTuple):
    """Data as the sums take them: ``[*batch, N, *state]``, times, starts of segments.

    Starts are None where segment k starts at sample ``k q``.
    """

    batch: torch.Size
    n_samples: int
    state: torch.Size
    t: Float[Tensor, " N"] | None
    starts: Int[Tensor, " K"] | None


def _lay_out(
    v: Tensor,
    dim: int,
    form: WeakForm,
    starts: Int[Tensor, " K"] | None,
    t: Float[Tensor, " N"] | None,
    *,
    mask: Bool[Tensor, "..."] | None,
    lengths: Sequence[int] | None,
    max_gap: float | None,
) -> _Layout:
    """The layout of a plan; a batch with different gaps becomes one long record."""
    ell, batch, n_samples = form.ell, v.shape[:dim], v.shape[dim]
    missing = None if mask is None else missing_samples(mask, v, dim)
    if t is not None:
        check_times(t, n_samples)
    if missing is not None and missing.dim() > 1:
        # Element b begins at sample b * N.
        lengths = [n for _ in range(batch.numel()) for n in lengths or [n_samples]]
        t = None if t is None else t.repeat(batch.numel())
        missing, batch = missing.flatten(), torch.Size()
        n_samples = missing.numel()
    gaps = {"lengths": lengths, "missing": missing, "t": t}
    if starts is None and any(given is not None for given in gaps.values()):
        starts = segment_starts(n_samples, ell, form.q, max_gap=max_gap, **gaps)
        if len(starts) == 0:
            raise ValueError(
                f"no segment of ell + 1 = {ell + 1} samples is free of gaps, "
                "missing samples and series borders; use a smaller `ell`."
            )
    if starts is not None:
        check_starts(starts, n_samples, ell)
    return _Layout(batch, n_samples, v.shape[dim + 1 :], t, starts)


def _describe(dtype: torch.dtype, shape: torch.Size, device: torch.device) -> str:
    return f"{str(dtype).removeprefix('torch.')} {list(shape)} on {device}"


def _check_data(v: Tensor, dim: int, ell: int) -> int:
    if v.dtype not in SERIES_DTYPES:
        raise TypeError(
            f"`v` must be float64, float32, bfloat16 or float16; got {v.dtype}."
        )
    check_device(v, "v")
    if not -v.dim() <= dim < v.dim():
        raise ValueError(
            f"`dim` must be an axis of `v`, which has {v.dim()}; got {dim}."
        )
    dim %= v.dim()
    if v.shape[dim] < ell + 1:
        raise ValueError(
            f"`v` has {v.shape[dim]} samples, fewer than the ell + 1 = {ell + 1} a "
            "segment needs; use a smaller `ell`."
        )
    return dim


def _check_generated(t: Tensor | None, rule: Rule, backend: Backend) -> None:
    if t is None or rule != "linear" or backend != "fused":
        raise ValueError(
            "`store_weights=False` must come with irregular times `t`, rule='linear' "
            f"and backend='fused'; got rule={rule!r}, backend={backend!r} and "
            f"{'no' if t is None else 'given'} times."
        )


def _joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts), axis)
