"""The picture of the README: noisy data, a forecast, and how long forecasts hold.

    python benchmarks/accuracy/picture.py    # a minute on one CPU core

Fits the closed form with random features to draw 0 of the tables (Lorenz-63, 10 %
noise) and shows, of 50 forecasts from clean states, the one of median length. Dotted
lines and curves are means of ``results/closed_form_lorenz63.csv`` (random features) and
``results/lorenz63.csv`` ("wp"), and the paper's best method at each level of noise.
Writes ``docs/picture.svg``.
"""

from collections.abc import Sequence

import paper
import tables
import torch
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from closed_form import SEEDS, SYSTEMS, TEXT
from wpnode_ext import WPNODE
from wpnode_ext.data import add_noise
from wpnode_ext.metrics.evaluation import Evaluation
from wpnode_ext.systems import NOISE_RATIOS

NOISE, VARIANT, BEYOND, STARTS, SHOWN = 0.1, "features", 20_000, 50, 400
OURS, PAPER, NETWORK = "tab:orange", "tab:blue", "tab:green"


def fit() -> tuple[Tensor, Tensor, Tensor, Evaluation]:
    """Truth, noisy data and refined states of the record, and the forecasts."""
    setting = SYSTEMS["lorenz63"]
    listed = setting.preset
    n, dt, exponent = listed.n_samples, listed.dt, listed.lyapunov_exponent
    path, noise, weights, places = SEEDS[False]
    clean = listed.system.simulate(n + BEYOND, dt, seed=path)
    noisy, _ = add_noise(clean[:n], NOISE, mode="global_rms", seed=noise)
    model = WPNODE(seed=weights, **setting.variants[VARIANT]).fit(noisy, dt)
    assert model.states_ is not None
    result = model.evaluate(
        clean[n:],
        dt,
        lyapunov_exponent=exponent,
        threshold=listed.threshold,
        starts=STARTS,
        horizon=6 / exponent,
        seed=places,
    )
    return clean[:n], noisy, model.states_, result


def draw_data(axes: Axes, clean: Tensor, noisy: Tensor, states: Tensor) -> None:
    t = SYSTEMS["lorenz63"].preset.dt * torch.arange(SHOWN)
    axes.plot(t, noisy[:SHOWN, 0], ".", color="0.65", ms=3, label="data, 10 % noise")
    axes.plot(t, clean[:SHOWN, 0], "k", lw=1.2, label="truth")
    axes.plot(t, states[:SHOWN, 0], "--", color=OURS, lw=1.2, label="learned states")
    axes.set(title="noisy samples", xlabel="time", ylabel="x")
    axes.legend(loc="upper left", fontsize="small")


def draw_forecast(axes: Axes, result: Evaluation, ends: dict[str, float]) -> None:
    """The forecast of median length, and mean valid prediction times as lines."""
    middle = result.vpt.vpt.argsort()[STARTS // 2]
    t = SYSTEMS["lorenz63"].preset.lyapunov_exponent * result.t[::2]
    truth, forecast = result.u[::2, middle, 0], result.u_hat[::2, middle, 0]
    axes.plot(t, truth, "k", lw=1.2, label="truth")
    axes.plot(t, forecast, "--", color=OURS, lw=1.2, label="forecast")
    for (name, end), color in zip(ends.items(), (OURS, PAPER), strict=True):
        axes.axvline(end, color=color, lw=1.2, ls=":", label=f"{name}: {end:.1f}")
    axes.set(title="forecast, 10 % noise", xlabel="Lyapunov times", ylabel="x")
    axes.set_ylim(-18, 35)
    axes.legend(loc="upper left", fontsize="small", ncols=2)


def draw_times(axes: Axes, curves: dict[str, Sequence[float]]) -> None:
    """Mean valid prediction times over the levels of noise above zero."""
    styles = zip(("o-", "s-", "^-"), (OURS, PAPER, NETWORK), strict=True)
    levels = [f"{100 * level:g}" for level in NOISE_RATIOS[1:]]
    for (label, values), (style, color) in zip(curves.items(), styles, strict=True):
        axes.plot(levels, values[1:], style, color=color, label=label)
    axes.set(title="valid prediction time", xlabel="noise, %", ylabel="Lyapunov times")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right", fontsize="small")


def means(rows: list[tables.Row], key: str, name: str) -> list[float]:
    """Means over the draws, one for every level of noise."""
    return [
        tables.mean_of(
            [r for r in rows if (r[key], r["noise"]) == (name, level)], "vpt"
        )
        for level in NOISE_RATIOS
    ]


def main() -> None:
    parser = tables.parser_of(__doc__)
    parser.set_defaults(output=tables.HERE.parents[1] / "docs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    clean, noisy, states, result = fit()
    print(result)
    folder = tables.HERE / "results"
    solved = tables.read_results(folder / "closed_form_lorenz63.csv", TEXT)
    trained = tables.read_results(folder / "lorenz63.csv", ("method",))
    curves: dict[str, Sequence[float]] = {
        "our closed form": means(solved, "variant", VARIANT),
        "the paper's best": paper.best("lorenz63"),
        "our network": means(trained, "method", "wp"),
    }
    place = NOISE_RATIOS.index(NOISE)
    ends = {name: curves[name][place] for name in list(curves)[:2]}
    # The same numbers give the same file.
    rcParams["svg.hashsalt"] = "wpnode_ext"
    figure = Figure(figsize=(11, 3.3), layout="constrained")
    left, centre, right = figure.subplots(1, 3)
    draw_data(left, clean, noisy, states)
    draw_forecast(centre, result, ends)
    draw_times(right, curves)
    figure.savefig(arguments.output / "picture.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
