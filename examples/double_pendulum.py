"""A laboratory double pendulum: 26 free swings to learn from, 4 to be judged on.

    python examples/double_pendulum.py           # ten seconds on one CPU core
    python examples/double_pendulum.py --fast    # seconds, only to see it run

The measurements (two angles, two angular velocities, every millisecond) are those of
``double_pendulum/DoublePendulumDataForParameterEstimation.mat`` in the folder that the
environment variable WPNODE_DATA names, by default ``../shared/data`` beside the
checkout; without them the example says so and ends. The swings are separate series: no
segment crosses from one into the next. The field is one of your own: random features of
sines and cosines of the angles and of the velocities, which full turns of an arm do not
change; its coefficients are found at once. Prints the error of forecasts on the
held-out swings beside two baselines: "nothing changes", and polynomials of the same
sines, cosines and velocities. The figure goes to ``figures/double_pendulum.png``.
"""

# %%
import argparse
import os
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from scipy.io import loadmat
from torch import Tensor

from wpnode_ext import make_series, rollout
from wpnode_ext.closed_form import fit_closed_form
from wpnode_ext.fields import LibraryField, LinearField, RandomFeatureField

ROOT = Path(__file__).resolve().parent.parent
NAME = Path("double_pendulum") / "DoublePendulumDataForParameterEstimation.mat"


@dataclass
class Settings:
    every: int = 4  # keep every fourth sample, 4 ms apart
    p: int = 8
    ell: int = 60
    q: int = 2
    features: int = 300
    horizon: float = 1.0  # seconds
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


def main(settings: Settings, figure: Path) -> None:
    # %% Data
    path = Path(os.environ.get("WPNODE_DATA", ROOT.parent / "shared" / "data")) / NAME
    if not path.exists():
        print(
            f"skipped: there is no {path}; set WPNODE_DATA to the folder of the data."
        )
        return
    table = loadmat(path)
    dt = settings.every * float(table["dt"].squeeze())
    training, held_out = (
        [
            torch.from_numpy(swing.T.copy())[:: settings.every]
            for swing in table[name].ravel()
        ]
        for name in ("Y_id", "Y_vad")
    )
    print(
        f"{len(training)} swings to learn from, {len(held_out)} held out, dt = {dt:g}"
    )

    # %% Noise: the instrument's own

    # %% Model: features that vary over the states that were measured
    series = make_series(training, dt=dt)
    seen = inputs(series.v)
    features = RandomFeatureField(
        6,
        settings.features,
        low=seen.amin(0),
        high=seen.amax(0),
        outputs=4,
        generator=torch.Generator().manual_seed(settings.seed),
    )
    fields = {
        "weak library fit": LibraryField(6, 3, outputs=4, dtype=torch.float64),
        "weak features": features,
    }
    models = {name: AngleField(inner) for name, inner in fields.items()}

    # %% Train: the weak residual is linear in the coefficients
    weak = {"p": settings.p, "ell": settings.ell, "q": settings.q}
    for name, model in models.items():
        fit = fit_closed_form(model, series, **weak)
        print(f"{name}: {fit.n_rows} segments, ridge {fit.choice.ridge:.0e}")

    # %% Judge
    steps = round(settings.horizon / dt)
    t = dt * torch.arange(steps + 1, dtype=torch.float64)
    truths, first = [], []
    for swing in held_out:
        for s in torch.linspace(0, len(swing) - steps - 1, settings.starts).long():
            truths.append(swing[s : s + steps + 1])
            first.append(swing[s])
    truth, start = torch.stack(truths, dim=1), torch.stack(first)
    paths = {"unchanged state": start.expand_as(truth)}
    for name, model in models.items():
        paths[name] = rollout(model, start, t, bound=1e3).u
    spread = torch.cat(held_out).std(0)
    print(f"error in standard deviations, mean over {truth.shape[1]} forecasts")
    print("  ".join(["after (s)".ljust(18), *(f"{t[n]:6.2f}" for n in marks(steps))]))
    for name, path in paths.items():
        error = ((path - truth) / spread).square().mean(-1).sqrt()
        error = error.nan_to_num(nan=torch.inf).clamp(max=9.99).mean(1)
        print("  ".join([name.ljust(18), *(f"{error[n]:6.3f}" for n in marks(steps))]))
    draw(t, truth, paths, figure)
    print(f"figure: {figure}")


def marks(steps: int) -> list[int]:
    return [max(1, round(share * steps)) for share in (0.125, 0.25, 0.5, 0.75, 1.0)]


def draw(t: Tensor, truth: Tensor, paths: dict[str, Tensor], path: Path) -> None:
    """One forecast of each held-out swing, the angle of the lower arm."""
    figure, grid = plt.subplots(2, 2, figsize=(8, 5), sharex=True, layout="constrained")
    count = truth.shape[1] // 4
    for number, axes in enumerate(grid.flat):
        member = number * count
        axes.plot(t, truth[:, member, 1], "k", label="measured")
        for name in ("weak library fit", "weak features"):
            axes.plot(t, paths[name][:, member, 1], "--", label=name)
        axes.set_title(f"held-out swing {number + 1}")
    grid[0, 0].legend()
    figure.supxlabel("time (s)")
    figure.supylabel("angle of the lower arm (rad)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="seconds, for tests")
    default = Path("figures/double_pendulum.png")
    parser.add_argument("--figure", type=Path, default=default)
    arguments = parser.parse_args()
    small = Settings(every=20, ell=12, features=30, starts=2)
    main(small if arguments.fast else Settings(), arguments.figure)
