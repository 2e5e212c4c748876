"""Adds observational noise, its level defined in any of the ways papers use."""

from collections.abc import Sequence
from math import sqrt
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..common.arrays import Array, as_float64, as_generator, like_given

NoiseMode = Literal["global_rms", "component_rms", "component_std"]

# The reference of a ratio, in words.
NOISE_OF: dict[str, str] = {
    "global_rms": "the RMS of the signal",
    "component_rms": "the RMS of every component",
    "component_std": "the standard deviation of every component",
}


def noise_level(
    u: Array, noise_ratio: float, *, mode: NoiseMode = "global_rms"
) -> Float[Tensor, "..."]:
    """Standard deviation of the noise for a clean series, per component.

    Modes, which differ for all but special data:

    - "global_rms": ``noise_ratio * RMS(u)`` over all entries, one value for all
      components; the paper's. On Lorenz-63, 5 % is then 10 % of std(x).
    - "component_rms": ``noise_ratio * RMS(u_j)``.
    - "component_std": ``noise_ratio * std(u_j)``, without the mean.

    Args:
        u: clean series, ``[N, *state]``.
        noise_ratio: level, e.g. 0.05 for 5 %.
        mode: reference of the level; name it with every result.

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


def noise_ratio(v: Array, sigma: Array) -> float:
    """Noise as a share of the RMS of the signal: the ratio of the mode "global_rms".

    ``RMS(sigma) / sqrt(mean(v^2) - mean(sigma^2))`` over all entries, as the noise is a
    part of the observations.

    Args:
        v: observations, ``[N, *state]``; NaN marks missing values.
        sigma: standard deviation of their noise, ``[*state]``.

    Returns:
        The ratio, infinite where the observations are no larger than their noise.
    """
    squares = as_float64(v, "v").square().nanmean(0).mean().item()
    noise = as_float64(sigma, "sigma").square().mean().item()
    if noise == 0:
        return 0.0
    return sqrt(noise / (squares - noise)) if squares > noise else float("inf")


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
        mode: reference of the level, see :func:`noise_level`.
        seed: seed, or generator on the CPU.

    Returns:
        ``(v, sigma)``: noisy series in the dtype and on the device of `u`, and the
        standard deviation of the noise, float64 ``[*state]``.
    """
    clean = as_float64(u, "u")
    sigma = noise_level(clean, noise_ratio, mode=mode)
    noise = torch.randn(clean.shape, generator=as_generator(seed), dtype=torch.float64)
    return like_given(clean + sigma * noise, u), sigma


def noise_table(
    names: Sequence[str],
    sigma: Float[Tensor, "..."],
    spread: Float[Tensor, " D"],
    reliable: Bool[Tensor, "..."] | None = None,
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table of the noise in every component.

    Args:
        names: of the components.
        sigma: standard deviation of the noise.
        spread: standard deviation of the data.
        reliable: False where an estimate of `sigma` is only an upper bound.
    """
    header = ["component", "noise (std)", "of the component's std"]
    columns = [sigma.flatten().tolist(), spread.tolist()]
    rows = [
        [name, f"{s:.4g}", f"{100 * s / d:.2f} %" if d else "-"]
        for name, s, d in zip(names, *columns, strict=True)
    ]
    if reliable is None:
        return header, rows
    sure = ["yes" if ok else "no" for ok in reliable.flatten().tolist()]
    pairs = zip(rows, sure, strict=True)
    return [*header, "reliable"], [[*row, word] for row, word in pairs]
