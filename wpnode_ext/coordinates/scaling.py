"""Affine scalers of the state, and what they do to a vector field."""

from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..common.arrays import as_float64
from ..common.typing import Array, Field
from ..data import Series
from .manifold import Completion
from .scaled_fields import EmbeddedField, RescaledField

Per = Literal["component", "channel", "whole"]


class Scaler(ABC):
    """``scaled = (v - shift) / scale``, fitted to data and invertible.

    Time is not scaled, so a field transforms as a velocity does:
    ``f_scaled(s) = f(shift + scale * s) / scale``.

    Args:
        per: "component": every entry of the state has a shift and a scale of its own,
            which changes their relative weight in a loss; "channel": those along the
            last axis have one together; "whole": one for all.

    Attributes:
        shift, scale: float64, ``[*state]``, ``[*channels, 1]`` or a scalar, on the CPU.
    """

    kind: ClassVar[str]

    def __init__(self, per: Per = "component") -> None:
        if per not in ("component", "channel", "whole"):
            raise ValueError(
                f"`per` must be 'component', 'channel' or 'whole'; got {per!r}."
            )
        self.per: Per = per
        self._shift: Tensor | None = None
        self._scale: Tensor | None = None

    @abstractmethod
    def _statistics(self, v: Float[Tensor, "M D"]) -> tuple[Tensor, Tensor]:
        """Shift and scale of each column; NaN is left out."""

    def fit(self, v: Array) -> Self:
        """Takes shift and scale from series ``[N, *state]``; NaN counts as missing."""
        data = as_float64(v, "v")
        if data.dim() < 1 or data.shape[0] == 0:
            raise ValueError(
                f"`v` must have at least one sample; got shape {list(data.shape)}."
            )
        state = data.shape[1:] if self.per == "component" else torch.Size()
        if self.per == "channel" and data.dim() > 1:
            data = data.movedim(-1, 1).flatten(0, 1)
            state = data.shape[1:] + (1,)
        columns = data.reshape(-1, state.numel())
        if data.isinf().any():
            raise ValueError("`v` must not hold infinity; mark it by NaN.")
        if columns.isnan().all(0).any():
            raise ValueError(
                "`v` must have at least one finite sample in every component; "
                f"{int(columns.isnan().all(0).sum())} have none. Drop them first."
            )
        shift, scale = self._statistics(columns)
        # A constant component keeps its size: it carries no scale of its own.
        scale = torch.where(scale > 0, scale, 1.0)
        self._shift, self._scale = shift.reshape(state), scale.reshape(state)
        return self

    @property
    def shift(self) -> Float[Tensor, "..."]:
        return self._fitted(self._shift)

    @property
    def scale(self) -> Float[Tensor, "..."]:
        return self._fitted(self._scale)

    def transform(self, v: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Scaled states ``[..., *state]``, same dtype and device."""
        return ((v - _like(self.shift, v)) / _like(self.scale, v)).to(v.dtype)

    def inverse(self, s: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Physical states of scaled ones."""
        return (_like(self.shift, s) + _like(self.scale, s) * s).to(s.dtype)

    def spread(self, std: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Physical standard deviations of independent scaled ones."""
        return std * _like(self.scale, std)

    def scaled_shape(self, state: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of a scaled state."""
        return state

    def to_physical(self, field: Field) -> nn.Module:
        """The physical field of a `field` in scaled coordinates."""
        return RescaledField(field, self.shift, self.scale)

    def to_scaled(self, field: Field) -> RescaledField:
        """The field in scaled coordinates of a physical `field`."""
        return RescaledField(field, -self.shift / self.scale, 1 / self.scale)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and strings only; see :func:`scaler_from_state_dict`."""
        return {
            "kind": self.kind,
            "per": self.per,
            "shift": self.shift.clone(),
            "scale": self.scale.clone(),
        }

    def _fitted(self, value: Tensor | None) -> Tensor:
        if value is None:
            raise RuntimeError(
                f"{type(self).__name__} is not fitted; call `fit` first."
            )
        return value


class MinMaxScaler(Scaler):
    """Smallest value to 0, largest to 1; the paper's."""

    kind = "minmax"

    def _statistics(self, v: Float[Tensor, "M D"]) -> tuple[Tensor, Tensor]:
        missing = v.isnan()
        low = v.masked_fill(missing, float("inf")).amin(0)
        high = v.masked_fill(missing, -float("inf")).amax(0)
        return low, high - low


class StandardScaler(Scaler):
    """Mean to 0, standard deviation to 1."""

    kind = "standard"

    def _statistics(self, v: Float[Tensor, "M D"]) -> tuple[Tensor, Tensor]:
        mean = v.nanmean(0)
        return mean, (v - mean).square().nanmean(0).sqrt()


class IdentityScaler(Scaler):
    """Leaves states as they are."""

    kind = "identity"

    def _statistics(self, v: Float[Tensor, "M D"]) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(v[0]), torch.ones_like(v[0])


class LinearScaler(Scaler):
    """``scaled = encode (v - shift)`` and back, ``v = shift + decode scaled``.

    Scaled states may have fewer entries; what they do not hold is left out, or a
    function of them (:mod:`wpnode_ext.coordinates.manifold`). Made by
    :meth:`wpnode_ext.coordinates.reduced.Coordinates.scaler`, not fitted.

    Args:
        encode: ``[M, D]``; ``encode decode`` is the identity.
        decode: ``[D, M]``.
        shift: ``[D]``.
        completion: what is left out as a function of scaled states; it is added to
            ``v``. Nothing is by default.
    """

    kind = "linear"

    def __init__(
        self,
        encode: Float[Tensor, "M D"],
        decode: Float[Tensor, "D M"],
        shift: Float[Tensor, " D"],
        completion: Completion | None = None,
    ) -> None:
        super().__init__()
        self.completion = completion
        self.encode, self.decode = encode.double().cpu(), decode.double().cpu()
        self._shift = shift.double().cpu()
        # Size of a physical entry where all scaled ones have size one.
        self._scale = self.decode.square().sum(1).sqrt()

    def _statistics(self, v: Float[Tensor, "M D"]) -> tuple[Tensor, Tensor]:
        raise TypeError("a LinearScaler is made from coordinates; it is not fitted.")

    def transform(self, v: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch M"]:
        return ((v - _like(self.shift, v)) @ _like(self.encode, v).T).to(v.dtype)

    def inverse(self, s: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch D"]:
        v = _like(self.shift, s) + s @ _like(self.decode, s).T
        if self.completion is not None:
            v = v + self.completion(s.to(v.dtype))
        return v.to(s.dtype)

    def spread(self, std: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch D"]:
        return (std.square() @ _like(self.decode, std).square().T).sqrt()

    def scaled_shape(self, state: tuple[int, ...]) -> tuple[int, ...]:
        return (len(self.encode),)

    def to_physical(self, field: Field) -> nn.Module:
        return EmbeddedField(
            field, self.encode, self.decode, self.shift, deepcopy(self.completion)
        )

    def plain(self) -> "LinearScaler":
        """The same without a completion."""
        return LinearScaler(self.encode, self.decode, self.shift)

    def to_scaled(self, field: Field) -> RescaledField:
        raise TypeError("fewer coordinates than entries: a field cannot be taken back.")

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "encode": self.encode.clone(),
            "decode": self.decode.clone(),
            "completion": self.completion and self.completion.constants(),
        }


_KINDS: dict[str, type[Scaler]] = {
    kind.kind: kind for kind in (MinMaxScaler, StandardScaler, IdentityScaler)
}


def make_scaler(kind: str, per: Per = "component") -> Scaler:
    """An unfitted scaler by name: "minmax", "standard" or "identity"."""
    if kind not in _KINDS:
        raise ValueError(
            f"`kind` must be 'minmax', 'standard' or 'identity'; got {kind!r}."
        )
    return _KINDS[kind](per)


def scaler_from_state_dict(state: dict[str, Any]) -> Scaler:
    """The fitted scaler that :meth:`Scaler.state_dict` described."""
    missing = {"kind", "per", "shift", "scale"} - set(state)
    if missing:
        raise ValueError(f"`state` must describe a scaler; it lacks {sorted(missing)}.")
    if state["kind"] == LinearScaler.kind:
        given = state.get("completion")
        dim = len(state["encode"])
        completion = None if given is None else Completion(dim=dim, **given)
        return LinearScaler(
            state["encode"], state["decode"], state["shift"], completion
        )
    scaler = make_scaler(state["kind"], state["per"])
    scaler._shift = state["shift"].to(torch.float64)
    scaler._scale = state["scale"].to(torch.float64)
    return scaler


def scale_series(
    series: Series, scaler: Scaler, forcing_scaler: Scaler | None = None
) -> Series:
    """Observations in scaled coordinates, float64.

    Args:
        series: observations in their own units.
        scaler: of the state. To coordinates that mix the entries of a state, samples
            with a missing entry are missing as a whole.
        forcing_scaler: of the inputs; without it the result has none.
    """
    mask, forcing = series.mask, None
    if mask is not None and isinstance(scaler, LinearScaler):
        mask = mask.any(1, keepdim=True).expand(-1, len(scaler.encode)).clone()
    if series.forcing is not None and forcing_scaler is not None:
        forcing = forcing_scaler.transform(series.forcing.flatten(1).double())
    scaled = scaler.transform(series.v.double())
    return replace(series, v=scaled, mask=mask, forcing=forcing)


def _like(constant: Tensor, x: Tensor) -> Tensor:
    """`constant` beside `x`, at least float32: 16 bits would spoil shift and scale."""
    return constant.to(x.device, torch.promote_types(x.dtype, torch.float32))
