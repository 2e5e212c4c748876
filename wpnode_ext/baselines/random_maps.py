"""Random feature maps, shallow and deep, with and without skip connections.

One-step maps whose inner weights are drawn by hit-and-run and whose outer weights solve
a ridge regression, layer after layer (Mandal and Gottwald, 2025).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..data import Series
from ..fields import hit_and_run
from ..weak.segments import gap_free_runs, window_starts
from .base import Learned
from .evaluations import tally
from .held_out import HeldOut
from .local import RingGroups
from .maps import MapBaseline
from .progress import progress
from .random_map import RandomFeatureMap
from .ridge import RidgeRegression

# Ridges tried where none is given: clean data want the smallest, noisy the largest.
GRID: tuple[float, ...] = tuple(10.0 ** (n / 2) for n in range(-20, 9))
# Numbers in a block of features: 64 MB.
_BLOCK = 1 << 23


@dataclass(kw_only=True, eq=False)
class RFM(MapBaseline):
    """Random feature map ``u_{n+1} = C tanh(W u_n + b)``, C by ridge regression.

    Args:
        width: features D_r.
        ridge: ridge beta of ``|C R - Y|^2 + beta |C|^2``; by default the one of `GRID`
            whose forecasts of held-out data are best.
        group, reach: local map: groups of `group` components on a ring, each predicted
            from itself and `reach` groups on either side by one shared map. The paper
            of the method takes (2, 2) for Lorenz-96.
        pool: learn a local map from all groups; False takes the middle one, as the
            authors' program does.
        jitter: standard deviation of noise added to the data once, in units of their
            root mean square; 1e-3 stabilises the maps of Kuramoto-Sivashinsky.
    """

    name: ClassVar[str] = "rfm"
    skip: ClassVar[bool] = False
    carry: ClassVar[bool] = False

    width: int = 300
    ridge: float | None = None
    group: int | None = None
    reach: int = 2
    pool: bool = True
    jitter: float = 0.0

    def _learn(self, series: Series, validation: Series | None) -> Learned:
        judge: HeldOut | None = None
        if self.ridge is None:
            series, judge = self._split(series, validation)
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
        for layer in progress(
            range(module.depth), module.depth, self.verbose, "layers"
        ):
            system = self._system(module, layer, x, y, target)
            if beta is None:
                beta = self._choose(recipe, module, system, judge)
            module.c[layer] = system.solve(beta)
            y = torch.cat(
                [
                    module.apply_layer(layer, a, b)
                    for a, b in zip(x.split(4096), y.split(4096), strict=True)
                ]
            )
            # Once for the rows of the system, once for what the layer makes of them.
            tally(2 * len(x) // module.groups.count)
        assert beta is not None
        self.ridge_ = beta
        return module, recipe

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

    def _draw(
        self, module: RandomFeatureMap, v: Tensor, generator: torch.Generator
    ) -> None:
        """Inner weights over the box of the data, which `y` is taken to share."""
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
        runs = gap_free_runs(
            series.n_samples, lengths=series.lengths, missing=series.missing
        )
        first = window_starts(runs, 2)
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

    def _choose(
        self,
        recipe: dict[str, Any],
        module: RandomFeatureMap,
        system: RidgeRegression,
        judge: HeldOut | None,
    ) -> float:
        """The ridge of best held-out forecasts by the first layer alone."""
        if judge is None:
            raise ValueError(
                "`ridge` must be given where no data can be held out to choose it by."
            )
        one = self._build(recipe | {"depth": 1})
        one.w[0], one.b[0] = module.w[0], module.b[0]
        errors = []
        for beta in progress(GRID, len(GRID), self.verbose, "ridges"):
            one.c[0] = system.solve(beta)
            errors.append(judge(self._step(one, module.dt)))
        self.ridge_errors_ = dict(zip(GRID, errors, strict=True))
        return min(self.ridge_errors_, key=self.ridge_errors_.__getitem__)


@dataclass(kw_only=True, eq=False)
class SkipRFM(RFM):
    """``u_{n+1} = u_n + C tanh(W u_n + b)``; arguments as in :class:`RFM`."""

    name: ClassVar[str] = "skiprfm"
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

    name: ClassVar[str] = "deeprfm"
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

    Each layer is fitted to what those before it left; arguments as in
    :class:`DeepRFM`.
    """

    name: ClassVar[str] = "deepskip"
    skip: ClassVar[bool] = True
