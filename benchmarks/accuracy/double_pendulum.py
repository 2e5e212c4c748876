"""Forecasts of a laboratory double pendulum against "nothing changes" and a library.

    python benchmarks/accuracy/double_pendulum.py [--epochs 400] [--develop]

The measurements are 26 free swings to learn from and 4 to be judged on, two angles and
two angular velocities each, never joined; every fourth sample is taken, 4 ms apart. All
fields see sines and cosines of the angles and the velocities, and the same weak form.
``--develop`` trains on the first 22 swings and judges on the other 4 of the training
part; with it the settings below were chosen, before the held-out swings were looked at.
The data are looked for in the folder WPNODE_DATA, by default ``../shared/data`` beside
the checkout. The table goes to ``benchmarks/accuracy/results/double_pendulum.md``. A
run that was interrupted goes on where it was.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import tables
import torch
from scipy.io import loadmat
from torch import Tensor, nn

from wpnode_ext import WPNODE, Series, fit_closed_form, make_series, rollout
from wpnode_ext.fields import LibraryField, LinearField, MLPField, RandomFeatureField
from wpnode_ext.training.run_folder import RunFolder

NAME = Path("double_pendulum") / "DoublePendulumDataForParameterEstimation.mat"
EVERY, HORIZON, STARTS = 4, 1.0, 12
WEAK = {"p": 8, "ell": 60, "q": 2}
DEGREE, FEATURES, HIDDEN, SEED = 3, 300, (128, 128), 0
LEADS = (0.125, 0.25, 0.5, 0.75, 1.0)
# Errors are cut here: a forecast that far off is lost, however far.
LOST = 10.0


def inputs(u: Tensor) -> Tensor:
    """Sines and cosines of the angles, velocities per 10 rad/s, ``[..., 6]``."""
    return torch.cat([u[..., :2].sin(), u[..., :2].cos(), u[..., 2:] / 10], dim=-1)


class OnInputs(LinearField):
    """A field that is linear in its coefficients, as a function of the inputs."""

    def __init__(self, inner: LinearField) -> None:
        super().__init__()
        self.inner, self.dim, self.coefficients = inner, 4, inner.coefficients

    def features(self, u: Tensor, x: Tensor | None = None) -> Tensor:
        return self.inner.features(inputs(u))


class Network(nn.Module):
    """A network of the inputs that gives all four rates."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(SEED)
        self.net = MLPField(6, HIDDEN, generator=generator)
        self.last = nn.Linear(6, 4)
        # Typical rates: rad/s of the angles, rad/s^2 of the velocities.
        self.register_buffer("size", torch.tensor([3.0, 4.0, 40.0, 80.0]))

    def forward(self, t: Tensor | float, u: Tensor) -> Tensor:
        return self.size * self.last(self.net(t, inputs(u)))


def read_swings() -> tuple[list[Tensor], list[Tensor], float]:
    folder = os.environ.get("WPNODE_DATA", tables.HERE.parents[2] / "shared" / "data")
    table = loadmat(Path(folder) / NAME)
    training, held_out = (
        [torch.from_numpy(x.T.copy())[::EVERY] for x in table[name].ravel()]
        for name in ("Y_id", "Y_vad")
    )
    return training, held_out, EVERY * float(table["dt"].squeeze())


def library(series: Series) -> Callable:
    field = OnInputs(LibraryField(6, DEGREE, outputs=4, dtype=torch.float64))
    fit_closed_form(field, series, ridge=1e-8, **WEAK)
    return field


def features(series: Series) -> Callable:
    x = inputs(series.v)
    generator = torch.Generator().manual_seed(SEED)
    box = x.amin(0), x.amax(0)
    inner = RandomFeatureField(6, FEATURES, box=box, outputs=4, generator=generator)
    field = OnInputs(inner)
    fit_closed_form(field, series, **WEAK)
    return field


def network(method: str, epochs: int, work: Path) -> Callable[[Series], Callable]:
    def fit(series: Series) -> Callable:
        torch.manual_seed(SEED)
        folder = RunFolder(work / f"{method}_{epochs}_{series.n_series}")
        resume = folder.last.exists()
        if not resume:
            folder.create(overwrite=True)
        config = {
            "method": method,
            "weak": WEAK,
            "strong": {"solver": "rk4"},
            "optim": {"epochs": epochs, "batch_size": 512, "plateau_patience": 20},
            "scaler": "identity",
            "seed": SEED,
        }
        model = WPNODE(field=Network(), config=config)
        model.fit(series, run=folder, resume=resume)
        if model.result_.signal is not None:
            raise KeyboardInterrupt
        return model.physical_field_

    return fit


def starts(swings: list[Tensor], steps: int) -> tuple[Tensor, Tensor]:
    """First states ``[B, 4]`` and what followed them, ``[T, B, 4]``."""
    pieces = [
        swing[s : s + steps + 1]
        for swing in swings
        for s in torch.linspace(0, len(swing) - steps - 1, STARTS).long().tolist()
    ]
    truth = torch.stack(pieces, dim=1)
    return truth[0], truth


def main() -> None:
    parser = tables.parser_of(__doc__)
    parser.add_argument("--epochs", type=int, default=400, help="of the networks")
    parser.add_argument("--develop", action="store_true", help="see above")
    parser.add_argument("--work", type=Path, default=Path("runs/double_pendulum"))
    arguments = parser.parse_args()
    training, judged, dt = read_swings()
    if arguments.develop:
        training, judged = training[:-4], training[-4:]
    series = make_series(training, dt=dt)
    steps = round(HORIZON / dt)
    t = dt * torch.arange(steps + 1, dtype=torch.float64)
    first, truth = starts(judged, steps)
    spread = torch.cat(judged).std(0)
    methods: dict[str, Callable[[Series], Callable] | None] = {
        "unchanged state": None,
        "weak library fit": library,
        "weak random features": features,
        "weak network": network("weak", arguments.epochs, arguments.work),
        "weak-penalty network": network("wp", arguments.epochs, arguments.work),
    }
    rows = []
    for name, fit in methods.items():
        began = time.process_time()
        path = first.expand_as(truth)
        if fit is not None:
            path = rollout(fit(series), first, t, bound=1e3).u
        error = ((path - truth) / spread).square().mean(-1).sqrt()
        error = error.nan_to_num(nan=LOST).clamp(max=LOST)
        marks = [error[round(lead / dt)] for lead in LEADS]
        cells = [f"{x.mean():.3f} ({x.max():.3f})" for x in marks]
        rows.append((name, cells))
        took = time.process_time() - began
        print(name.ljust(22), *cells, f"{took:.0f} s of CPU", flush=True)
        if not arguments.develop:
            text = table(rows, len(first), series, arguments.epochs)
            tables.write_text(arguments.output / "double_pendulum.md", text)


def table(
    rows: list[tuple[str, list[str]]], forecasts: int, series: Series, epochs: int
) -> str:
    """A page: a field a row, a lead time a column."""
    return tables.page(
        "Double pendulum: error of forecasts on four held-out swings",
        f"{series.n_series} swings of {min(series.lengths)} to {max(series.lengths)} "
        f"samples to learn from, never joined; 4 ms apart; p = {WEAK['p']}, ell = "
        f"{WEAK['ell']}, q = {WEAK['q']}. {forecasts} forecasts, {STARTS} starts in "
        "each held-out swing, from measured states. Root mean square over the state in "
        "standard deviations of each component: mean over forecasts (and the worst).",
        tables.grid("field", [f"{lead:g} s" for lead in LEADS], rows),
        f"Library: polynomials of degree {DEGREE} in sines, cosines and velocities. "
        f"Random features: {FEATURES} of the same. Networks: 6-128-128-6-4, at most "
        f"{epochs} epochs, the checkpoint chosen on the last tenth of the training "
        "swings.",
    )


if __name__ == "__main__":
    main()
