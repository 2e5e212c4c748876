"""Random features: a hidden layer that is drawn, not trained, and a linear head."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .factory import FIELDS, FieldConfig, FieldKind
from .library import LibraryField
from .linear import LinearField, check_outputs

# Sizes of a unit's input between which tanh is curved and not yet flat.
CURVED = (0.4, 3.5)
# Longest weight in a direction in which the box has no extent.
_UNBOUNDED = 1e6
# Difference up to which a weight is the image of another one.
_SAME = 1e-10
# Numbers of a slice of hidden values: they stay in the cache.
_SLICE = 1 << 16


def hit_and_run(
    low: Float[Tensor, " D"],
    high: Float[Tensor, " D"],
    n_rows: int,
    *,
    bounds: tuple[float, float] = CURVED,
    steepness: float = 1.0,
    generator: torch.Generator | None = None,
) -> tuple[Float[Tensor, "R D"], Float[Tensor, " R"]]:
    """Weights and biases with ``bounds[0] <= |w u + b| <= bounds[1]`` in a box.

    The bias is uniform between the bounds, the direction of `w` is that of a normal
    vector, and its length is uniform up to `steepness` times the largest for which the
    property holds at every point of the box ``low <= u <= high``.

    Returns:
        float64 weights ``[R, D]`` and biases ``[R]``.
    """
    low, high = low.double().cpu(), high.double().cpu()
    if low.shape != high.shape or low.dim() != 1 or not (low <= high).all():
        raise ValueError(
            "`low` and `high` must be vectors of one size with low <= high; "
            f"got shapes {list(low.shape)} and {list(high.shape)}."
        )
    if not 0 < steepness <= 1:
        raise ValueError(
            f"`steepness` must be above 0 and at most 1; got {steepness}. Longer "
            "weights would take units out of their bounds."
        )
    inner, outer = bounds
    options = {"generator": generator, "dtype": torch.float64}
    b = inner + (outer - inner) * torch.rand(n_rows, **options)
    direction = torch.randn(n_rows, len(low), **options)
    direction = direction / direction.norm(dim=1, keepdim=True)
    upward = direction > 0
    largest = (direction * torch.where(upward, high, low)).sum(1)
    smallest = (direction * torch.where(upward, low, high)).sum(1)
    free = torch.full_like(b, _UNBOUNDED)
    above = torch.where(largest > 0, (outer - b) / largest, free)
    below = torch.where(smallest < 0, (inner - b) / smallest, free)
    longest = steepness * torch.minimum(above, below).clamp(max=_UNBOUNDED)
    length = torch.rand(n_rows, **options) * longest
    sign = torch.randint(0, 2, (n_rows,), generator=generator).double() * 2 - 1
    return sign[:, None] * length[:, None] * direction, sign * b


def _tanh_of_half(x: Tensor) -> Tensor:
    """As ``2 sigmoid(x) - 1``, of which torch's float64 takes a third of the time."""
    return torch.add(x.new_tensor(-1.0), torch.sigmoid(x), alpha=2)


class RandomFeatureField(LinearField):
    """``f(u) = C^T [1, u, x, h_1, ..., h_depth]``, of which only C is learned.

    ``h_1 = tanh(W_1 [u, x] + b_1)`` and ``h_i = tanh(W_i [u, x, h_{i-1}] + b_i)``, the
    rows of W and b drawn by :func:`hit_and_run` over the box of the data. Coefficients
    start at zero; see :func:`~wpnode_ext.fit_closed_form`.

    Args:
        dim: size D of the state, the last axis of `u`.
        width: units of each hidden layer.
        box: two corners of the box of states and inputs, ``[D + forcing_dim]`` each;
            default -1 and 1. :meth:`redraw` takes another one.
        depth: number of hidden layers.
        steepness: of the hidden units, see :func:`hit_and_run`. Flat units are close to
            polynomials of low degree, the flatter the lower: a field without sharp
            bends in many variables is learned from fewer data with 0.3 than with 1.
        outputs: values of the field; D by default.
        forcing_dim: number of inputs, variables of the features like the state.
        generator: draws the hidden layers; torch's global one by default.

    Attributes:
        coefficients: ``[1 + D + forcing_dim + depth * width, outputs]``.
    """

    drawn = True

    def __init__(
        self,
        dim: int,
        width: int = 300,
        *,
        box: tuple[Float[Tensor, " D"], Float[Tensor, " D"]] | None = None,
        depth: int = 1,
        steepness: float = 1.0,
        outputs: int | None = None,
        forcing_dim: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(forcing_dim)
        if width < 1 or depth < 1:
            raise ValueError(
                f"`width` and `depth` must be >= 1; got {width} and {depth}."
            )
        self.dim, self.width, self.depth = dim, width, depth
        self.steepness = steepness
        outputs = check_outputs(dim, outputs)
        self._inputs = dim + forcing_dim
        for layer in range(depth):
            columns = self._inputs + (width if layer else 0)
            empty = torch.zeros(width, columns, dtype=torch.float64)
            self.register_buffer(f"weight_{layer}", empty)
            self.register_buffer(
                f"bias_{layer}", torch.zeros(width, dtype=torch.float64)
            )
        rows = 1 + self._inputs + depth * width
        self.coefficients = nn.Parameter(
            torch.zeros(rows, outputs, dtype=torch.float64)
        )
        ones = torch.ones(self._inputs)
        low, high = (-ones, ones) if box is None else box
        self.redraw(low, high, generator)

    @torch.no_grad()
    def redraw(
        self,
        low: Float[Tensor, " D"],
        high: Float[Tensor, " D"],
        generator: torch.Generator | None = None,
        *,
        maps: Float[Tensor, "G D D"] | None = None,
    ) -> None:
        """Draws the hidden layers anew, for another box or from other numbers.

        With `maps`, the matrices of a group of symmetries of the state, the rows of the
        first layer are drawn in families ``W g``: the features of ``g u`` are those of
        `u` in another order, and a fit to data under all maps commutes with them.
        """
        if len(low) != self._inputs or len(high) != self._inputs:
            raise ValueError(
                f"`low` and `high` must have {self._inputs} entries, state then "
                f"inputs; got {len(low)} and {len(high)}."
            )
        reach = torch.tanh(torch.tensor(CURVED[1], dtype=torch.float64))
        for layer in range(self.depth):
            if layer:
                unit = reach.expand(self.width)
                low = torch.cat([low[: self._inputs].double().cpu(), -unit])
                high = torch.cat([high[: self._inputs].double().cpu(), unit])
            if maps is None or layer:
                w, b = self._rows(low, high, self.width, generator)
            else:
                w, b = self._families(low, high, maps.double().cpu(), generator)
            getattr(self, f"weight_{layer}").copy_(w)
            getattr(self, f"bias_{layer}").copy_(b)

    def _rows(
        self, low: Tensor, high: Tensor, count: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        return hit_and_run(
            low, high, count, steepness=self.steepness, generator=generator
        )

    def _families(
        self,
        low: Tensor,
        high: Tensor,
        maps: Float[Tensor, "G D D"],
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Tensor]:
        if self.width % len(maps) or self.depth > 1:
            raise ValueError(
                f"`width` must be a multiple of the {len(maps)} maps, and `depth` 1; "
                f"got {self.width} and {self.depth}."
            )
        # The box around all images of the box: the property holds for each of them.
        centre, half = (low + high).double().cpu() / 2, (high - low).double().cpu() / 2
        d = self.dim
        middle, reach = maps @ centre[:d], maps.abs() @ half[:d]
        low, high = (centre - half).clone(), (centre + half).clone()
        low[:d], high[:d] = (middle - reach).amin(0), (middle + reach).amax(0)
        w, b = self._rows(low, high, self.width // len(maps), generator)
        rows = torch.cat([torch.cat([w[:, :d] @ g, w[:, d:]], 1) for g in maps])
        return rows, b.repeat(len(maps))

    def draw(
        self,
        states: Float[Tensor, "N D"],
        generator: torch.Generator,
        *,
        inputs: Float[Tensor, "N C"] | None = None,
        maps: Float[Tensor, "G D D"] | None = None,
        whole_group: bool = True,
    ) -> None:
        low, high = states.amin(0), states.amax(0)
        if maps is not None and not whole_group:
            # Without families the features must suit every image of the data.
            low = torch.stack([(states @ g.T).amin(0) for g in maps]).amin(0)
            high = torch.stack([(states @ g.T).amax(0) for g in maps]).amax(0)
            maps = None
        if inputs is not None:
            low = torch.cat([low, inputs.amin(0)])
            high = torch.cat([high, inputs.amax(0)])
        if maps is not None and (self.width % len(maps) or self.depth > 1):
            maps = None
        self.redraw(low, high, generator, maps=maps)

    def equivariant_basis(
        self, maps: Float[Tensor, "G D D"]
    ) -> Float[Tensor, "F D J"] | None:
        """Those of ``C u + sum_j sum_g g^-1 c_j tanh(W_j g u + b_j)``.

        C commutes with the maps. None unless the hidden layer was drawn in families,
        ``redraw(..., maps=maps)``.
        """
        maps = maps.double().cpu()
        d, families, rest = self.dim, *divmod(self.width, len(maps))
        if rest or self.depth > 1:
            return None
        w = self.layers()[0][0].double().cpu()
        images = torch.cat([w[:families] @ g for g in maps])
        if not torch.allclose(w, images, atol=_SAME):
            return None
        low = LibraryField(d, 1, dtype=torch.float64).equivariant_basis(maps)
        inverse = torch.linalg.inv(maps) / len(maps) ** 0.5
        high = torch.zeros(len(maps), families, d, families, d, dtype=torch.float64)
        for j in range(families):
            high[:, j, :, j] = inverse
        basis = torch.zeros(self.n_features, d, low.shape[2] + families * d).double()
        basis[: 1 + d, :, : low.shape[2]] = low
        basis[1 + d :, :, low.shape[2] :] = high.reshape(self.width, d, families * d)
        return basis

    def layers(self) -> list[tuple[Float[Tensor, "R I"], Float[Tensor, " R"]]]:
        """Weights and biases of the hidden layers, first layer first."""
        return [
            (getattr(self, f"weight_{n}"), getattr(self, f"bias_{n}"))
            for n in range(self.depth)
        ]

    def _hidden(self, z: Float[Tensor, "*batch I"]) -> list[Tensor]:
        values: list[Tensor] = []
        for w, b in self.layers():
            seen = torch.cat([z, values[-1]], dim=-1) if values else z
            values.append(_tanh_of_half(nn.functional.linear(seen, 2 * w, 2 * b)))
        return values

    def features(
        self, u: Float[Tensor, "*batch D"], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "*batch J"]:
        """The values ``[1, u, x, h_1, ..., h_depth]``."""
        z = u if x is None else torch.cat([u, x], dim=-1)
        return torch.cat([torch.ones_like(z[..., :1]), z, *self._hidden(z)], dim=-1)

    def combined(
        self,
        u: Float[Tensor, "*batch D"],
        basis: Float[Tensor, "J K"],
        weights: Float[Tensor, " P"] | None = None,
    ) -> Float[Tensor, "*rest K"]:
        if self.depth > 1 or torch.is_grad_enabled():
            return super().combined(u, basis, weights)
        # In place and in the cache, with ``tanh(x) = 2 sigmoid(2 x) - 1``.
        (w, b), top = self.layers()[0], basis[1 + self._inputs :]
        points = u[None] if weights is None else u
        shares = [1.0] if weights is None else weights.tolist()
        rows = points.reshape(len(points), -1, self.dim)
        parts = []
        for part in rows.split(max(1, _SLICE // self.width), dim=1):
            total = part.new_zeros(part.shape[1], self.width)
            for point, share in zip(part, shares, strict=True):
                s = nn.functional.linear(point, 2 * w, 2 * b).sigmoid_()
                total.add_(s, alpha=share)
            parts.append(total @ (2 * top))
        straight = (
            torch.tensordot(rows.new_tensor(shares), rows, 1) @ basis[1:][: self.dim]
        )
        level = sum(shares) * (basis[0] - top.sum(0))
        return (torch.cat(parts) + straight + level).reshape(*points.shape[1:-1], -1)

    def with_heads(
        self, heads: Float[Tensor, "R J O"]
    ) -> Callable[[Float[Tensor, "R B D"]], Float[Tensor, "R B D"]]:
        if self.depth > 1 or self.forcing_dim or torch.is_grad_enabled():
            return super().with_heads(heads)
        # In place, with ``tanh(x) = 2 sigmoid(2 x) - 1``.
        (w, b), top = self.layers()[0], heads[:, 1 + self.dim :]
        straight, level = heads[:, 1 : 1 + self.dim], heads[:, :1] - top.sum(1, True)
        slope, doubled = 2 * w.T, 2 * top

        def values(u: Float[Tensor, "R B D"]) -> Float[Tensor, "R B D"]:
            s = torch.addmm(2 * b, u.flatten(0, 1), slope).sigmoid_()
            flat = torch.baddbmm(level, u, straight)
            return flat.baddbmm_(s.unflatten(0, u.shape[:2]), doubled)

        return values

    def jacobian(
        self, u: Float[Tensor, "*batch D"], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "*batch O D"]:
        """``C_u^T + sum_i C_i^T diag(1 - h_i^2) W_i ...``, layers from the last on."""
        z = u if x is None else torch.cat([u, x], dim=-1)
        return self._slope(self._hidden(z))

    def at(
        self, u: Float[Tensor, "*batch D"], x: Float[Tensor, "*batch C"] | None = None
    ) -> Float[Tensor, "*batch O"]:
        z = u if x is None else torch.cat([u, x], dim=-1)
        if self.depth == 1 and not torch.is_grad_enabled():
            return self._shallow_value(z, self._sigmoids(z))
        return self._value(z, self._hidden(z))

    def value_and_jacobian(
        self, u: Float[Tensor, "*batch D"]
    ) -> tuple[Float[Tensor, "*batch O"], Float[Tensor, "*batch O D"]]:
        """:meth:`at` and :meth:`jacobian` without inputs, hidden layers once."""
        if self.depth == 1 and not torch.is_grad_enabled():
            return self._shallow(u)
        hidden = self._hidden(u)
        return self._value(u, hidden), self._slope(hidden)

    def _value(
        self, z: Float[Tensor, "*batch I"], hidden: list[Tensor]
    ) -> Float[Tensor, "*batch O"]:
        """The head's product with all features, which are never put side by side."""
        head = self.coefficients
        value = nn.functional.linear(z, head[1 : 1 + self._inputs].T, head[0])
        heads = head[1 + self._inputs :].split(self.width)
        for h, part in zip(hidden, heads, strict=True):
            value = value + h @ part
        return value

    def _sigmoids(self, z: Float[Tensor, "*batch I"]) -> Float[Tensor, "R M"]:
        """``sigmoid(2 x)`` of the inputs x of one layer; ``tanh(x)`` is twice it - 1.

        Units along the first axis: products with few outputs are faster so.
        """
        w, b = self.layers()[0]
        rows = z.reshape(-1, self._inputs)
        return torch.addmm(2 * b[:, None], 2 * w, rows.T).sigmoid_()

    def _shallow_value(
        self, z: Float[Tensor, "*batch I"], s: Float[Tensor, "R M"]
    ) -> Float[Tensor, "*batch O"]:
        head = self.coefficients
        straight, top = head[1 : 1 + self._inputs], head[1 + self._inputs :]
        bent = (2 * top.T @ s).T.reshape(*z.shape[:-1], -1)
        return nn.functional.linear(z, straight.T, head[0] - top.sum(0)) + bent

    def _shallow(
        self, u: Float[Tensor, "*batch D"]
    ) -> tuple[Float[Tensor, "*batch O"], Float[Tensor, "*batch O D"]]:
        """Of one layer, in place: most of the time of a smoother is spent here.

        The slope of ``tanh(x)`` is ``4 (s - s^2)`` for ``s = sigmoid(2 x)``.
        """
        w, head = self.layers()[0][0], self.coefficients
        straight, top = head[1 : 1 + self.dim], head[1 + self._inputs :]
        pairs = (4 * top[:, :, None] * w[:, None, : self.dim]).flatten(1)
        s = self._sigmoids(u)
        value = self._shallow_value(u, s)
        slope = (pairs.T @ s.addcmul_(s, s, value=-1)).T
        return value, straight.T + slope.reshape(*value.shape, self.dim)

    def _slope(self, hidden: list[Tensor]) -> Float[Tensor, "*batch O D"]:
        head = self.coefficients
        straight = head[1 : 1 + self.dim].T
        heads = head[1 + self._inputs :].split(self.width)
        slopes = [1 - h.square() for h in hidden]
        weights = [w for w, _ in self.layers()]
        if self.depth == 1:
            # One product of matrices for all samples: the slopes are all that varies.
            pairs = heads[0][:, :, None] * weights[0][:, None, : self.dim]
            return straight + (slopes[0] @ pairs.flatten(1)).unflatten(
                -1, (head.shape[1], self.dim)
            )
        total, back = straight, heads[-1].T
        for layer in reversed(range(self.depth)):
            back = back * slopes[layer][..., None, :]
            total = total + back @ weights[layer][:, : self.dim]
            if layer:
                back = heads[layer - 1].T + back @ weights[layer][:, self._inputs :]
        return total


def make_features(
    config: FieldConfig, dim: int, forcing_dim: int, outputs: int | None = None
) -> RandomFeatureField:
    """Random features of `dim` variables and the inputs, drawn for the unit box.

    The data draw them anew, see :meth:`LinearField.draw`.
    """
    return RandomFeatureField(
        dim,
        config.features,
        depth=config.depth,
        steepness=1.0 if config.steepness is None else config.steepness,
        outputs=outputs,
        forcing_dim=forcing_dim,
        generator=torch.Generator().manual_seed(0),
    )


def count_features(config: FieldConfig) -> int:
    """Number of weights between the units of its layers, and one a unit."""
    return config.features * (1 + config.features * (config.depth - 1))


FIELDS.add(
    "features",
    FieldKind(
        lambda config, shape, inputs, _: make_features(config, shape[0], inputs),
        lambda config, shape, inputs: count_features(config),
        linear=True,
        drawn=True,
    ),
)
