"""Linear fields with few free coefficients: a symmetry or zeros fix the others."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..common.registry import Registry
from .linear import LinearField, summed

if TYPE_CHECKING:
    from .library import LibraryField

# Features that are sums of at most this many terms are computed term by term.
_FEW = 8

# Makes a restricted field from its base and the weights in a model file.
Remake = Callable[[LinearField, Mapping[str, Tensor]], "RestrictedField"]
RESTRICTIONS: Registry[Remake] = Registry("field_class", "restricted fields")


class RestrictedField(LinearField):
    """``f(u) = base.features(u) @ head``, the head linear in fewer coefficients.

    Every entry of the state is a site with features of its own, ``[*batch, D, J]``.
    :data:`RESTRICTIONS` has an entry for every subclass.

    Args:
        base: the field whose heads are restricted; this one sets its coefficients.
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

    @property
    def described(self) -> LinearField:
        return self.base

    def unrestricted(self) -> tuple[LinearField, Float[Tensor, "F D J"]]:
        return self.base, self.basis

    @torch.no_grad()
    def polynomial(self) -> "LibraryField | None":
        found = deepcopy(self.base.polynomial())
        if found is not None:
            found.set_coefficients(self.head())
        return found

    @property
    def chooses_ridge_by_forecasts(self) -> bool:
        """True for random features: few symmetries leave many coefficients free."""
        return self.base.drawn

    @abstractmethod
    def _make_head(self) -> Float[Tensor, "F D"]:
        """Head for the current coefficients."""

    @abstractmethod
    def _expand(self, phi: Float[Tensor, "*batch F"]) -> Float[Tensor, "*batch D J"]:
        """This field's features from those of its base."""

    def head(self) -> Float[Tensor, "F D"]:
        """Coefficients of the base field."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self._make_head()
        # A product with a whole basis takes time: keep it until coefficients change.
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
        self._set_base()
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
        self._set_base()
        return self.base.jacobian(u)

    def value_and_jacobian(
        self, u: Float[Tensor, "*batch D"]
    ) -> tuple[Float[Tensor, "*batch D"], Float[Tensor, "*batch D D"]]:
        self._set_base()
        return self.base.value_and_jacobian(u)

    def _apply(self, fn: Any, recurse: bool = True) -> "RestrictedField":
        self._known = None  # on another device, or in another precision
        return super()._apply(fn, recurse)

    @torch.no_grad()
    def _set_base(self) -> None:
        self.base.coefficients.copy_(self.head())


class SparseField(RestrictedField):
    """``f_d(u) = sum of c_jd base.features_j(u)`` over the pairs (j, d) of a support.

    Args:
        base: the field of all terms, e.g. a :class:`LibraryField`.
        support: which coefficients may differ from zero, ``[F, D]``; for instance from
            :func:`~wpnode_ext.closed_form.find_support`.

    Attributes:
        coefficients: those of the support, feature by feature, ``[J, 1]``.
    """

    support: Tensor
    _feature: Tensor
    _entry: Tensor

    def __init__(self, base: LinearField, support: Bool[Tensor, "F D"]) -> None:
        if support.shape != base.coefficients.shape or not support.any():
            raise ValueError(
                f"`support` must have shape {list(base.coefficients.shape)} and at "
                f"least one entry; got {int(support.sum())} in {list(support.shape)}."
            )
        super().__init__(base, int(support.sum()))
        feature, entry = support.nonzero(as_tuple=True)
        self.register_buffer("support", support.bool())
        self.register_buffer("_feature", feature, persistent=False)
        self.register_buffer("_entry", entry, persistent=False)

    @property
    def basis(self) -> Float[Tensor, "F D J"]:  # type: ignore[override]
        """One head for every coefficient, one at its place and zero elsewhere."""
        shape = (*self.support.shape, len(self._feature))
        made = self.coefficients.new_zeros(shape)
        number = torch.arange(len(self._feature), device=made.device)
        made[self._feature, self._entry, number] = 1.0
        return made

    def feature_sizes(self, u: Float[Tensor, "N D"]) -> Float[Tensor, " J"]:
        """Sizes of features that are zero at every entry of the state but one."""
        return self.base.feature_sizes(u)[self._feature] / self.dim**0.5

    def _make_head(self) -> Float[Tensor, "F D"]:
        head = self.coefficients.new_zeros(self.support.shape)
        place = (self._feature, self._entry)
        return head.index_put(place, self.coefficients[:, 0])

    def _expand(self, phi: Float[Tensor, "*batch F"]) -> Float[Tensor, "*batch D J"]:
        values = phi.new_zeros(*phi.shape[:-1], self.dim, len(self._feature))
        number = torch.arange(len(self._feature), device=phi.device)
        values[..., self._entry, number] = phi[..., self._feature]
        return values


class EquivariantField(RestrictedField):
    """``f(u) = base.features(u) @ (sum_m coefficients[m] basis[:, :, m])``.

    The basis spans the heads of another linear field for which ``f(g u) = g f(u)``
    under every map g of a group. The symmetry leaves only their coefficients free. For
    orthogonal maps the fit of these coefficients equals the fit of the whole head to
    the data under all maps, without the cost of applying the maps.

    Args:
        base: the field whose heads are restricted.
        basis: ``[F, D, J]``, for instance from :meth:`LinearField.equivariant_basis`.

    Attributes:
        coefficients: ``[J, 1]``.
    """

    def __init__(self, base: LinearField, basis: Float[Tensor, "F D J"]) -> None:
        super().__init__(base, basis.shape[2])
        self.register_buffer("basis", basis.to(base.coefficients.dtype))
        self._terms = _terms(self.basis)
        self._blocks = [] if self._terms else _blocks(self.basis)

    @classmethod
    def of(cls, base: LinearField, maps: Float[Tensor, "G D D"]) -> "EquivariantField":
        """The field of all heads of a base that commute with all maps of a group.

        Args:
            base: a polynomial, or random features drawn in families,
                ``redraw(..., maps=maps)``.
            maps: all maps, in the coordinates of the field.
        """
        basis = base.equivariant_basis(maps)
        if basis is None:
            raise ValueError(
                "`base` must be a polynomial, or random features of one layer drawn in "
                f"families of the {len(maps)} maps; got a {type(base).__name__}."
            )
        return cls(base, basis)

    def _make_head(self) -> Float[Tensor, "F D"]:
        return (self.basis @ self.coefficients)[..., 0]

    def _expand(self, phi: Float[Tensor, "*batch F"]) -> Float[Tensor, "*batch D J"]:
        if self._terms is None:
            values = phi.new_zeros(*phi.shape[:-1], *self.basis.shape[1:])
            for rows, columns, table in self._blocks:
                part = phi[..., rows] @ table.to(phi).flatten(1)
                values[..., columns] = part.unflatten(-1, table.shape[1:])
            return values
        values = phi.new_zeros(*phi.shape[:-1], self.basis[0].numel())
        for places, sources, weights in self._terms:
            values[..., places] += phi[..., sources] * weights.to(phi)
        return values.unflatten(-1, self.basis.shape[1:])

    def combined(
        self,
        u: Float[Tensor, "*batch D"],
        basis: Float[Tensor, "J K"],
        weights: Float[Tensor, " P"] | None = None,
    ) -> Float[Tensor, "*rest D K"]:
        if self.base.n_features > self.n_features:
            return super().combined(u, basis, weights)
        phi = summed(self.base.features(u), weights)
        table = self.basis @ basis
        return (phi @ table.flatten(1)).unflatten(-1, table.shape[1:])

    def feature_sizes(self, u: Float[Tensor, "N D"]) -> Float[Tensor, " J"]:
        """Sizes of the base's features, before they are summed over maps.

        The odd part of a random feature is often small. A prior that scaled it to size
        one would give it as much weight as other features, and fit noise with it.
        """
        sizes = self.base.feature_sizes(u)
        return (
            torch.einsum("fdj,f->j", self.basis.square(), sizes.square())
            .div(self.dim)
            .sqrt()
        )


def _terms(
    basis: Float[Tensor, "F D J"],
) -> list[tuple[Tensor, Tensor, Tensor]] | None:
    """First, second, ... terms of all entries of a sparse basis; None if it is dense.

    Each is ``(places, sources, weights)``: the entries ``d J + j`` that have such a
    term, the feature it takes, and the factor.
    """
    table = basis.flatten(1).T
    counts = (table != 0).sum(1)
    deepest = int(counts.max())
    if deepest > _FEW:
        return None
    order = (table == 0).to(torch.int8).argsort(dim=1, stable=True)
    found = []
    for depth in range(deepest):
        places = (counts > depth).nonzero().flatten()
        sources = order[places, depth]
        found.append((places, sources, table[places, sources]))
    return found


def _blocks(basis: Float[Tensor, "F D J"]) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Parts of a basis that share no feature, such as families of random features.

    Each is ``(rows, columns, table)``: features, coefficients they belong to, and the
    entries of the basis at both, ``[rows, D, columns]``. Their products
    together are the product with the basis.
    """
    from scipy.sparse.csgraph import connected_components

    linked = (basis != 0).any(1)
    graph = torch.cat([linked.new_zeros(len(linked), len(linked)), linked], 1)
    whole = torch.cat([graph, torch.zeros_like(graph[:1]).expand(linked.shape[1], -1)])
    _, label = connected_components(whole.cpu().numpy(), directed=False)
    labels = torch.from_numpy(label).to(basis.device)
    found = []
    for number in labels[len(linked) :].unique().tolist():
        own = (labels == number).nonzero().flatten()
        rows, columns = own[own < len(linked)], own[own >= len(linked)] - len(linked)
        found.append((rows, columns, basis[rows][..., columns]))
    return found


RESTRICTIONS.add("SparseField", lambda base, w: SparseField(base, w["support"]))
RESTRICTIONS.add("EquivariantField", lambda base, w: EquivariantField(base, w["basis"]))
