"""Fields that are linear in what is learned: a fixed map of the state and a head."""

from collections.abc import Callable
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .base import Field


class LinearField(Field):
    """``f(u, x) = features(u, x) @ coefficients``: its weak residual is linear too.

    A subclass defines :meth:`features`. A field that acts alike at S sites of a state
    has one row of features a site, ``[*batch, S, J]``, and the same coefficients at all
    of them; other fields have ``[*batch, J]``.

    Attributes:
        dim: size D of the state, the last axis of `u`.
        sites: number S of sites that share the coefficients; 1 for most fields.
        coefficients: ``[J, D / S]``.
    """

    coefficients: nn.Parameter
    dim: int
    sites: int = 1

    @property
    def n_features(self) -> int:
        return self.coefficients.shape[0]

    def features(
        self, u: Float[Tensor, "*batch D"], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "*batch J"]:
        """What the coefficients multiply, ``[*batch, J]`` or ``[*batch, S, J]``."""
        raise NotImplementedError

    def combined(
        self,
        u: Float[Tensor, "*batch D"],
        basis: Float[Tensor, "J K"],
        weights: Float[Tensor, " P"] | None = None,
    ) -> Float[Tensor, "*rest K"]:
        """``features(u) @ basis`` without inputs.

        With `weights` the sum over the first axis of `u`, so weighted, in one product.
        """
        return summed(self.features(u), weights) @ basis

    def feature_sizes(self, u: Float[Tensor, "N D"]) -> Float[Tensor, " J"]:
        """Units in which coefficients are compared: root mean squares at states `u`."""
        phi = self.features(u).reshape(-1, self.n_features)
        return phi.square().mean(0).sqrt()

    def at(
        self, u: Float[Tensor, "*batch D"], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "*batch D"]:
        values = self.features(u, x) @ self.coefficients
        return values.flatten(-2) if self.sites > 1 else values

    def with_heads(
        self, heads: Float[Tensor, "R J O"]
    ) -> Callable[[Float[Tensor, "R B D"]], Float[Tensor, "R B D"]]:
        """R fields that differ in their coefficients alone, as one function.

        Each has B states of its own; the features of all are computed together.
        """
        if self.sites > 1:
            return lambda u: (self.features(u) @ heads[:, None]).flatten(-2)
        return lambda u: self.features(u) @ heads

    def jacobian(
        self, u: Float[Tensor, "*batch D"], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "*batch O D"]:
        """``J[..., i, j] = d f_i / d u_j`` at states `u` under inputs `x`.

        This one differentiates :meth:`at`; subclasses know their derivative.
        """
        batch = u.shape[:-1]
        rows = u.reshape(prod(batch), u.shape[-1])
        if x is None:
            table = torch.func.vmap(torch.func.jacrev(self.at))(rows)
        else:
            inputs = x.reshape(prod(batch), x.shape[-1])
            table = torch.func.vmap(torch.func.jacrev(self.at))(rows, inputs)
        return table.reshape(*batch, *table.shape[1:])

    def value_and_jacobian(
        self, u: Float[Tensor, "*batch D"]
    ) -> tuple[Float[Tensor, "*batch O"], Float[Tensor, "*batch O D"]]:
        """:meth:`at` and :meth:`jacobian` without inputs; subclasses share work."""
        return self.at(u), self.jacobian(u)

    @torch.no_grad()
    def set_coefficients(self, values: Float[Tensor, "J O"]) -> None:
        """Replaces the coefficients, in their own precision."""
        if values.shape != self.coefficients.shape:
            raise ValueError(
                f"`values` must have shape {list(self.coefficients.shape)}; "
                f"got {list(values.shape)}."
            )
        self.coefficients.copy_(values)


def summed(phi: Float[Tensor, "..."], weights: Float[Tensor, " P"] | None) -> Tensor:
    """Weighted sum over the first axis; `phi` itself without weights."""
    return phi if weights is None else torch.tensordot(weights, phi, 1)


def check_outputs(dim: int, outputs: int | None) -> int:
    """Number of values a field has: one for every entry of the state by default."""
    if dim < 1 or (outputs is not None and outputs < 1):
        raise ValueError(f"`dim` and `outputs` must be >= 1; got {dim} and {outputs}.")
    return dim if outputs is None else outputs
