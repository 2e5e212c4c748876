"""Kuramoto-Sivashinsky: a partial differential equation, its symmetries declared.

    python examples/kuramoto_sivashinsky.py           # about a minute on one CPU core
    python examples/kuramoto_sivashinsky.py --fast    # seconds, only to see it run

Sixty-four points on a ring of length 22, four snapshots a unit of time, 5 % noise. The
field is a library of quadratic polynomials of the Fourier waves, which contains the
equation's terms; it commutes with all shifts along the ring and with the mirror image
of opposite sign. Forecasts take exponential steps, as fast waves decay within a sample.
Prints valid prediction times; truth, forecast and their difference over space and time
go to ``figures/kuramoto_sivashinsky.png``.
"""

# %%
from dataclasses import dataclass
from pathlib import Path

from command_line import start

import wpnode_ext as wp
from wpnode_ext.data import add_noise
from wpnode_ext.figures import save_figure, space_time
from wpnode_ext.systems import KuramotoSivashinsky


@dataclass
class Settings:
    n_samples: int = 6000
    n_test: int = 3000
    horizon: float = 150.0  # units of time
    seed: int = 0


DT, NOISE_RATIO = 0.25, 0.05


def main(settings: Settings, figure: Path) -> None:
    # %% Data and noise
    system = KuramotoSivashinsky()
    u = system.simulate(settings.n_samples + settings.n_test, DT, seed=settings.seed)
    train, test = u[: settings.n_samples], u[settings.n_samples :]
    noisy, sigma = add_noise(train, NOISE_RATIO, seed=settings.seed)

    # %% Model and training
    model = wp.WPNODE(
        field="library",
        coordinates="fourier",
        symmetry="shifts + odd_mirror",
        p=16,
        ell=60,
        q=2,
        seed=settings.seed,
    ).fit(noisy, DT)
    if model.states_ is not None:
        error = (model.states_ - train).square().mean().sqrt() / sigma.mean()
        print(f"error of the refined states over the noise: {error:.3f}")

    # %% Judgement
    result = model.evaluate(
        test,
        DT,
        lyapunov_exponent=system.lyapunov_exponent,
        threshold=0.5,
        horizon=settings.horizon,
        method="etdrk4",
        step=DT / 4,
    )
    print(result)
    first, end = result.vpt.vpt_time[0].item(), result.vpt.mean_time
    print(f"the first forecast holds for {first:.0f} units of time, the mean {end:.0f}")
    picture = space_time(
        result.t, result.u_hat[:, 0], result.u[:, 0], valid_until=first
    )
    save_figure(picture, figure)


if __name__ == "__main__":
    start(main, Settings(), fast=Settings(n_samples=900, n_test=200, horizon=10.0))
