"""Affine scalers of the state, and fields in scaled and in physical coordinates."""

from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..common.arrays import Array, Field, as_float64
from ..common.files import check_tensor
from ..common.registry import Registry
from ..data import Series
from .manifold import Completion, check_completion, check_matrix, fit_completion
from .symmetry import Symmetry

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
        kind: name of the scaler in settings and files.
        per_entry: whether every entry of a scaled state is one entry of the state,
            shifted and scaled.
    """

    kind: ClassVar[str]
    per_entry: ClassVar[bool] = True

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

    def scaled_mask(self, mask: Bool[Tensor, "N ..."]) -> Bool[Tensor, "N ..."]:
        """The missing entries of scaled states; `mask` are those of the states."""
        return mask

    def scaled_symmetry(self, symmetry: Symmetry) -> Symmetry:
        """The maps of scaled states for maps of states."""
        return symmetry.scaled(self.shift, self.scale)

    def plain(self) -> "Scaler":
        """The scaler without the regression of what it leaves out."""
        return self

    def completed(
        self,
        v: Float[Tensor, "N D"],
        states: Float[Tensor, "N M"],
        *,
        rate: float,
        symmetry: Symmetry | None = None,
    ) -> "Scaler":
        """The scaler with the regression of what it leaves out of states.

        Args:
            v: observations without missing values, sample after sample.
            states: refined states, scaled.
            rate: as in :class:`~wpnode_ext.coordinates.manifold.Completion`.
            symmetry: of the system, in the units of the data.
        """
        return self

    def to_physical(self, field: Field, inputs: "Scaler | None" = None) -> nn.Module:
        """The physical field of a `field` in scaled coordinates.

        Args:
            field: in scaled coordinates.
            inputs: scaler of the inputs; with it the physical field takes inputs as an
                argument, ``module(t, u, x)``.
        """
        return RescaledField(field, self.shift, self.scale, inputs)

    def to_scaled(self, field: Field) -> "RescaledField":
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

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> "Scaler":
        """The fitted scaler that :meth:`state_dict` describes."""
        scaler = cls(state["per"])
        scaler._shift = state["shift"].to(torch.float64)
        scaler._scale = state["scale"].to(torch.float64)
        return scaler

    @classmethod
    def check_state_dict(
        cls, state: dict[str, Any], name: str, shape: list[int]
    ) -> None:
        """Raises ValueError unless `state` describes a scaler of states of a shape.

        Args:
            state: entry of a file, see :meth:`state_dict`.
            name: what messages call it.
            shape: of a state.
        """
        for entry in ("shift", "scale"):
            value = state[entry]
            check_tensor(value, f"{name}.{entry}")
            if not value.is_floating_point() or not value.isfinite().all():
                raise ValueError(f"{name}.{entry} must hold finite numbers")
            own = list(value.shape)
            # One for all entries, one a channel, or one an entry.
            whole = [1] * (len(shape) - len(own)) + own
            if len(own) > len(shape) or any(
                n not in (1, m) for n, m in zip(whole, shape, strict=True)
            ):
                raise ValueError(
                    f"{name}.{entry} must fit states of shape {shape}; got {own}"
                )

    def _fitted(self, value: Tensor | None) -> Tensor:
        if value is None:
            raise RuntimeError(
                f"{type(self).__name__} is not fitted; call `fit` first."
            )
        return value


SCALERS: Registry[type[Scaler]] = Registry("scaler", "scalers")


@SCALERS.register("minmax")
class MinMaxScaler(Scaler):
    """Smallest value to 0, largest to 1; the paper's."""

    kind = "minmax"

    def _statistics(self, v: Float[Tensor, "M D"]) -> tuple[Tensor, Tensor]:
        missing = v.isnan()
        low = v.masked_fill(missing, float("inf")).amin(0)
        high = v.masked_fill(missing, -float("inf")).amax(0)
        return low, high - low


@SCALERS.register("standard")
class StandardScaler(Scaler):
    """Mean to 0, standard deviation to 1."""

    kind = "standard"

    def _statistics(self, v: Float[Tensor, "M D"]) -> tuple[Tensor, Tensor]:
        mean = v.nanmean(0)
        return mean, (v - mean).square().nanmean(0).sqrt()


@SCALERS.register("identity")
class IdentityScaler(Scaler):
    """Leaves states as they are."""

    kind = "identity"

    def _statistics(self, v: Float[Tensor, "M D"]) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(v[0]), torch.ones_like(v[0])


class LinearScaler(Scaler):
    """``scaled = encode (v - shift)`` and back, ``v = shift + decode scaled``.

    Scaled states may have fewer entries. The rest of a state is left out, or is a
    function of them (:mod:`wpnode_ext.coordinates.manifold`).
    :meth:`wpnode_ext.coordinates.reduced.Coordinates.scaler` makes such scalers.

    Args:
        encode: ``[M, D]``; ``encode decode`` is the identity.
        decode: ``[D, M]``.
        shift: ``[D]``.
        completion: the rest of a state as a function of scaled states, which is added
            to ``v``; nothing by default.
    """

    kind = "linear"
    per_entry = False

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

    def scaled_mask(self, mask: Bool[Tensor, "N D"]) -> Bool[Tensor, "N M"]:
        """All coordinates are missing where any entry of a state is."""
        return mask.any(1, keepdim=True).expand(-1, len(self.encode)).clone()

    def scaled_symmetry(self, symmetry: Symmetry) -> Symmetry:
        symmetry.check_fixed(self.shift, self.scale.max().item())
        return symmetry.in_coordinates(self.encode, self.decode)

    def plain(self) -> "LinearScaler":
        return LinearScaler(self.encode, self.decode, self.shift)

    def completed(
        self,
        v: Float[Tensor, "N D"],
        states: Float[Tensor, "N M"],
        *,
        rate: float,
        symmetry: Symmetry | None = None,
    ) -> "LinearScaler":
        if v.shape[1] == len(self.encode):
            return self
        maps = None
        if symmetry is not None and symmetry.is_orthogonal:
            own = symmetry.in_coordinates(self.encode, self.decode)
            maps = own.group, symmetry.group
        rest = v - self.inverse(self.transform(v))
        found = fit_completion(rest, states, size=v.std().item(), rate=rate, maps=maps)
        return LinearScaler(self.encode, self.decode, self.shift, found)

    def to_physical(self, field: Field, inputs: Scaler | None = None) -> nn.Module:
        return EmbeddedField(field, self, inputs)

    def to_scaled(self, field: Field) -> "RescaledField":
        raise TypeError(
            "`field` must not be taken to fewer coordinates than a state has entries."
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "encode": self.encode.clone(),
            "decode": self.decode.clone(),
            "completion": self.completion and self.completion.constants(),
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> "LinearScaler":
        given, completion = state.get("completion"), None
        if given is not None:
            completion = Completion(dim=len(state["encode"]), **given)
        return cls(state["encode"], state["decode"], state["shift"], completion)

    @classmethod
    def check_state_dict(
        cls, state: dict[str, Any], name: str, shape: list[int]
    ) -> None:
        super().check_state_dict(state, name, shape)
        encode, decode = state["encode"], state["decode"]
        check_matrix(encode, f"{name}.encode")
        check_matrix(decode, f"{name}.decode")
        if not len(encode) or [*encode.T.shape, *shape] != [*decode.shape, len(decode)]:
            raise ValueError(f"{name} must have coordinates of states of shape {shape}")
        if state.get("completion") is not None:
            check_completion(state["completion"], f"{name}.completion", len(decode))


class _PhysicalField(nn.Module):
    """A field in the units of the data, made of a `field` in scaled coordinates.

    It is called as ``module(t, u)`` and looks up its inputs, or, with a scaler of the
    inputs, as ``module(t, u, x)``.
    """

    forcing_shift: Tensor
    forcing_scale: Tensor

    def __init__(self, field: Field, inputs: Scaler | None) -> None:
        super().__init__()
        self.field = field
        if inputs is not None:
            self.register_buffer("forcing_shift", inputs.shift.clone())
            self.register_buffer("forcing_scale", inputs.scale.clone())

    def _velocity(self, t: Tensor | float, s: Tensor, x: Tensor | None) -> Tensor:
        """The velocity of scaled states under inputs in their own units."""
        if x is None:
            return self.field(t, s)
        scaled = (x - self.forcing_shift.to(x)) / self.forcing_scale.to(x)
        return cast(Any, self.field).at(s, scaled)


class RescaledField(_PhysicalField):
    """``scale * field(t, (u - shift) / scale)``: a field in other coordinates.

    The constants are float64 buffers that follow the module to its device; values have
    the dtype of `u`.
    """

    shift: Tensor
    scale: Tensor

    def __init__(
        self, field: Field, shift: Tensor, scale: Tensor, inputs: Scaler | None = None
    ) -> None:
        super().__init__(field, inputs)
        self.register_buffer("shift", shift.clone())
        self.register_buffer("scale", scale.clone())

    def forward(
        self,
        t: Tensor | float,
        u: Float[Tensor, "..."],
        x: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "..."]:
        shift, scale = self.shift.to(u), self.scale.to(u)
        return scale * self._velocity(t, (u - shift) / scale, x)


class EmbeddedField(_PhysicalField):
    """``decode field(t, encode (u - shift))``: a field of fewer coordinates.

    The rest of a state stays as it is, or follows the coordinates by a completion.
    """

    encode: Tensor
    decode: Tensor
    shift: Tensor

    def __init__(
        self, field: Field, scaler: LinearScaler, inputs: Scaler | None = None
    ) -> None:
        super().__init__(field, inputs)
        self.completion = deepcopy(scaler.completion)
        for name in ("encode", "decode", "shift"):
            self.register_buffer(name, getattr(scaler, name).clone())

    def forward(
        self,
        t: Tensor | float,
        u: Float[Tensor, "*batch D"],
        x: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "*batch D"]:
        # To the device as well: a field may be moved without what wraps it.
        about = u - self.shift.to(u)
        a = about @ self.encode.to(u).T
        speed = self._velocity(t, a, x)
        decode = self.decode.to(u).T
        if self.completion is None:
            return speed @ decode
        # Coordinates carry rounding, and possibly parts of each other's axes.
        rest = about - a @ decode
        return speed @ decode + self.completion.velocity(a, speed, rest)


def make_scaler(kind: str, per: Per = "component") -> Scaler:
    """An unfitted scaler by name: "minmax", "standard" or "identity"."""
    return SCALERS.find(kind, setting="kind")(per)


def scaler_from_state_dict(state: dict[str, Any]) -> Scaler:
    """The fitted scaler that :meth:`Scaler.state_dict` described."""
    missing = {"kind", "per", "shift", "scale"} - set(state)
    if missing:
        raise ValueError(f"`state` must describe a scaler; it lacks {sorted(missing)}.")
    return _class_of(state["kind"]).from_state_dict(state)


def check_scaler(state: dict[str, Any], name: str, shape: list[int]) -> None:
    """Raises ValueError unless `state` describes a scaler of states of a shape."""
    _class_of(state["kind"]).check_state_dict(state, name, shape)


def _class_of(kind: str) -> type[Scaler]:
    return LinearScaler if kind == LinearScaler.kind else SCALERS.find(kind)


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
    if mask is not None:
        mask = scaler.scaled_mask(mask)
    if series.forcing is not None and forcing_scaler is not None:
        forcing = forcing_scaler.transform(series.forcing.flatten(1).double())
    scaled = scaler.transform(series.v.double())
    return replace(series, v=scaled, mask=mask, forcing=forcing)


def _like(constant: Tensor, x: Tensor) -> Tensor:
    """`constant` beside `x`, at least float32: 16 bits would spoil shift and scale."""
    return constant.to(x.device, torch.promote_types(x.dtype, torch.float32))
