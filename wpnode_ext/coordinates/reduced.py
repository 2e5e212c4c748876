"""Fewer, linear coordinates for states of many entries: Fourier modes, POD, your own.

Fields of patterns are rough functions of noisy grid values and smooth functions of a
few amplitudes. The spectrum of the data shows how many stand out of the noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..common.arrays import Array, Field, as_float64
from ..weak.noise import estimate_noise
from .scaling import LinearScaler


@dataclass(frozen=True)
class ModeLimits:
    """Which modes the data choose as coordinates.

    Attributes:
        tail: share of the signal's variance that may be left out; 1e-6 is a relative
            error of 1e-3.
        sure: standard errors by which the variance of a mode must exceed the noise's.
        worth: least variance of a mode, as a share of the noise's. Long records show
            modes far below the noise, but the fit cannot find what drives them, and
            wrong rates make a field explode.
    """

    tail: float = 1e-6
    sure: float = 3.0
    worth: float = 0.3


_DEFAULT = ModeLimits()


@dataclass(frozen=True)
class Coordinates:
    """``a = encode (u - centre)`` and back, ``u = centre + decode a``.

    Attributes:
        encode: float64 ``[M, D]``; ``encode decode`` is the identity.
        decode: float64 ``[D, M]``.
        centre: float64 ``[D]``.
        labels: a name for each coordinate.
        kept: share of the signal's variance that the coordinates hold.
        noise: standard deviation of the noise in each coordinate, ``[M]``, where it was
            estimated.
    """

    encode: Float[Tensor, "M D"]
    decode: Float[Tensor, "D M"]
    centre: Float[Tensor, " D"]
    labels: tuple[str, ...] = ()
    kept: float = 1.0
    noise: Float[Tensor, " M"] | None = None

    @property
    def dim(self) -> int:
        """Number M of coordinates."""
        return self.encode.shape[0]

    def to(self, u: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch M"]:
        """Coordinates of states."""
        return (u - _like(self.centre, u)) @ _like(self.encode, u).T

    def back(self, a: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch D"]:
        """States of coordinates."""
        return _like(self.centre, a) + a @ _like(self.decode, a).T

    def scaler(
        self,
        shift: Float[Tensor, " M"] | None = None,
        scale: Float[Tensor, " M"] | None = None,
    ) -> LinearScaler:
        """From states to ``(a - shift) / scale`` and back; 0 and 1 by default."""
        ones = torch.ones(self.dim, dtype=torch.float64)
        scale = ones if scale is None else scale.double()
        shift = 0 * ones if shift is None else shift.double()
        return LinearScaler(
            self.encode / scale[:, None],
            self.decode * scale,
            self.centre + self.decode @ shift,
        )

    def to_physical(self, field: Field) -> nn.Module:
        """The field of states of a `field` of coordinates.

        The rest of a state, which the coordinates leave out, stays as it is.
        """
        return self.scaler().to_physical(field)

    @classmethod
    def choose(
        cls,
        given: "str | Coordinates | Array",
        v: Float[Tensor, "N D"],
        *,
        lengths: Sequence[int] | None = None,
        missing: Bool[Tensor, " N"] | None = None,
    ) -> "Coordinates":
        """By name, "fourier" or "pod", from the data; or those given.

        A matrix ``[D, M]`` means coordinates along its columns.
        """
        if isinstance(given, Coordinates):
            return given
        if not isinstance(given, str):
            return cls.linear(as_float64(given, "coordinates"))
        kinds = {"fourier": cls.fourier, "pod": cls.pod}
        if given not in kinds:
            raise ValueError(
                f"`coordinates` must be one of {list(kinds)}, a matrix or a "
                f"Coordinates object; got {given!r}."
            )
        return kinds[given](v, lengths=lengths, missing=missing)

    @classmethod
    def linear(
        cls, decode: Float[Tensor, "D M"], centre: Float[Tensor, " D"] | None = None
    ) -> "Coordinates":
        """Coordinates along the columns of a matrix, by least squares."""
        decode = torch.as_tensor(decode, dtype=torch.float64)
        if decode.dim() != 2 or torch.linalg.matrix_rank(decode) < decode.shape[1]:
            raise ValueError(
                "`decode` must have independent columns, one a coordinate; "
                f"got shape {list(decode.shape)}."
            )
        if centre is None:
            centre = torch.zeros(len(decode), dtype=torch.float64)
        labels = tuple(f"a{number}" for number in range(decode.shape[1]))
        encode = torch.linalg.pinv(decode)
        return cls(encode, decode, centre.double(), labels)

    @classmethod
    def fourier(
        cls,
        v: Float[Tensor, "N S"],
        wavenumbers: Sequence[int] | None = None,
        *,
        lengths: Sequence[int] | None = None,
        missing: Bool[Tensor, " N"] | None = None,
        limits: ModeLimits = _DEFAULT,
    ) -> "Coordinates":
        """Cosines and sines on a ring of S sites, orthonormal.

        Args:
            v: data; by default they choose the wavenumbers.
            wavenumbers: those to keep, between 0 and S / 2.
            lengths: lengths of several series laid end to end.
            missing: samples to leave out; their values are finite and not read.
            limits: which wavenumbers the data choose.
        """
        basis, waves = _waves(v.shape[1])
        a = v.double() @ basis
        signal, noise, n_samples = _levels(a, lengths, missing)
        if wavenumbers is None:
            # Both phases of a wave are kept or left out together: shifts mix them.
            groups = torch.tensor(waves)
            sizes = torch.bincount(groups)
            power = torch.bincount(groups, signal) / sizes
            floor = torch.bincount(groups, noise) / sizes
            found = _above_noise(power, floor, sizes, n_samples, limits)
            wavenumbers = sorted(found)
        unknown = set(wavenumbers) - set(waves)
        if not wavenumbers or unknown:
            raise ValueError(
                f"`wavenumbers` must lie in 0 .. {waves[-1]}; "
                f"got {sorted(wavenumbers)}."
            )
        columns = [i for i, k in enumerate(waves) if k in set(wavenumbers)]
        sines = [k > 0 and i > 0 and waves[i - 1] == k for i, k in enumerate(waves)]
        decode = basis[:, columns]
        return cls(
            encode=decode.T.contiguous(),
            decode=decode,
            centre=torch.zeros(v.shape[1], dtype=torch.float64),
            labels=tuple(f"{'sin' if sines[i] else 'cos'}{waves[i]}" for i in columns),
            kept=(signal[columns].sum() / signal.sum()).item(),
            noise=noise[columns].sqrt(),
        )

    @classmethod
    def pod(
        cls,
        v: Float[Tensor, "N D"],
        modes: int | None = None,
        *,
        lengths: Sequence[int] | None = None,
        missing: Bool[Tensor, " N"] | None = None,
        limits: ModeLimits = _DEFAULT,
    ) -> "Coordinates":
        """Directions of largest variance about the mean, orthonormal.

        Args:
            v: data.
            modes: how many to keep; by default as many as stand out of the noise.
            lengths, missing, limits: as in :meth:`fourier`.
        """
        data = v.double()
        whole = data if missing is None else data[~missing]
        centre = whole.mean(0)
        spread = torch.cov(whole.T, correction=0).reshape(v.shape[1], v.shape[1])
        basis = torch.linalg.eigh(spread).eigenvectors.flip(1)
        signal, noise, n_samples = _levels((data - centre) @ basis, lengths, missing)
        if modes is None:
            ones = torch.ones(len(signal), dtype=torch.int64)
            # Directions were chosen for their variance: that of pure noise reaches
            # (1 + sqrt(D / N))^2 times its mean (Marchenko and Pastur).
            edge = (1 + (v.shape[1] / n_samples) ** 0.5) ** 2 - 1
            found = _above_noise(signal, noise, ones, n_samples, limits, edge)
            modes = 1 + max(found)
        if not 1 <= modes <= v.shape[1]:
            raise ValueError(f"`modes` must lie in 1 .. {v.shape[1]}; got {modes}.")
        return cls(
            encode=basis[:, :modes].T.contiguous(),
            decode=basis[:, :modes],
            centre=centre,
            labels=tuple(f"pod{number}" for number in range(modes)),
            kept=(signal[:modes].sum() / signal.sum()).item(),
            noise=noise[:modes].sqrt(),
        )


def _waves(sites: int) -> tuple[Float[Tensor, "S S"], list[int]]:
    """Orthonormal cosines and sines in columns, and their wavenumbers."""
    angle = 2 * torch.pi * torch.arange(sites, dtype=torch.float64) / sites
    columns, waves = [], []
    for k in range(sites // 2 + 1):
        for wave in (torch.cos(k * angle), torch.sin(k * angle)):
            if wave.norm() > 1e-6:
                columns.append(wave / wave.norm())
                waves.append(k)
    return torch.stack(columns, 1), waves


def _levels(
    a: Float[Tensor, "N M"],
    lengths: Sequence[int] | None,
    missing: Bool[Tensor, " N"] | None,
) -> tuple[Float[Tensor, " M"], Float[Tensor, " M"], int]:
    """Variances of signal and noise of every coordinate, and the samples they have."""
    whole = a if missing is None else a[~missing]
    try:
        noise = estimate_noise(a, mask=missing, lengths=lengths).sigma.square()
    except ValueError:
        if missing is None:
            raise
        # Runs are too short. Samples on both sides of a gap taken for neighbours give
        # too large a noise, and so fewer coordinates.
        noise = estimate_noise(whole).sigma.square()
    signal = (whole.var(0, correction=0) - noise).clamp(min=0.0)
    return signal, noise, len(whole)


def _above_noise(
    signal: Float[Tensor, " G"],
    noise: Float[Tensor, " G"],
    sizes: Tensor,
    n_samples: int,
    limits: ModeLimits,
    edge: float = 0.0,
) -> list[int]:
    """Groups that stand out of the noise, fewest that hold all but the tail."""
    least = max(limits.worth, limits.sure * (2 / n_samples) ** 0.5)
    clear = signal > (edge + least) * noise
    total = (signal * sizes).sum()
    order = torch.argsort(signal, descending=True)
    left = total - (signal * sizes)[order].cumsum(0)
    needed = torch.cat([total[None], left[:-1]]) > limits.tail * total
    found = [g for g, use in zip(order.tolist(), needed.tolist(), strict=True) if use]
    return [g for g in found if clear[g]] or [int(order[0])]


def _like(constant: Tensor, x: Tensor) -> Tensor:
    return constant.to(x.device, x.dtype)
