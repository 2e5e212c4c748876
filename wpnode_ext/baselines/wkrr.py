"""Weak-form kernel ridge regression on filtered data (Kreider, Harlim and Huang)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .. import ops
from ..data import Series
from ..training import ForecastValidation
from ..weak.test_functions import PolynomialBump
from .base import Learned, judge_of
from .evaluations import tally
from .maps import MapBaseline

# Samples of a block of kernel values.
_BLOCK = 2048


class KernelMap(nn.Module):
    """The slope ``k(u, Z) alpha / dt`` with ``k(x, z) = exp(-|x - z|^2 / (4 eps))``.

    Args:
        dim: size D of the state.
        centres: number J of centres Z.
        dt: distance of the samples.
    """

    z: Tensor
    alpha: Tensor
    eps: Tensor

    def __init__(self, dim: int, centres: int, dt: float) -> None:
        super().__init__()
        self.dt = dt
        self.register_buffer("z", torch.zeros(centres, dim, dtype=torch.float64))
        self.register_buffer("alpha", torch.zeros(centres, dim, dtype=torch.float64))
        self.register_buffer("eps", torch.ones((), dtype=torch.float64))

    def forward(self, t: Tensor | float, u: Float[Tensor, "*b D"]) -> Tensor:
        tally(prod(u.shape[:-1]))
        return kernel(u, self.z, self.eps.item()) @ self.alpha / self.dt


@dataclass(kw_only=True, eq=False)
class WKRR(MapBaseline):
    """``u_{n+1} = u_n + k(u_n, Z) alpha`` from bump averages of filtered increments.

    The data are filtered by projection on translated bumps; with W the matrix of the
    same bumps, K the kernel of the filtered states and Y their increments,
    ``alpha = W^T (W K W^T + lambda I)^-1 W Y``.

    Args:
        eps: width of the kernel ``exp(-|x - x'|^2 / (4 eps))`` in squared units of the
            scaled states; by default chosen by forecasts of held-out data.
        ridge: lambda in units of the mean diagonal of ``W K W^T``, 0 for the solution
            of least norm; by default chosen with `eps`.
        widths: candidates for `eps` in units of the median squared distance of states.
        ridges: candidates for `ridge`.
        finer: factors of the best pair that are tried next.
        horizon, starts: samples of these forecasts and their number, as in the authors'
            program.
        centres: most centres of the kernel; longer records are thinned evenly to this
            number of samples (Nystroem).
        filtered_inputs: evaluate the kernel at filtered states; False takes the data.

    The other arguments are those of :class:`Baseline`.

    Attributes:
        eps_, ridge_: those that were used.
    """

    eps: float | None = None
    ridge: float | None = None
    widths: Sequence[float] = tuple(10.0 ** (n / 2) for n in range(-3, 5))
    ridges: Sequence[float] = tuple(10.0**n for n in range(-12, 0))
    finer: Sequence[float] = (10**-0.25, 1.0, 10**0.25)
    horizon: int = 200
    starts: int = 20
    centres: int = 1000
    filtered_inputs: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("eps")
        self._check_least(ridge=0.0, centres=1, horizon=1, starts=1)

    @torch.no_grad()
    def _learn(self, series: Series, validation: Series | None) -> Learned:
        self._choose_filter(series)
        judge = None
        if self.eps is None or self.ridge is None:
            series, held = self._split(series, validation)
            if held is None:
                raise ValueError(
                    "`eps` and `ridge` must be given where no data can be held out to "
                    "choose them by."
                )
            judge = judge_of(held, horizon=self.horizon, starts=self.starts)
        problem = self._problem(series)
        assert series.dt is not None
        z = problem.x
        if len(z) > self.centres:
            z = z[torch.linspace(0, len(z) - 1, self.centres).round().long()]
        recipe = {"dim": z.shape[1], "centres": len(z), "dt": series.dt}
        module = self._build(recipe)
        module.z = z
        spread = torch.pdist(z[:: max(1, len(z) // 500)]).square().median().item()
        widths = [spread * width for width in self.widths]
        best = self._search(module, problem, judge, widths, self.ridges)
        if judge is not None:
            around = [[middle * x for x in self.finer] for middle in best]
            best = self._search(module, problem, judge, *around)
        self.eps_, self.ridge_ = best
        module.eps.fill_(best[0])
        module.alpha = problem.solve(z, *best)
        return module, recipe

    @classmethod
    def _build(cls, recipe: dict[str, Any]) -> KernelMap:
        return KernelMap(**recipe)

    def _search(
        self,
        module: KernelMap,
        problem: "WeakKernelProblem",
        judge: ForecastValidation | None,
        widths: Sequence[float],
        ridges: Sequence[float],
    ) -> tuple[float, float]:
        """The width and ridge of best forecasts; given ones are the only candidates."""
        pairs = list(
            product(
                widths if self.eps is None else [self.eps],
                ridges if self.ridge is None else [self.ridge],
            )
        )
        if judge is None or len(pairs) == 1:
            return pairs[0]
        errors = {}
        for eps, ridge in self._progress(pairs, len(pairs), "kernels"):
            module.eps.fill_(eps)
            module.alpha = problem.solve(module.z, eps, ridge)
            errors[eps, ridge] = judge.error_of_map(self._step(module, module.dt))
        return min(errors, key=errors.__getitem__)

    def _problem(self, series: Series) -> "WeakKernelProblem":
        smooth = self._filtered(series)
        weak = self._settings().weak
        runs = [
            (first, stop) for first, stop in series.runs if stop - first > weak.ell + 2
        ]
        if not runs:
            raise ValueError(
                f"`v` must have {weak.ell + 3} samples without a gap; it has fewer."
            )
        inputs = smooth.v if self.filtered_inputs else series.v.double()
        first = torch.cat([torch.arange(a, b - 1) for a, b in runs])
        starts, begin = [], 0
        q = self._q_filter or max(1, weak.ell // 6)
        for a, b in runs:
            starts.append(begin + torch.arange(0, b - 1 - a - weak.ell, q))
            begin += b - 1 - a
        bump = PolynomialBump(weak.p).phi(
            np.arange(-weak.ell, weak.ell + 1, 2) / weak.ell
        )
        return WeakKernelProblem(
            inputs[first],
            smooth.v[first + 1] - smooth.v[first],
            torch.from_numpy(bump) * (series.dt or 1.0),
            torch.cat(starts),
        )


class WeakKernelProblem:
    """Least squares for increments that are averaged over bumps.

    Args:
        x, y: states and increments, ``[N, D]``.
        bump: samples of a bump.
        starts: first samples of the bumps.
    """

    def __init__(
        self,
        x: Float[Tensor, "N D"],
        y: Float[Tensor, "N D"],
        bump: Float[Tensor, " w"],
        starts: Int[Tensor, " K"],
    ) -> None:
        self.x, self._bump, self._starts = x, bump, starts
        self._wy = self.average(y)
        self._factors: tuple[tuple[float, int], Any] | None = None

    def average(self, values: Float[Tensor, "N C"]) -> Float[Tensor, "K C"]:
        """``W values``."""
        return ops.corr(values[None].contiguous(), self._bump, starts=self._starts)[0]

    def spread(self, values: Float[Tensor, "K C"]) -> Float[Tensor, "N C"]:
        """``W^T values``."""
        return ops.corr_t(
            values[None].contiguous(),
            self._bump,
            n_samples=len(self.x),
            starts=self._starts,
        )[0]

    def gram(self, eps: float) -> Float[Tensor, "K K"]:
        """``W K W^T``."""
        half = self._averaged_kernel(self.x, eps)
        return self.average(half.T.contiguous())

    def solve(
        self, z: Float[Tensor, "J D"], eps: float, ridge: float
    ) -> Float[Tensor, "J D"]:
        """Coefficients of the centres; exact where the centres are all states.

        With fewer centres ``|W (K_xz alpha - Y)|^2 + lambda alpha^T K_zz alpha`` is
        minimised, which has the same solution where there are all of them.
        """
        if self._factors is None or self._factors[0] != (eps, len(z)):
            exact = len(z) == len(self.x)
            made = self._exact(eps) if exact else self._nystroem(z, eps)
            self._factors = ((eps, len(z)), made)
        size, s, left, right = self._factors[1]
        # Without a ridge the solution is that of least norm.
        rounding = len(s) * torch.finfo(s.dtype).eps * s.max()
        kept = s > rounding if ridge == 0 else torch.ones_like(s, dtype=torch.bool)
        if len(z) == len(self.x):
            parts = (left.T @ self._wy) / (s + ridge * size)[:, None]
            return self.spread(right @ torch.where(kept[:, None], parts, 0.0))
        gain = torch.where(kept, s / (s.square() + ridge * size), 0.0)[:, None]
        return right @ (gain * (left.T @ self._wy))

    def _exact(self, eps: float) -> tuple[float, Tensor, Tensor, Tensor]:
        gram = self.gram(eps)
        s, v = torch.linalg.eigh((gram + gram.T) / 2)
        return gram.diagonal().mean().item(), s.clamp(min=0.0), v, v

    def _nystroem(self, z: Tensor, eps: float) -> tuple[float, Tensor, Tensor, Tensor]:
        rows = self._averaged_kernel(z, eps)
        s, v = torch.linalg.eigh(kernel(z, z, eps))
        root = torch.where(s > 1e-12 * s[-1], s.clamp(min=1e-300).rsqrt(), 0.0)
        whiten = v * root
        features = rows @ whiten
        u, s, vh = torch.linalg.svd(features, full_matrices=False)
        size = features.square().sum(1).mean().item()
        return size, s, u, whiten @ vh.T

    def _averaged_kernel(self, z: Tensor, eps: float) -> Float[Tensor, "K J"]:
        tally(len(self.x))
        parts = [self.average(kernel(self.x, part, eps)) for part in z.split(_BLOCK)]
        return torch.cat(parts, dim=1)


def kernel(
    x: Float[Tensor, "*b D"], z: Float[Tensor, "J D"], eps: float
) -> Float[Tensor, "*b J"]:
    """``exp(-|x - z|^2 / (4 eps))``."""
    squares = x.square().sum(-1, keepdim=True) + z.square().sum(-1) - 2 * x @ z.T
    return torch.exp(-squares.clamp(min=0.0) / (4 * eps))
