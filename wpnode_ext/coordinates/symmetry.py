"""Linear maps that take solutions of a system to solutions: symmetries of its field.

For such a map g, ``f(g u) = g f(u)``. Every observation then counts once for every map.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

# Most maps of a group; generators with more products may make an infinite group.
LARGEST_GROUP = 4096
# Largest entry of ``g g^T - 1`` for which a map counts as orthogonal.
ORTHOGONAL_TOLERANCE = 1e-8


class Symmetry:
    """A finite group of linear maps of the state, the identity among them.

    Args:
        generators: matrices ``[D, D]``; all their products are in the group.

    Attributes:
        matrices: maps that a fit applies, float64 ``[G, D, D]``, the identity first.
        group: all maps; after :meth:`sample` more than `matrices`.

    Example:
        >>> Symmetry.reflection(signs=[-1, -1, 1])        # Lorenz-63
        >>> Symmetry.shifts(40)                           # Lorenz-96
        >>> Symmetry.shifts(64) * Symmetry.mirror(64, sign=-1)  # Kuramoto-Sivashinsky
    """

    def __init__(self, generators: Sequence[Float[Tensor, "D D"]]) -> None:
        if not generators:
            raise ValueError("`generators` must hold at least one matrix; got none.")
        maps = [torch.as_tensor(g, dtype=torch.float64) for g in generators]
        dim = len(maps[0])
        if any(g.shape != (dim, dim) for g in maps):
            raise ValueError(
                "`generators` must be square matrices of one size; "
                f"got {[list(g.shape) for g in maps]}."
            )
        self.matrices: Float[Tensor, "G D D"] = _closure(maps)
        self.group: Float[Tensor, "H D D"] = self.matrices
        self._generators = maps

    @classmethod
    def reflection(cls, signs: Sequence[float]) -> "Symmetry":
        """Changes the sign of some components: ``u_i -> signs[i] u_i``."""
        return cls([torch.diag(torch.tensor(list(signs), dtype=torch.float64))])

    @classmethod
    def shifts(cls, sites: int, step: int = 1) -> "Symmetry":
        """Moves a ring by multiples of `step` sites."""
        return cls([torch.eye(sites, dtype=torch.float64).roll(step, 0)])

    @classmethod
    def mirror(cls, sites: int, sign: float = 1.0) -> "Symmetry":
        """Reads a ring backwards and multiplies it: ``u_s -> sign u_{-s}``."""
        return cls([sign * torch.eye(sites, dtype=torch.float64).flip(0).roll(1, 0)])

    @classmethod
    def named(cls, text: str, dim: int) -> "Symmetry":
        """Reads "shifts", "mirror" and "odd_mirror", joined by "+", or "-,-,+"."""
        words = [word.strip() for word in text.split("+")]
        known = {
            "shifts": lambda: cls.shifts(dim),
            "mirror": lambda: cls.mirror(dim),
            "odd_mirror": lambda: cls.mirror(dim, sign=-1.0),
        }
        if all(word in known for word in words):
            made = [known[word]() for word in words]
            return cls([g for part in made for g in part._generators])
        signs = [sign.strip() for sign in text.split(",")]
        if len(signs) != dim or any(sign not in ("+", "-") for sign in signs):
            raise ValueError(
                f"`symmetry` must be words of {sorted(known)} joined by '+', or "
                f"{dim} signs like '-,-,+'; got {text!r}."
            )
        return cls.reflection([1.0 if sign == "+" else -1.0 for sign in signs])

    @property
    def dim(self) -> int:
        return self.matrices.shape[1]

    @property
    def is_group(self) -> bool:
        """True if `matrices` holds the whole group, not a random sample of it."""
        return len(self.matrices) == len(self.group)

    @property
    def is_orthogonal(self) -> bool:
        """True if all maps are orthogonal, so that fits weigh all images alike."""
        eye = torch.eye(self.dim, dtype=self.group.dtype)
        away = (self.group @ self.group.mT - eye).abs()
        return bool((away < ORTHOGONAL_TOLERANCE).all())

    def __len__(self) -> int:
        return len(self.matrices)

    def __mul__(self, other: "Symmetry") -> "Symmetry":
        """The group that both generate together."""
        return Symmetry([*self._generators, *other._generators])

    def sample(self, n: int, generator: torch.Generator | None = None) -> "Symmetry":
        """The identity and ``n - 1`` random maps: no group, but cheaper to fit under.

        A fit under some of the maps comes closer to the symmetry without reaching it.
        Scalers of the data still use the whole group.
        """
        if n >= len(self):
            return self
        others = torch.randperm(len(self) - 1, generator=generator)[: max(0, n - 1)]
        part = self._with(lambda g: g)
        part.matrices = torch.cat([self.matrices[:1], self.matrices[1 + others]])
        return part

    def in_coordinates(
        self, encode: Float[Tensor, "M D"], decode: Float[Tensor, "D M"]
    ) -> "Symmetry":
        """The maps acting on ``a = encode @ u``, whose span they must preserve.

        Raises:
            ValueError: a map takes states out of the span of the coordinates.
        """
        encode, decode = encode.double().cpu(), decode.double().cpu()
        moved = encode @ self.group @ decode
        lost = (self.group @ decode - decode @ moved).norm() / decode.norm()
        if lost > 1e-8 * len(self.group) ** 0.5:
            raise ValueError(
                "`encode` and `decode` must span a space that the symmetry maps to "
                f"itself; a share {lost:.2g} leaves it. Use Fourier coordinates for "
                "shifts, or more coordinates."
            )
        return self._with(lambda g: encode @ g @ decode)

    def scaled(
        self, shift: Float[Tensor, " D"], scale: Float[Tensor, " D"]
    ) -> "Symmetry":
        """The maps acting on ``s = (u - shift) / scale``, about a fixed point."""
        shift, scale = (
            torch.as_tensor(x, dtype=torch.float64).cpu().expand(self.dim)
            for x in (shift, scale)
        )
        self.check_fixed(shift, scale.max().item())
        return self._with(lambda g: g * (scale / scale[:, None]))

    def check_fixed(self, shift: Float[Tensor, " D"], size: float) -> None:
        """Raises unless a state is fixed by every map, up to the rounding of `size`.

        The maps act linearly on scaled coordinates only if `shift` is a fixed point.
        """
        away = (self.group @ shift - shift).abs().max()
        if away > 1e-9 * (shift.abs().max() + size):
            raise ValueError(
                f"`shift` must be the same under every map; one moves it by {away:.2g}."
                " Take shift and scale from `statistics`."
            )

    def statistics(
        self, v: Float[Tensor, "N D"]
    ) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
        """Mean and standard deviation of the data under all maps of the group.

        The mean is the same under every map, and so is the scaling of the state where
        maps exchange components, change their signs or rotate pairs of them.
        """
        centre = v.double().mean(0)
        spread = torch.cov(v.double().T, correction=0).reshape(self.dim, self.dim)
        spread = spread + centre[:, None] * centre
        mean = (self.group @ centre).mean(0)
        second = (self.group @ spread @ self.group.mT).mean(0).diagonal()
        return mean, (second - mean.square()).clamp(min=0.0).sqrt()

    def _with(self, change: Callable[[Tensor], Tensor]) -> "Symmetry":
        """A symmetry with every map replaced by ``change(map)``."""
        made = object.__new__(Symmetry)
        made.group = change(self.group)
        made.matrices = change(self.matrices) if not self.is_group else made.group
        made._generators = [change(g) for g in self._generators]
        return made


def _closure(generators: list[Tensor]) -> Float[Tensor, "G D D"]:
    """All products of the generators."""
    identity = torch.eye(len(generators[0]), dtype=torch.float64)
    found, fresh = {_key(identity): identity}, [identity]
    while fresh:
        reached = []
        for known in fresh:
            for g in generators:
                product = g @ known
                key = _key(product)
                if key not in found:
                    found[key] = product
                    reached.append(product)
        if len(found) > LARGEST_GROUP:
            raise ValueError(
                f"`generators` must make a finite group; more than "
                f"{LARGEST_GROUP} products are different. Give maps of finite order."
            )
        fresh = reached
    return torch.stack(list(found.values()))


def _key(matrix: Tensor) -> bytes:
    """A key that is equal for matrices equal up to rounding."""
    # Adding zero turns -0 into 0.
    return (matrix * 1e6).round().add(0.0).numpy().tobytes()
