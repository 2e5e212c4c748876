"""Inputs that act on a system from outside: tides, control signals, solar radiation."""

import torch
from jaxtyping import Float
from torch import Tensor


class Forcing:
    """A tabulated input x(t), linear between the times it is known at.

    Times stay in float64 whatever the precision of the field: in float32 the stages of
    a Runge-Kutta step of 0.01 coincide from ``t = 1e5`` on.

    Args:
        t: increasing times, ``[M]``.
        values: the inputs at these times, ``[M, C]``.
    """

    def __init__(self, t: Float[Tensor, " M"], values: Float[Tensor, "M C"]) -> None:
        t = torch.as_tensor(t, dtype=torch.float64)
        values = torch.as_tensor(values)
        if t.dim() != 1 or len(t) < 2 or not (t.diff() > 0).all():
            raise ValueError(
                "`t` must be an increasing vector of at least two times; "
                f"got shape {list(t.shape)}. Sort it and drop repeated times."
            )
        if values.dim() != 2 or len(values) != len(t):
            raise ValueError(
                f"`values` must have shape [{len(t)}, channels], one row a time; "
                f"got {list(values.shape)}."
            )
        if not values.isfinite().all():
            raise ValueError("`values` must be finite; fill missing inputs first.")
        self.t = t
        self.values = values

    @property
    def dim(self) -> int:
        """Number C of inputs."""
        return self.values.shape[1]

    def check_covers(self, first: float, last: float) -> None:
        """Raises unless the table reaches from `first` to `last`."""
        begin, end = self.t[0].item(), self.t[-1].item()
        slack = 1e-9 * max(abs(begin), abs(end), end - begin)
        if first < begin - slack or last > end + slack:
            raise ValueError(
                f"`forcing` must cover the times {first:g} .. {last:g}; "
                f"got {begin:g} .. {end:g}."
            )

    def to(self, device: torch.device, dtype: torch.dtype) -> "Forcing":
        """The same input on another device, its values in another precision."""
        if (self.values.device, self.values.dtype) == (device, dtype):
            return self
        moved = object.__new__(Forcing)
        moved.t, moved.values = self.t.to(device), self.values.to(device, dtype)
        return moved

    def __call__(self, t: Float[Tensor, "*times"]) -> Float[Tensor, "*times C"]:
        """The input at times `t`, in the dtype of the table."""
        t = t.to(torch.float64).contiguous()
        left = torch.searchsorted(self.t, t, right=True).sub_(1)
        left = left.clamp_(0, len(self.t) - 2)
        begin, end = self.t[left], self.t[left + 1]
        share = ((t - begin) / (end - begin)).to(self.values.dtype).unsqueeze(-1)
        return torch.lerp(self.values[left], self.values[left + 1], share)
