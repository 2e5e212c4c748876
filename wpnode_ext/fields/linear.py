"""Fields that are linear in their coefficients: features of the state and a head."""

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .base import Field

if TYPE_CHECKING:
    from .library import LibraryField


class LinearField(Field):
    """``f(u, x) = features(u, x) @ coefficients``: its weak residual is linear too.

    A subclass defines :meth:`features`. A field that acts alike at S sites of a state
    has one row of features a site, ``[*batch, S, J]``, and the same coefficients at all
    of them; other fields have ``[*batch, J]``.

    Attributes:
        dim: size D of the state, the last axis of `u`.
        sites: number S of sites that share the coefficients; 1 for most fields.
        coefficients: ``[J, D / S]``.
        drawn: whether hidden layers are drawn before the fit.
        selectable: whether features are terms of which a fit may select a few.
    """

    coefficients: nn.Parameter
    dim: int
    sites: int = 1
    drawn: bool = False
    selectable: bool = False

    @property
    def n_features(self) -> int:
        return self.coefficients.shape[0]

    def features(
        self, u: Float[Tensor, "*batch D"], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "*batch J"]:
        """The factors of the coefficients, ``[*batch, J]`` or ``[*batch, S, J]``."""
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
        """Root mean squares of the features at states `u`, the units of a ridge."""
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

        Found by differentiating :meth:`at`; subclasses know their derivative.
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
        """:meth:`at` and :meth:`jacobian` without inputs, with work shared by both."""
        return self.at(u), self.jacobian(u)

    def draw(
        self,
        states: Float[Tensor, "N D"],
        generator: torch.Generator,
        *,
        inputs: Float[Tensor, "N C"] | None = None,
        maps: Float[Tensor, "G D D"] | None = None,
        whole_group: bool = True,
    ) -> None:
        """Draws hidden layers for the box of the data; most fields have none.

        Args:
            states: of the data.
            generator: draws the layers.
            inputs: of the data, or None.
            maps: symmetries of the system, or None.
            whole_group: whether they are all maps of a group.
        """

    def equivariant_basis(
        self, maps: Float[Tensor, "G D D"]
    ) -> Float[Tensor, "F D J"] | None:
        """Heads C with ``C^T features(g u) = g C^T features(u)`` for all g of a group.

        They are independent and span all such heads. None if the features do not map
        onto each other.
        """
        return None

    def unrestricted(self) -> "tuple[LinearField, Float[Tensor, 'F D J'] | None]":
        """A field of free coefficients, and the heads of it that this one combines.

        The second is None where this field restricts no other one.
        """
        return self, None

    def polynomial(self) -> "LibraryField | None":
        """The field as one polynomial of the state, or None if it is no polynomial."""
        return None

    @property
    def chooses_ridge_by_forecasts(self) -> bool:
        """Whether forecasts of held-out data, not a score of the fit, choose its ridge.

        Coefficients that many sites share are few for the data, and a score of the fit
        is reliable.
        """
        return self.sites == 1

    @torch.no_grad()
    def set_coefficients(self, values: Float[Tensor, "J O"]) -> None:
        """Replaces the coefficients, in their own precision."""
        if values.shape != self.coefficients.shape:
            raise ValueError(
                f"`values` must have shape {list(self.coefficients.shape)}; "
                f"got {list(values.shape)}."
            )
        self.coefficients.copy_(values)


def as_linear(field: object) -> LinearField | None:
    """`field` if it is linear in its coefficients, else None."""
    return field if isinstance(field, LinearField) else None


def summed(phi: Float[Tensor, "..."], weights: Float[Tensor, " P"] | None) -> Tensor:
    """Weighted sum over the first axis; `phi` itself without weights."""
    return phi if weights is None else torch.tensordot(weights, phi, 1)


def check_outputs(dim: int, outputs: int | None) -> int:
    """Number of values a field has: one for every entry of the state by default."""
    if dim < 1 or (outputs is not None and outputs < 1):
        raise ValueError(f"`dim` and `outputs` must be >= 1; got {dim} and {outputs}.")
    return dim if outputs is None else outputs
