"""Fields whose head is known up to few numbers."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .linear import LinearField, summed


class RestrictedField(LinearField):
    """``f(u) = base.features(u) @ head``, the head linear in fewer coefficients.

    Every entry of the state is a site with features of its own, ``[*batch, D, J]``.

    Args:
        base: the field whose heads are restricted; its own coefficients follow.
        count: number J of coefficients.

    Attributes:
        basis: heads that the coefficients multiply, ``[F, D, J]``.
        coefficients: ``[J, 1]``.
    """

    basis: Tensor

    def __init__(self, base: LinearField, count: int) -> None:
        super().__init__(0)
        if base.sites != 1 or base.forcing_dim != 0:
            raise ValueError(
                "`base` must be a field of one site without forcing; got "
                f"{base.sites} sites and {base.forcing_dim} inputs."
            )
        self.base, self.dim, self.sites = base, base.dim, base.dim
        base.coefficients.requires_grad_(False)
        dtype = base.coefficients.dtype
        self.coefficients = nn.Parameter(torch.zeros(count, 1, dtype=dtype))
        self._known: tuple[Tensor, Tensor] | None = None

    @abstractmethod
    def _make_head(self) -> Float[Tensor, "F D"]:
        """The head of the coefficients as they are."""

    @abstractmethod
    def _expand(self, phi: Float[Tensor, "*batch F"]) -> Float[Tensor, "*batch D J"]:
        """Own features from those of the base."""

    def head(self) -> Float[Tensor, "F D"]:
        """Coefficients of the base field."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self._make_head()
        # A product over a whole basis: worth keeping until the coefficients change.
        if self._known is None or not torch.equal(self._known[0], self.coefficients):
            value = self._make_head()
            self._known = (self.coefficients.detach().clone(), value)
        return self._known[1]

    def features(
        self, u: Float[Tensor, "*batch D"], x: Tensor | None = None
    ) -> Float[Tensor, "*batch D J"]:
        return self._expand(self.base.features(u))

    def combined(
        self,
        u: Float[Tensor, "*batch D"],
        basis: Float[Tensor, "J K"],
        weights: Float[Tensor, " P"] | None = None,
    ) -> Float[Tensor, "*rest D K"]:
        return self._expand(summed(self.base.features(u), weights)) @ basis

    def at(
        self, u: Float[Tensor, "*batch D"], x: Tensor | None = None
    ) -> Float[Tensor, "*batch D"]:
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self.base.features(u) @ self.head()
        self._tell_base()
        return self.base.at(u)

    @torch.no_grad()
    def with_heads(
        self, heads: Float[Tensor, "R J 1"]
    ) -> Callable[[Float[Tensor, "R B D"]], Float[Tensor, "R B D"]]:
        own, full = self.coefficients.clone(), []
        for values in heads:
            self.set_coefficients(values)
            full.append(self.head())
        self.set_coefficients(own)
        return self.base.with_heads(torch.stack(full))

    def jacobian(
        self, u: Float[Tensor, "*batch D"], x: Tensor | None = None
    ) -> Float[Tensor, "*batch D D"]:
        self._tell_base()
        return self.base.jacobian(u)

    def value_and_jacobian(
        self, u: Float[Tensor, "*batch D"]
    ) -> tuple[Float[Tensor, "*batch D"], Float[Tensor, "*batch D D"]]:
        self._tell_base()
        return self.base.value_and_jacobian(u)

    def _apply(self, fn: Any, recurse: bool = True) -> "RestrictedField":
        self._known = None  # of another device or precision
        return super()._apply(fn, recurse)

    @torch.no_grad()
    def _tell_base(self) -> None:
        self.base.coefficients.copy_(self.head())
