"""Ensemble Kalman filter for a state together with the map that takes it ahead."""

import torch
from jaxtyping import Float
from torch import Tensor


def forecast(
    p: Float[Tensor, "G M R"], features: Float[Tensor, "M S R"]
) -> Float[Tensor, "M D"]:
    """Every member taken ahead by its own map: ``u[m, s, g] = p[g, m] . phi[m, s]``."""
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
    """Perturbations of an observation, without a mean: it would move the ensemble."""
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
