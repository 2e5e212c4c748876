"""Polynomial field: few parameters, readable equations."""

import itertools
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..data.series import component_names
from .factory import FIELDS, FieldConfig, FieldKind
from .linear import LinearField, check_outputs

# Entries of a basis below this share of its largest are rounding.
_ZERO = 1e-9
# No polynomial has more terms than this.
_MOST_TERMS = 10**12


class LibraryField(LinearField):
    """``f(u) = sum_j coefficients[j] * monomial_j(u, x)`` up to a total degree.

    Coefficients start at zero: the field of a system at rest.

    Args:
        dim: size D of the state, the last axis of `u`.
        degree: highest total degree of a monomial.
        outputs: values of the field; D by default.
        forcing_dim: number of inputs, variables of the monomials like the state.
        dtype: of the coefficients; torch's default one if not given.

    Attributes:
        exponents: one tuple of ``D + forcing_dim`` exponents a term, degree by degree.
        coefficients: ``[n_terms, outputs]``, with ``n_terms = C(D + forcing_dim +
            degree, degree)``.
    """

    selectable = True
    _derivatives: Tensor
    _degrees: Tensor

    def __init__(
        self,
        dim: int,
        degree: int = 2,
        *,
        outputs: int | None = None,
        forcing_dim: int = 0,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(forcing_dim)
        if degree < 0:
            raise ValueError(f"`degree` must be >= 0; got {degree}.")
        self.dim, self.degree = dim, degree
        outputs = check_outputs(dim, outputs)
        variables = dim + forcing_dim
        terms = [
            combination
            for size in range(degree + 1)
            for combination in itertools.combinations_with_replacement(
                range(variables), size
            )
        ]
        self.exponents = [
            tuple(term.count(variable) for variable in range(variables))
            for term in terms
        ]
        # Each monomial is one of the degree before times its last variable.
        for size in range(1, degree + 1):
            before = [term for term in terms if len(term) == size - 1]
            place = {term: number for number, term in enumerate(before)}
            now = [term for term in terms if len(term) == size]
            recipe = [[place[term[:-1]] for term in now], [term[-1] for term in now]]
            self.register_buffer(
                f"_recipe_{size}", torch.tensor(recipe), persistent=False
            )
        # d/du_v of term m is its exponent times the term with one factor less.
        position = {term: number for number, term in enumerate(self.exponents)}
        rows = [
            (number, term[v], v, position[(*term[:v], term[v] - 1, *term[v + 1 :])])
            for number, term in enumerate(self.exponents)
            for v in range(variables)
            if term[v] > 0
        ]
        table = torch.tensor(rows, dtype=torch.int64).reshape(-1, 4).T
        self.register_buffer("_derivatives", table.contiguous(), persistent=False)
        degrees = torch.tensor([sum(term) for term in self.exponents])
        self.register_buffer("_degrees", degrees, persistent=False)
        self.coefficients = nn.Parameter(torch.zeros(len(terms), outputs, dtype=dtype))

    def features(
        self, u: Float[Tensor, "*batch D"], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "*batch n_terms"]:
        """Values of the monomials."""
        z = u if x is None else torch.cat([u, x], dim=-1)
        return self._monomials(z, self.degree)

    def jacobian(
        self, u: Float[Tensor, "*batch D"], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "*batch O D"]:
        """Jacobian: one product of a matrix with the monomials of one degree less."""
        z = u if x is None else torch.cat([u, x], dim=-1)
        lower = self._monomials(z, max(0, self.degree - 1))
        table = self._slopes(lower.shape[-1])[..., : self.dim]
        return (lower @ table.flatten(1)).unflatten(-1, table.shape[1:])

    def at(
        self, u: Float[Tensor, "*batch D"], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "*batch O"]:
        """Value of the field, from monomials of one degree less.

        By Euler's theorem, a homogeneous polynomial g of degree k is
        ``sum_v z_v dg/dz_v / k``. Most monomials have the highest degree, and this way
        they need not be computed.
        """
        z = u if x is None else torch.cat([u, x], dim=-1)
        lower = self._monomials(z, max(0, self.degree - 1))
        table = self._slopes(lower.shape[-1], shared=True)
        return self._whole(z, (lower @ table.flatten(1)).unflatten(-1, table.shape[1:]))

    def value_and_jacobian(
        self, u: Float[Tensor, "*batch D"]
    ) -> tuple[Float[Tensor, "*batch O"], Float[Tensor, "*batch O D"]]:
        lower = self._monomials(u, max(0, self.degree - 1))
        tables = [self._slopes(lower.shape[-1], shared=s) for s in (True, False)]
        both = lower @ torch.stack(tables, 1).flatten(1)
        parts, slope = both.unflatten(-1, (2, *tables[0].shape[1:])).unbind(-3)
        return self._whole(u, parts), slope

    def _slopes(self, n_lower: int, *, shared: bool = False) -> Float[Tensor, "T O V"]:
        """Heads of the derivatives; if `shared`, over the degrees of the terms."""
        head = self.coefficients
        table = head.new_zeros(n_lower, head.shape[1], len(self.exponents[0]))
        terms, factors, variables, places = self._derivatives
        if shared:
            factors = factors / self._degrees[terms]
        table[places, :, variables] = factors.to(head)[:, None] * head[terms]
        return table

    def _whole(
        self, z: Float[Tensor, "*batch V"], parts: Float[Tensor, "*batch O V"]
    ) -> Float[Tensor, "*batch O"]:
        return self.coefficients[0] + (parts @ z[..., None])[..., 0]

    def _monomials(
        self, z: Float[Tensor, "*batch V"], degree: int
    ) -> Float[Tensor, "*batch T"]:
        rows = [torch.ones_like(z[..., :1])]
        for size in range(1, degree + 1):
            parents, variables = getattr(self, f"_recipe_{size}")
            before = rows[-1].index_select(-1, parents)
            rows.append(before * z.index_select(-1, variables))
        return torch.cat(rows, dim=-1)

    def equivariant_basis(self, maps: Float[Tensor, "G D D"]) -> Float[Tensor, "F D J"]:
        """Basis of one degree after another: linear maps do not mix degrees."""
        maps = maps.double().cpu()
        generator = torch.Generator().manual_seed(0)
        n_points = 2 * self.n_features + 8
        u = torch.randn(n_points, self.dim, generator=generator, dtype=torch.float64)
        plain = self.features(u)
        # Interpolation gives `moved` with features(g u) = features(u) @ moved[g].
        images = torch.stack([self.features(u @ g.T) for g in maps])
        degrees = torch.tensor([sum(term) for term in self.exponents])
        inverse = torch.linalg.inv(maps)
        blocks = []
        for degree in degrees.unique().tolist():
            own = (degrees == degree).nonzero().flatten()
            moved = torch.linalg.pinv(plain[:, own]) @ images[..., own]
            # The dimension of the space is the mean of the characters.
            traces = moved.diagonal(dim1=1, dim2=2).sum(1)
            own_traces = inverse.diagonal(dim1=1, dim2=2).sum(1)
            count = round((traces * own_traces).mean().item())
            if count == 0:
                continue
            found = torch.zeros(len(own), self.dim, count, dtype=torch.float64)
            rows = torch.randn(
                count, len(own), self.dim, generator=generator, dtype=torch.float64
            )
            mean = torch.zeros_like(rows)
            for number, g in enumerate(inverse):
                mean += moved[number] @ rows @ g.T
            echelon = _echelon(mean.flatten(1) / len(maps))
            found = echelon.T.unflatten(0, (len(own), self.dim))
            block = torch.zeros(self.n_features, self.dim, count, dtype=torch.float64)
            block[own] = found
            blocks.append(block)
        return torch.cat(blocks, -1)

    def polynomial(self) -> "LibraryField":
        return self

    @torch.no_grad()
    def in_coordinates(
        self,
        scale: Float[Tensor, " D"],
        shift: Float[Tensor, " D"],
        *,
        forcing_scale: Float[Tensor, " C"] | None = None,
        forcing_shift: Float[Tensor, " C"] | None = None,
    ) -> "LibraryField":
        """Polynomial of the same dynamics for ``w = scale * u + shift``.

        Its values at random points of the cube ``|u| <= 1`` determine its coefficients,
        in float64.
        """
        scale, shift = scale.double().flatten(), shift.double().flatten()
        generator = torch.Generator().manual_seed(0)
        n_points = 4 * len(self.exponents) + 8
        z = (
            2
            * torch.rand(n_points, self.dim + self.forcing_dim, generator=generator)
            .double()
            .cpu()
            - 1
        )
        u, x = z[:, : self.dim], z[:, self.dim :] if self.forcing_dim else None
        values = self.features(u, x) @ self.coefficients.double().cpu() * scale.cpu()
        if x is not None and forcing_scale is not None and forcing_shift is not None:
            x = x * forcing_scale.double().cpu() + forcing_shift.double().cpu()
        moved = LibraryField(self.dim, self.degree, forcing_dim=self.forcing_dim)
        matrix = moved.features(u * scale.cpu() + shift.cpu(), x)
        # Columns differ by powers of the scale; equal norms keep the solution accurate.
        norms = matrix.norm(dim=0)
        solution = torch.linalg.lstsq(matrix / norms, values, driver="gelsd").solution
        moved.coefficients = nn.Parameter(solution / norms[:, None])
        return moved

    def equations(
        self,
        names: Sequence[str] | None = None,
        *,
        digits: int = 4,
        sizes: Sequence[float] | None = None,
    ) -> list[str]:
        """One line of text a component, e.g. ``dx/dt = -10 x + 10 y``.

        Args:
            names: names of the state variables, then of the inputs; default
                ``u0, u1, ..., x0, ...``.
            digits: significant digits. Terms that contribute less than ``10^-digits``
                of the largest term of their equation are left out.
            sizes: typical sizes of the variables, by which contributions are judged;
                default 1.
        """
        variables = self.dim + self.forcing_dim
        if names is None:
            names = component_names(None, self.dim)
            names += component_names(None, self.forcing_dim, letter="x")
        typical = [1.0] * variables if sizes is None else list(sizes)
        for label, given in (("names", names), ("sizes", typical)):
            if len(given) != variables:
                raise ValueError(
                    f"`{label}` must have {variables} entries; got {list(given)}."
                )
        table = self.coefficients.detach().double().cpu()
        powers = torch.tensor(self.exponents, dtype=torch.float64)
        size = torch.tensor(typical, dtype=torch.float64)
        weight = table.abs() * (size**powers).prod(-1, keepdim=True)
        shown = weight > weight.amax(0) * 10.0**-digits
        labels = [_monomial(exponents, names) for exponents in self.exponents]
        lines = []
        for component in range(self.dim):
            terms = [
                (table[number, component].item(), label)
                for number, label in enumerate(labels)
                if shown[number, component]
            ]
            lines.append(f"d{names[component]}/dt = {_sum_of(terms, digits)}")
        return lines


def _monomial(exponents: Sequence[int], names: Sequence[str]) -> str:
    powers = [
        name if exponent == 1 else f"{name}^{exponent}"
        for name, exponent in zip(names, exponents, strict=True)
        if exponent > 0
    ]
    return " ".join(powers)


def _sum_of(terms: list[tuple[float, str]], digits: int) -> str:
    text = ""
    for value, label in terms:
        sign = "-" if math.copysign(1.0, value) < 0 else "+"
        lead = f" {sign} " if text else ("-" if sign == "-" else "")
        text += f"{lead}{abs(value):.{digits}g}" + (f" {label}" if label else "")
    return text or "0"


def _echelon(rows: Float[Tensor, "J P"]) -> Float[Tensor, "J P"]:
    """Reduced row echelon form with rows of norm one: a basis with many zeros."""
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


def make_polynomial(
    config: FieldConfig, dim: int, forcing_dim: int, outputs: int | None = None
) -> LibraryField:
    """The polynomial of `dim` variables and the inputs that settings describe."""
    return LibraryField(dim, config.degree, outputs=outputs, forcing_dim=forcing_dim)


def count_polynomial(config: FieldConfig, variables: int) -> int:
    """Number of terms, ``C(variables + degree, degree)``, plus the degree.

    The count of terms stops once it exceeds that of any field that fits in memory.
    """
    terms, degree = 1, max(config.degree, 0)
    for k in range(1, min(variables, degree) + 1):
        terms = terms * (max(variables, degree) + k) // k
        if terms > _MOST_TERMS:
            break
    return terms + degree


FIELDS.add(
    "library",
    FieldKind(
        lambda config, shape, inputs, _: make_polynomial(config, shape[0], inputs),
        lambda config, shape, inputs: count_polynomial(config, shape[0] + inputs),
        linear=True,
    ),
)
