"""Random feature maps, shallow and deep, with and without skip connections.

One-step maps whose inner weights are drawn by hit-and-run and whose outer weights solve
a ridge regression, layer after layer (Mandal and Gottwald, 2025).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..closed_form.rows import Gram, Rows, Spectrum, Triangle
from ..data import Series
from ..fields import RingGroups, hit_and_run
from ..systems import preset
from ..training import ForecastValidation
from ..weak.segments import window_starts
from .base import Learned, judge_of
from .evaluations import tally
from .maps import MapBaseline

# Entries in a block of features: 64 MB.
_BLOCK = 1 << 23
# Rows to which a fitted layer is applied at a time.
_CHUNK = 4096


class RandomFeatureMap(nn.Module):
    """The slope ``(Psi(u) - u) / dt`` of a layered random feature map.

    With ``y_0 = u`` (its own group, for local maps), layers ``i = 1 .. depth`` give ::

        y_i = skip * y_{i-1} + C_i tanh(W_i z + b_i),   Psi(u) = y_depth

    and ``z = [u, y_{i-1}]`` for deep maps, ``z = u`` otherwise.

    Args:
        dim: size D of the state.
        dt: distance of the samples.
        width: features D_r of a layer.
        depth: number of layers.
        skip: add the output of the layer before.
        carry: let each layer see the output of the layer before besides the state.
        group, reach: of a local map, see :class:`RingGroups`.
    """

    w: Tensor
    b: Tensor
    c: Tensor

    def __init__(
        self,
        dim: int,
        dt: float,
        width: int,
        depth: int,
        *,
        skip: bool,
        carry: bool,
        group: int | None = None,
        reach: int = 0,
    ) -> None:
        super().__init__()
        self.groups = RingGroups(dim, group, reach)
        self.dt, self.depth, self.skip, self.carry = dt, depth, skip, carry
        columns = self.groups.seen + carry * self.groups.size
        shapes = {"w": (width, columns), "b": (width,), "c": (width, self.groups.size)}
        for name, shape in shapes.items():
            empty = torch.zeros(depth, *shape, dtype=torch.float64)
            self.register_buffer(name, empty)

    def features(
        self,
        layer: int,
        x: Float[Tensor, "*r seen"],
        y: Float[Tensor, "*r G"],
    ) -> Float[Tensor, "*r width"]:
        """``tanh(W_i z + b_i)``."""
        z = torch.cat([x, y], dim=-1) if self.carry else x
        return torch.tanh(nn.functional.linear(z, self.w[layer], self.b[layer]))

    def apply_layer(
        self, layer: int, x: Float[Tensor, "*r seen"], y: Float[Tensor, "*r G"]
    ) -> Float[Tensor, "*r G"]:
        """``y_i`` from the inputs x of the groups and ``y_{i-1}``."""
        change = self.features(layer, x, y) @ self.c[layer]
        return y + change if self.skip else change

    def forward(self, t: Tensor | float, u: Float[Tensor, "*b D"]) -> Tensor:
        tally(prod(u.shape[:-1]))
        x, own = self.groups.inputs(u), self.groups.own(u)
        if self.skip:
            # The change alone is summed, so that dividing by dt loses no digits.
            y, change = own, torch.zeros_like(own)
            for layer in range(self.depth):
                change = change + self.features(layer, x, y) @ self.c[layer]
                y = own + change
        else:
            y = own
            for layer in range(self.depth):
                y = self.apply_layer(layer, x, y)
            change = y - own
        return change.flatten(-2) / self.dt


class RidgeRegression:
    """``argmin |A c - y|^2 + beta |c|^2`` for any `beta`, from blocks of rows.

    Feature matrices of random features have condition numbers near 1e13 in their
    normal equations, so a triangular factor of the rows is kept (float64) unless the
    problem is large.

    Args:
        n_rows, n_columns: expected size of A.
        qr_work: multiplications ``n_rows n_columns^2`` up to which the triangular
            factor is kept; beyond, the normal equations.
    """

    def __init__(self, n_rows: int, n_columns: int, qr_work: float = 1e11) -> None:
        small = n_rows * n_columns**2 <= qr_work
        self._rows: Rows = Triangle() if small else Gram()
        self._factors: tuple[Tensor, Tensor, Tensor] | None = None

    def add(self, a: Float[Tensor, "M J"], y: Float[Tensor, "M O"]) -> None:
        """Adds M rows."""
        self._rows.add(a, y)
        self._factors = None

    def solve(self, beta: float) -> Float[Tensor, "J O"]:
        """The coefficients; without a ridge those of least norm."""
        if self._factors is None:
            a, b = square_system(self._rows.spectrum())
            u, s, vh = torch.linalg.svd(a)
            self._factors = (s, vh.T, u.T @ b)
        s, v, b = self._factors
        resolved = s > len(s) * torch.finfo(s.dtype).eps * s[0]
        gain = torch.where(resolved, s / (s.square() + beta), 0.0)
        return v @ (gain[:, None] * b)


def square_system(
    kept: Spectrum,
) -> tuple[Float[Tensor, "J J"], Float[Tensor, "J O"]]:
    """J rows with the same normal equations as all rows behind a spectrum."""
    root = sqrt(kept.n_rows)
    return root * kept.s[:, None] * kept.v.T * kept.rms, root * kept.b


@dataclass(kw_only=True, eq=False)
class RFM(MapBaseline):
    """Random feature map ``u_{n+1} = C tanh(W u_n + b)``, C by ridge regression.

    Args:
        width: features D_r.
        ridge: ridge beta of ``|C R - Y|^2 + beta |C|^2``; by default the one of
            `ridges` whose forecasts of held-out data are best.
        ridges: the candidates: clean data want the smallest, noisy ones the largest.
        group, reach: local map: groups of `group` components on a ring, each predicted
            from itself and `reach` groups on either side by one shared map. The paper
            of the method takes (2, 2) for Lorenz-96.
        pool: learn a local map from all groups; False takes the middle one, as the
            authors' program does.
        jitter: standard deviation of noise added to the data once, in units of their
            root mean square; 1e-3 stabilises the maps of Kuramoto-Sivashinsky.

    Attributes:
        ridge_: the ridge that was used.
        ridge_errors_: error of the forecasts by ridge, where it was chosen.
    """

    skip: ClassVar[bool] = False
    carry: ClassVar[bool] = False

    width: int = 300
    ridge: float | None = None
    ridges: Sequence[float] = tuple(10.0 ** (n / 2) for n in range(-20, 9))
    group: int | None = None
    reach: int = 2
    pool: bool = True
    jitter: float = 0.0

    @classmethod
    def _settings_for(cls, system: str) -> dict[str, Any]:
        return dict(preset(system).groups)

    @classmethod
    def _build(cls, recipe: dict[str, Any]) -> RandomFeatureMap:
        return RandomFeatureMap(**recipe)

    @property
    def _per(self) -> Any:  # type: ignore[override]
        return "component" if self.group is None else "whole"

    def _layers(self) -> int:
        return 1

    def _shared(self) -> bool:
        return True

    def _learn(self, series: Series, validation: Series | None) -> Learned:
        held: Series | None = None
        if self.ridge is None:
            series, held = self._split(series, validation)
        assert series.dt is not None
        recipe: dict[str, Any] = {
            "dim": series.v.shape[1],
            "dt": series.dt,
            "width": self.width,
            "depth": self._layers(),
            "skip": self.skip,
            "carry": self.carry,
            "group": self.group,
            "reach": self.reach,
        }
        module = self._build(recipe)
        generator = self._generator()
        self._draw(module, series.v.double(), generator)
        x, y, target = self._pairs(module.groups, series, generator)
        beta = self.ridge
        for layer in self._progress(range(module.depth), module.depth, "layers"):
            system = self._system(module, layer, x, y, target)
            if beta is None:
                beta = self._choose_ridge(recipe, module, system, held)
            module.c[layer] = system.solve(beta)
            parts = zip(x.split(_CHUNK), y.split(_CHUNK), strict=True)
            y = torch.cat([module.apply_layer(layer, a, b) for a, b in parts])
            # Each layer computes its features twice: to be solved, and to be applied.
            tally(2 * len(x) // module.groups.count)
        assert beta is not None
        self.ridge_ = beta
        return module, recipe

    def _draw(
        self, module: RandomFeatureMap, v: Tensor, generator: torch.Generator
    ) -> None:
        """Draws inner weights for the box of the data, in which `y` lies as well."""
        low, high = v.amin(0), v.amax(0)
        if self.group is not None:
            low, high = low.amin().expand_as(low), high.amax().expand_as(high)
        seen, size = module.groups.seen, module.groups.size
        low = torch.cat([low[:seen], low[:size]])[: module.w.shape[2]]
        high = torch.cat([high[:seen], high[:size]])[: module.w.shape[2]]
        for layer in range(module.depth):
            if layer and self._shared():
                module.w[layer], module.b[layer] = module.w[0], module.b[0]
            else:
                w, b = hit_and_run(low, high, self.width, generator=generator)
                module.w[layer], module.b[layer] = w, b

    def _pairs(
        self, groups: RingGroups, series: Series, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs ``[R, seen]``, own components and their next values ``[R, G]``."""
        v = series.v.double()
        if self.jitter:
            size = self.jitter * v.square().mean().sqrt()
            v = v + size * torch.randn(v.shape, generator=generator).double()
        first = window_starts(series.runs, 2)
        if len(first) == 0:
            raise ValueError("`v` must have two samples in a row; it has none.")
        middle = groups.count // 2
        which = slice(None) if self.pool else slice(middle, middle + 1)
        x = groups.inputs(v[first])[:, which].flatten(0, 1)
        y = groups.own(v[first])[:, which].flatten(0, 1)
        target = groups.own(v[first + 1])[:, which].flatten(0, 1)
        return x, y, target

    def _system(
        self, module: RandomFeatureMap, layer: int, x: Tensor, y: Tensor, target: Tensor
    ) -> RidgeRegression:
        system = RidgeRegression(len(x), self.width)
        rows = max(self.width, _BLOCK // self.width)
        wanted = target - y if self.skip else target
        parts = (x.split(rows), y.split(rows), wanted.split(rows))
        for a, b, c in zip(*parts, strict=True):
            system.add(module.features(layer, a, b), c)
        return system

    def _choose_ridge(
        self,
        recipe: dict[str, Any],
        module: RandomFeatureMap,
        system: RidgeRegression,
        held: Series | None,
    ) -> float:
        """The ridge whose first layer alone forecasts the held-out data best."""
        if held is None:
            raise ValueError(
                "`ridge` must be given where no data can be held out to choose it by."
            )
        judge: ForecastValidation = judge_of(held)
        one = self._build(recipe | {"depth": 1})
        one.w[0], one.b[0] = module.w[0], module.b[0]
        self.ridge_errors_: dict[float, float] = {}
        for beta in self._progress(self.ridges, len(self.ridges), "ridges"):
            one.c[0] = system.solve(beta)
            self.ridge_errors_[beta] = judge.error_of_map(self._step(one, module.dt))
        return min(self.ridge_errors_, key=self.ridge_errors_.__getitem__)


@dataclass(kw_only=True, eq=False)
class SkipRFM(RFM):
    """``u_{n+1} = u_n + C tanh(W u_n + b)``; arguments as in :class:`RFM`."""

    skip: ClassVar[bool] = True


@dataclass(kw_only=True, eq=False)
class DeepRFM(RFM):
    """Layers ``y_i = C_i tanh(W_i [u_n, y_{i-1}] + b_i)``, solved one after another.

    Args:
        depth: number B of layers. The ridge found for one layer serves all.
        shared_inner: all layers have the same inner weights, as in the authors'
            program; False draws each anew.

    The other arguments are those of :class:`RFM`.
    """

    carry: ClassVar[bool] = True

    depth: int = 4
    shared_inner: bool = True

    def _layers(self) -> int:
        return self.depth

    def _shared(self) -> bool:
        return self.shared_inner


@dataclass(kw_only=True, eq=False)
class DeepSkip(DeepRFM):
    """Layers ``y_i = y_{i-1} + C_i tanh(W_i [u_n, y_{i-1}] + b_i)``, ``y_0 = u_n``.

    Each layer is fitted to the residual of those before it; arguments as in
    :class:`DeepRFM`.
    """

    skip: ClassVar[bool] = True
