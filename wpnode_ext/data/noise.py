"""Observational noise, with the level defined in any of the ways papers use."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from .._arrays import as_float64, as_generator, like_given
from .._typing import Array

NoiseMode = Literal["global_rms", "component_rms", "component_std"]


def noise_level(
    u: Array, noise_ratio: float, *, mode: NoiseMode = "global_rms"
) -> Float[Tensor, "..."]:
    """Standard deviation of the noise for a clean series, per component.

    Modes, none of which equals another except for special data:

    - "global_rms": ``noise_ratio * RMS(u)`` over all entries, one value for all
      components; the paper's. On Lorenz-63, 5 % is then 10 % of std(x).
    - "component_rms": ``noise_ratio * RMS(u_j)``.
    - "component_std": ``noise_ratio * std(u_j)``, without the mean.

    Args:
        u: clean series, ``[N, *state]``.
        noise_ratio: level, e.g. 0.05 for 5 %.
        mode: what the level refers to; name it with every result.

    Returns:
        float64 ``[*state]``.
    """
    if not 0 <= noise_ratio < float("inf"):
        raise ValueError(f"`noise_ratio` must be >= 0; got {noise_ratio}.")
    clean = as_float64(u, "u")
    if mode == "global_rms":
        scale = clean.square().mean().sqrt().expand(clean.shape[1:]).clone()
    elif mode == "component_rms":
        scale = clean.square().mean(0).sqrt()
    elif mode == "component_std":
        scale = clean.std(0, correction=0)
    else:
        raise ValueError(
            "`mode` must be 'global_rms', 'component_rms' or 'component_std'; "
            f"got {mode!r}."
        )
    return noise_ratio * scale


def add_noise(
    u: Array,
    noise_ratio: float,
    *,
    mode: NoiseMode = "global_rms",
    seed: int | torch.Generator = 0,
) -> tuple[Float[Tensor, "N ..."], Float[Tensor, "..."]]:
    """Clean series plus independent Gaussian noise.

    Args:
        u: clean series, ``[N, *state]``.
        noise_ratio: level, e.g. 0.05 for 5 %.
        mode: what the level refers to, see :func:`noise_level`.
        seed: seed, or generator on the CPU.

    Returns:
        ``(v, sigma)``: noisy series in the dtype and on the device of `u`, and the
        standard deviation of the noise, float64 ``[*state]``.
    """
    clean = as_float64(u, "u")
    sigma = noise_level(clean, noise_ratio, mode=mode)
    noise = torch.randn(clean.shape, generator=as_generator(seed), dtype=torch.float64)
    return like_given(clean + sigma * noise, u), sigma
