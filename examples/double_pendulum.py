"""A laboratory double pendulum: 26 free swings to learn from, 4 to be judged on.

    python examples/double_pendulum.py           # ten seconds on one CPU core
    python examples/double_pendulum.py --fast    # seconds, only to see it run

The measurements (two angles, two angular velocities, every millisecond) are those of
``double_pendulum/DoublePendulumDataForParameterEstimation.mat`` in the folder that the
environment variable WPNODE_DATA names, by default ``../shared/data`` beside the
checkout; without them the example says so and ends. The swings are separate series: no
segment crosses from one into the next. The field is one of your own: random features of
sines and cosines of the angles and of the velocities, which full turns of an arm do not
change; least squares finds its coefficients. Prints the error of forecasts on the
held-out swings beside two baselines: "nothing changes", and polynomials of the same
sines, cosines and velocities. The figure goes to ``figures/double_pendulum.png``.
"""

# %%
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from command_line import start
from scipy.io import loadmat
from torch import Tensor

import wpnode_ext as wp
from wpnode_ext.fields import LibraryField, LinearField, RandomFeatureField
from wpnode_ext.figures import forecast, save_figure

ROOT = Path(__file__).resolve().parent.parent
NAME = Path("double_pendulum") / "DoublePendulumDataForParameterEstimation.mat"
LEADS = (0.125, 0.25, 0.5, 0.75, 1.0)  # seconds


@dataclass
class Settings:
    every: int = 4  # keep every fourth sample, 4 ms apart
    ell: int = 60
    features: int = 300
    starts: int = 12  # in every held-out swing
    seed: int = 0


class AngleField(LinearField):
    """A field of sines and cosines of the angles, and of the velocities."""

    def __init__(self, inner: LinearField) -> None:
        super().__init__()
        self.inner, self.dim, self.coefficients = inner, 4, inner.coefficients

    def features(self, u: Tensor, x: Tensor | None = None) -> Tensor:
        return self.inner.features(inputs(u))


def inputs(u: Tensor) -> Tensor:
    """Sines, cosines and velocities (per 10 rad/s), ``[..., 6]``."""
    angles, speeds = u[..., :2], u[..., 2:]
    return torch.cat([angles.sin(), angles.cos(), speeds / 10], dim=-1)


def read_swings(path: Path, every: int) -> tuple[list[Tensor], list[Tensor], float]:
    """Swings to learn from, held-out ones, and the distance of their samples."""
    table = loadmat(path)
    training, held_out = (
        [torch.from_numpy(swing.T.copy())[::every] for swing in table[name].ravel()]
        for name in ("Y_id", "Y_vad")
    )
    return training, held_out, every * float(table["dt"].squeeze())


def main(settings: Settings, figure: Path) -> None:
    # %% Data: the noise is that of the instrument
    path = Path(os.environ.get("WPNODE_DATA", ROOT.parent / "shared" / "data")) / NAME
    if not path.exists():
        print(
            f"skipped: there is no {path}; set WPNODE_DATA to the folder of the data."
        )
        return
    training, held_out, dt = read_swings(path, settings.every)
    print(f"{len(training)} swings to learn from, {len(held_out)} held out")

    # %% Model: features that vary over the states that were measured
    series = wp.make_series(training, dt=dt)
    seen = inputs(series.v)
    features = RandomFeatureField(
        6,
        settings.features,
        box=(seen.amin(0), seen.amax(0)),
        outputs=4,
        generator=torch.Generator().manual_seed(settings.seed),
    )
    library = LibraryField(6, 3, outputs=4, dtype=torch.float64)
    models = {"library": AngleField(library), "random features": AngleField(features)}

    # %% Training: the weak residual is linear in the coefficients
    for name, model in models.items():
        fit = wp.fit_closed_form(model, series, p=8, ell=settings.ell, q=2)
        print(f"{name}: {fit.n_rows} segments, ridge {fit.choice.ridge:.0e}")

    # %% Judgement
    steps = round(LEADS[-1] / dt)
    t = dt * torch.arange(steps + 1, dtype=torch.float64)
    pieces = [
        swing[s : s + steps + 1]
        for swing in held_out
        for s in torch.linspace(0, len(swing) - steps - 1, settings.starts).long()
    ]
    truth = torch.stack(pieces, dim=1)
    paths = {"unchanged state": truth[0].expand_as(truth)}
    for name, model in models.items():
        paths[name] = wp.rollout(model, truth[0], t, bound=1e3).u
    spread = torch.cat(held_out).std(0)
    print(f"error in standard deviations, mean over {truth.shape[1]} forecasts")
    print("  ".join(["after (s)".ljust(18), *(f"{lead:6.3f}" for lead in LEADS)]))
    for name, path in paths.items():
        error = ((path - truth) / spread).square().mean(-1).sqrt()
        error = error.nan_to_num(nan=torch.inf).clamp(max=9.99).mean(1)
        cells = [f"{error[round(lead / dt)]:6.3f}" for lead in LEADS]
        print("  ".join([name.ljust(18), *cells]))

    # %% One forecast of each of the first three held-out swings
    names = ["upper angle", "lower angle", "upper velocity", "lower velocity"]
    titles = [f"held-out swing {number}" for number in range(1, 4)]
    members = slice(0, None, settings.starts)
    u_hat, u = paths["random features"][:, members], truth[:, members]
    save_figure(forecast(t, u_hat, u, titles=titles, names=names), figure)


if __name__ == "__main__":
    start(main, Settings(), fast=Settings(every=20, ell=12, features=30, starts=2))
