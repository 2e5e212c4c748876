"""Random feature maps learned by an ensemble Kalman filter (Gottwald and Reich, 2021).

States and outer weights are estimated together, sample after sample, so that the noise
of the inputs does not flatten the map as it does in a regression.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..data import Series
from ..weak.noise import estimate_noise
from ..weak.segments import gap_free_runs
from .base import Learned, ScalerKind
from .evaluations import tally
from .random_maps import RFM, RandomFeatureMap


@dataclass(kw_only=True, eq=False)
class RAFDA(RFM):
    """``u_{n+1} = P tanh(W u_n + b)``; P and the states from an ensemble Kalman filter.

    Args:
        width: features D_r.
        ridge: of the regression that the filter starts from.
        members: size M of the ensemble.
        inner: entries of W are uniform within ``+- inner / (range of a component)``.
        bias: entries of b are uniform within ``+- bias``.
        spread: standard deviation of the first maps around that of the regression, in
            units of the root mean square of its entries; by default 10, and 3 for
            local maps.
        sigma: standard deviation of the noise in the units of the data; by default
            estimated from the data for each component.
        inflation: factor of the deviations of forecasts from their mean before each
            analysis, which stands for the errors of the map; by default 1, as in the
            paper, and 1.1 for local maps, whose ensembles collapse without.
        average: share of the record, at its end, over which the map is averaged; 0
            takes the last one.
        least_noise: smallest standard deviation of the noise, as a share of the root
            mean square of the data; the ensemble collapses without noise.
        room: bound on states around the middle of the data, in ranges of the data;
            forecasts of the first steps may run away.
        group, reach: local map, shared by a ring of groups; innovations of all groups
            correct the same rows. Covariances of states fade out over
            ``2 (2 reach + 1) group`` sites.

    The other arguments are those of :class:`RFM`.

    Attributes:
        states_: filtered states at the samples, in the units of the data, ``[N, D]``.
    """

    scaler: ScalerKind = "identity"
    ridge: float | None = 1e-3
    members: int = 300
    inner: float = 0.25
    bias: float = 4.0
    spread: float | None = None
    sigma: float | None = None
    inflation: float | None = None
    average: float = 0.0
    least_noise: float = 1e-3
    room: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        # One member has no spread to learn from.
        self._check_least(members=2, spread=0.0, sigma=0.0, average=0.0)
        self._check_positive("inflation")

    @classmethod
    def _settings_for(cls, system: str) -> dict[str, Any]:
        found = super()._settings_for(system)
        # The filter has noise of its own.
        return {key: value for key, value in found.items() if key != "jitter"}

    def _learn(self, series: Series, validation: Series | None) -> Learned:
        start, recipe = super()._learn(series, validation)
        assert isinstance(start, RandomFeatureMap)
        self.states_ = self._assimilate(start, series)
        return start, recipe

    def _draw(
        self, module: RandomFeatureMap, v: Tensor, generator: torch.Generator
    ) -> None:
        width = v.amax(0) - v.amin(0)
        if self.group is not None:
            width = (v.amax() - v.amin()).expand_as(width)
        size = width[: module.groups.seen].clamp(min=1e-300)
        w = 2 * torch.rand(module.w[0].shape, generator=generator).double() - 1
        b = 2 * torch.rand(module.b[0].shape, generator=generator).double() - 1
        module.w[0], module.b[0] = self.inner * w / size, self.bias * b

    @torch.no_grad()
    def _assimilate(
        self, module: RandomFeatureMap, series: Series
    ) -> Float[Tensor, "N D"]:
        """Runs the filter over the record; the map of `module` becomes its mean."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        # Maps are sums of large terms that nearly cancel: in float32 forecasts at 1 %
        # noise are a quarter shorter.
        v, eta = series.v.double(), self._noise(series)
        start = module.c[0].T
        middle = (v.amax(0) + v.amin(0)) / 2
        room = self.room * (v.amax(0) - v.amin(0))
        taper = None
        if self.group is not None:
            radius = 2 * (2 * self.reach + 1) * self.group
            taper = ring_taper(v.shape[1], radius)
        shape = (len(start), self.members, self.width)
        p = torch.randn(shape, generator=generator, dtype=v.dtype)
        spread = self.spread
        if spread is None:
            spread = 10.0 if self.group is None else 3.0
        p = start[:, None] + spread * start.square().mean().sqrt() * p
        states, total, count = v.clone(), torch.zeros_like(start), 0
        gone, first = series.missing, self._first_samples(series)
        inflation = self.inflation
        if inflation is None:
            inflation = 1.0 if self.group is None else 1.1
        averaged = int((1 - self.average) * len(v)) if self.average else len(v)
        u = v[:1] + centred_noise(self.members, eta, generator)
        for n in self._progress(range(len(v)), len(v), "samples"):
            if n in first:
                u = v[n] + centred_noise(self.members, eta, generator)
                continue
            tally(self.members)
            seen, own = module.groups.inputs(u), module.groups.own(u)
            u = ensemble_forecast(p, module.features(0, seen, own))
            u = torch.clamp(u, middle - room, middle + room)
            if inflation != 1.0:
                u = u.mean(0) + inflation * (u - u.mean(0))
            if not gone[n]:
                noise = centred_noise(self.members, eta, generator)
                analysis(p, u, v[n], eta, noise, taper)
            states[n] = u.mean(0)
            if n >= averaged:
                total, count = total + p.mean(1), count + 1
        last = total / count if count else p.mean(1)
        module.c[0] = last.T
        return states

    def _noise(self, series: Series) -> Float[Tensor, " D"]:
        """Variance of the noise per component."""
        if self.sigma is not None:
            sigma = torch.full(series.v.shape[1:], self.sigma).double()
        else:
            found = estimate_noise(series.v, mask=series.mask, lengths=series.lengths)
            sigma = found.sigma
        if self.group is not None:
            sigma = sigma.square().mean().sqrt().expand_as(sigma)
        least = self.least_noise * series.v.square().mean().sqrt()
        return sigma.clamp(min=least.item()).square()

    @staticmethod
    def _first_samples(series: Series) -> set[int]:
        """The first sample of every series, which has no forecast."""
        runs = gap_free_runs(series.n_samples, lengths=series.lengths)
        return {first for first, _ in runs}


def ensemble_forecast(
    p: Float[Tensor, "G M R"], features: Float[Tensor, "M S R"]
) -> Float[Tensor, "M D"]:
    """Next states by the map of each member: ``u[m, s, g] = p[g, m] . phi[m, s]``."""
    if features.shape[1] == 1:
        return torch.linalg.vecdot(p, features[:, 0]).T.contiguous()
    return torch.einsum("gmr,msr->msg", p, features).flatten(1)


def analysis(
    p: Float[Tensor, "G M R"],
    u: Float[Tensor, "M D"],
    v: Float[Tensor, " D"],
    eta: Float[Tensor, " D"],
    noise: Float[Tensor, "M D"],
    taper: Float[Tensor, "D D"] | None = None,
) -> None:
    """Corrects maps and states by one observation, in place.

    Row g of the shared map is corrected by the components it predicts, number g of each
    of the ``S = D / G`` groups, and by no other: spurious correlations with the rest
    would spoil it. With ``C`` the covariance of the forecasts and ``I = u + noise - v``

        ``p_g -= I_g (C_g + eta_g)^-1 cov(u_g, p_g)``,   ``u -= I (C + eta)^-1 C``,

    both from the statistics of the forecast, which divide by the number of members.

    Args:
        p: maps of the M members.
        u: their forecasts.
        v: the observation.
        eta: variance of its noise.
        noise: draws of this noise whose mean over the members is zero.
        taper: factors of the covariance of the states, 1 near and 0 far.
    """
    size, members, _ = p.shape
    around = u - u.mean(0)
    innovation = u + noise - v
    covariance = around.T @ around / members
    if taper is not None:
        covariance = covariance * taper
    rows = around.unflatten(1, (-1, size)).permute(2, 0, 1)
    # The mean of the maps drops out: deviations of the forecasts sum to zero.
    cross = rows.mT @ p / members
    own = rows.mT @ rows / members + torch.diag_embed(eta.unflatten(0, (-1, size)).T)
    gain = cross / own if own.shape[-1] == 1 else torch.linalg.solve(own, cross)
    misses = innovation.unflatten(1, (-1, size)).permute(2, 0, 1)
    p.baddbmm_(misses, gain, alpha=-1.0)
    total = covariance + eta.diag()
    u -= innovation @ torch.linalg.solve(total, covariance)


def centred_noise(
    members: int, eta: Float[Tensor, " D"], generator: torch.Generator
) -> Float[Tensor, "M D"]:
    """Perturbations of an observation; their mean is zero, so the ensemble stays."""
    drawn = torch.randn(members, len(eta), generator=generator, dtype=eta.dtype)
    return (drawn - drawn.mean(0)) * eta.sqrt()


def ring_taper(dim: int, radius: float) -> Float[Tensor, "D D"]:
    """Gaspari and Cohn's function of the distance on a ring, zero beyond `radius`.

    Args:
        dim: number of sites.
        radius: distance at which sites count as unrelated.
    """
    place = torch.arange(dim, dtype=torch.float64)
    apart = (place - place[:, None]).abs()
    z = torch.minimum(apart, dim - apart) / (radius / 2)
    near = 1 - 5 / 3 * z**2 + 5 / 8 * z**3 + z**4 / 2 - z**5 / 4
    far = 4 - 5 * z + 5 / 3 * z**2 + 5 / 8 * z**3 - z**4 / 2 + z**5 / 12
    far = far - 2 / (3 * z.clamp(min=1e-12))
    return torch.where(z <= 1, near, torch.where(z < 2, far, 0.0))
