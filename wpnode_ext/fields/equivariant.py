"""Fields that commute with a group of linear maps by construction."""

import torch
from jaxtyping import Float
from torch import Tensor

from .library import LibraryField
from .linear import LinearField, summed
from .random_features import RandomFeatureField
from .restricted import RestrictedField

# Entries of a basis below this share of its largest are rounding.
_ZERO = 1e-9
# Terms of an entry up to which they are added one by one.
_FEW = 8


class EquivariantField(RestrictedField):
    """``f(u) = base.features(u) @ (sum_m coefficients[m] basis[:, :, m])``.

    The basis spans the heads C of another linear field for which
    ``f(g u) = g f(u)`` under every map g of a group. What is learned are the few
    numbers the symmetry leaves open. For orthogonal maps a fit of them is the fit of
    the whole head to the data under all maps, at the price of no map at all.

    Args:
        base: the field whose heads are restricted.
        basis: ``[F, D, J]``, for instance of :func:`equivariant_basis`.

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
        """The fields of a base that commute with all maps of a group.

        Args:
            base: a polynomial, or random features drawn in families,
                ``redraw(..., maps=maps)``.
            maps: all maps, in the coordinates of the field.
        """
        return cls(base, equivariant_basis(base, maps))

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
        """Those of the base's features, not of what is left of them in sums over maps.

        Of a random feature often little is odd. Were that brought to size one, a prior
        would expect as much of it as of all else, and explain noise by it.
        """
        sizes = self.base.feature_sizes(u)
        return (
            torch.einsum("fdj,f->j", self.basis.square(), sizes.square())
            .div(self.dim)
            .sqrt()
        )


def equivariant_basis(
    base: LinearField, maps: Float[Tensor, "G D D"]
) -> Float[Tensor, "F D J"]:
    """Independent heads C with ``C^T features(g u) = g C^T features(u)`` for all g."""
    maps = maps.double().cpu()
    if isinstance(base, LibraryField):
        return _of_polynomials(base, maps)
    if isinstance(base, RandomFeatureField):
        return _of_families(base, maps)
    raise TypeError(
        "`base` must be a LibraryField or a RandomFeatureField; "
        f"got {type(base).__name__}."
    )


def _of_polynomials(
    base: LibraryField, maps: Float[Tensor, "G D D"]
) -> Float[Tensor, "F D J"]:
    """Degree by degree: linear maps do not mix them."""
    generator = torch.Generator().manual_seed(0)
    n_points = 2 * base.n_features + 8
    u = torch.randn(n_points, base.dim, generator=generator, dtype=torch.float64)
    plain = base.features(u)
    # features(g u) = features(u) @ moved[g]: found by interpolation.
    images = torch.stack([base.features(u @ g.T) for g in maps])
    degrees = torch.tensor([sum(term) for term in base.exponents])
    inverse = torch.linalg.inv(maps)
    blocks = []
    for degree in degrees.unique().tolist():
        own = (degrees == degree).nonzero().flatten()
        moved = torch.linalg.pinv(plain[:, own]) @ images[..., own]
        # The dimension of the space is the mean of the characters.
        traces = moved.diagonal(dim1=1, dim2=2).sum(1)
        count = round((traces * inverse.diagonal(dim1=1, dim2=2).sum(1)).mean().item())
        if count == 0:
            continue
        found = torch.zeros(len(own), base.dim, count, dtype=torch.float64)
        rows = torch.randn(
            count, len(own), base.dim, generator=generator, dtype=torch.float64
        )
        mean = torch.zeros_like(rows)
        for number, g in enumerate(inverse):
            mean += moved[number] @ rows @ g.T
        echelon = _echelon(mean.flatten(1) / len(maps))
        found = echelon.T.unflatten(0, (len(own), base.dim))
        block = torch.zeros(base.n_features, base.dim, count, dtype=torch.float64)
        block[own] = found
        blocks.append(block)
    return torch.cat(blocks, -1)


def _of_families(
    base: RandomFeatureField, maps: Float[Tensor, "G D D"]
) -> Float[Tensor, "F D J"]:
    """``f(u) = C u + sum_j sum_g g^-1 c_j tanh(W_j g u + b_j)``, C among the linear."""
    d, width = base.dim, base.width
    families = width // len(maps)
    if base.depth != 1 or families * len(maps) != width:
        raise ValueError(
            f"`base` must have one layer drawn in families of {len(maps)} maps; "
            f"got width {width} and depth {base.depth}."
        )
    straight = LibraryField(d, 1, dtype=torch.float64)
    low = _of_polynomials(straight, maps)
    inverse = torch.linalg.inv(maps) / len(maps) ** 0.5
    high = torch.zeros(len(maps), families, d, families, d, dtype=torch.float64)
    for j in range(families):
        high[:, j, :, j] = inverse
    basis = torch.zeros(base.n_features, d, low.shape[2] + families * d).double()
    basis[: 1 + d, :, : low.shape[2]] = low
    basis[1 + d :, :, low.shape[2] :] = high.reshape(width, d, families * d)
    return basis


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
    """Parts of a basis that share no feature, such as families of random ones.

    Each is ``(rows, columns, table)``: features, weights they belong to, and what lies
    at both, ``[rows, D, columns]``. A product with all of them is one with the basis,
    without its zeros.
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


def _echelon(rows: Float[Tensor, "J P"]) -> Float[Tensor, "J P"]:
    """Reduced row echelon form, rows of norm one: as many zeros as the space has."""
    rows = rows.clone()
    for number in range(len(rows)):
        rest = rows[number:].abs()
        row, column = divmod(int(rest.argmax()), rest.shape[1])
        row += number
        rows[[number, row]] = rows[[row, number]]
        rows[number] /= rows[number, column].clone()
        factors = rows[:, column].clone()
        factors[number] = 0.0
        rows -= factors[:, None] * rows[number]
    rows[rows.abs() < _ZERO] = 0.0
    return rows / rows.norm(dim=1, keepdim=True)
