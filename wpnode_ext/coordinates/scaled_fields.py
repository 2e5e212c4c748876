"""Fields in the units of the data, made of fields in scaled coordinates."""

from jaxtyping import Float
from torch import Tensor, nn

from ..common.typing import Field
from .manifold import Completion


class EmbeddedField(nn.Module):
    """``decode field(t, encode (u - shift))``: a field of fewer coordinates.

    What they do not hold of a state stays as it is, or follows what they do.
    """

    encode: Tensor
    decode: Tensor
    shift: Tensor

    def __init__(
        self,
        field: Field,
        encode: Tensor,
        decode: Tensor,
        shift: Tensor,
        completion: Completion | None = None,
    ) -> None:
        super().__init__()
        self.field, self.completion = field, completion
        self.register_buffer("encode", encode.clone())
        self.register_buffer("decode", decode.clone())
        self.register_buffer("shift", shift.clone())

    def forward(
        self, t: Tensor | float, u: Float[Tensor, "*batch D"]
    ) -> Float[Tensor, "*batch D"]:
        # To the device as well: a field may be moved without what wraps it.
        about = u - self.shift.to(u)
        a = about @ self.encode.to(u).T
        speed = self.field(t, a)
        decode = self.decode.to(u).T
        if self.completion is None:
            return speed @ decode
        # Coordinates come with rounding, and maybe with parts of each other's axes.
        rest = about - a @ decode
        return speed @ decode + self.completion.velocity(a, speed, rest)


class RescaledField(nn.Module):
    """``scale * field(t, (u - shift) / scale)``: a field in other coordinates.

    The constants are float64 buffers that follow the module to its device; values have
    the dtype of `u`.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, field: Field, shift: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.field = field
        self.register_buffer("shift", shift.clone())
        self.register_buffer("scale", scale.clone())

    def forward(
        self, t: Tensor | float, u: Float[Tensor, "..."]
    ) -> Float[Tensor, "..."]:
        shift, scale = self.shift.to(u), self.scale.to(u)
        return scale * self.field(t, (u - shift) / scale)
