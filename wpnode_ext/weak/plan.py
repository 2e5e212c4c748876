"""Everything about a weak form that the data fix: weights, segments, left-hand side."""

from collections.abc import Sequence
from types import ModuleType
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .. import ops
from ..ops import fused, reference
from ..ops.checks import SERIES_DTYPES, check_device, check_finite
from ..ops.layout import check_layout, check_starts, count_segments, is_uniform
from .segments import check_times, missing_samples, segment_starts
from .traced_weights import check_generated, plan_weights
from .weights import Rule

Reduction = Literal["mean", "sum", "none"]
Backend = Literal["fused", "reference"]

_BACKENDS: dict[str, ModuleType] = {"fused": ops, "reference": reference}


class WeakPlan:
    """The weak form of one data set, prepared once and used in every training step.

    Computes ``lhs[k] = sum_i w_lhs[i] v[s_k + i]``, which no step changes, and keeps
    what is needed to add ``sum_i w_rhs[i] f[s_k + i]`` for field values `f`.

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
        dim = _check_data(v, dim, ell)
        self.q = q

        batch, n_samples = v.shape[:dim], v.shape[dim]
        missing = None if mask is None else missing_samples(mask, v, dim)
        if t is not None:
            check_times(t, n_samples)
        if missing is not None and missing.dim() > 1:
            # One long record: element b begins at sample b * N.
            lengths = [n for _ in range(batch.numel()) for n in lengths or [n_samples]]
            t = None if t is None else t.repeat(batch.numel())
            missing, batch = missing.flatten(), torch.Size()
            n_samples = missing.numel()
        self._batch, self._state = batch, v.shape[dim + 1 :]
        self._flat_shape = (batch.numel(), n_samples, self._state.numel())

        irregular = any(given is not None for given in (missing, lengths, t))
        if starts is None and irregular:
            starts = segment_starts(
                n_samples,
                ell,
                q,
                lengths=lengths,
                missing=missing,
                t=t,
                max_gap=max_gap,
            )
            if len(starts) == 0:
                raise ValueError(
                    f"no segment of ell + 1 = {ell + 1} samples is free of gaps, "
                    "missing samples and series borders; use a smaller `ell`."
                )
        if starts is not None:
            check_starts(starts, n_samples, ell)
        w_lhs, w_rhs = plan_weights(p, ell, dt, t, d, starts, rule)
        if starts is not None and is_uniform(starts, n_samples, ell, q):
            starts = None
        self.starts = None if starts is None else starts.to(v.device)
        self.n_segments = (
            count_segments(n_samples, ell, q) if starts is None else len(starts)
        )
        wide = torch.float64 if v.dtype == torch.float64 else torch.float32
        # Weights of the field, or the times they are generated from; see `fused`.
        self._w_rhs = w_rhs.to(v.device, wide).contiguous()
        self._recipe: tuple[int, int] | None = None
        if not store_weights:
            check_generated(t, rule, w_rhs, backend)
            self._w_rhs = torch.as_tensor(t, dtype=torch.float64, device=v.device)
            self._recipe = (p, ell)
        self._lhs = self._ops.corr(
            self._flat(v).to(wide),
            w_lhs.to(v.device, wide).contiguous(),
            q=q,
            starts=self.starts,
        )
        check_finite(
            self._lhs,
            "`v` must be finite in the samples that segments touch; got NaN or "
            "infinity. Pass `mask=` to leave missing samples out.",
        )

    @property
    def _ops(self) -> ModuleType:
        # Looked up, not kept: a plan with a module in it could not be copied.
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
        # Past the checks of `ops`: everything but `f` was checked by the constructor.
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
