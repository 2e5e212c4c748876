"""Cost of training: seconds an epoch, epochs and total, all methods in one run.

    python benchmarks/accuracy/cost.py [--repeats 3]

Lorenz-63, 10^4 samples, 5 % noise, one thread. Seconds are the processor's. For methods
with epochs the difference of two short trainings is taken, in which work that is done
once cancels; their number of epochs is the mean of ``wpnode compare``
(``compare_lorenz63/runs.csv``) or ``lorenz63.py`` (``results/lorenz63.csv``), where
they were trained to the end. Others are fitted whole. Methods take turns, and medians
count. The table is ``results/cost_lorenz63.md``.
"""

import statistics
import time

import paper
import tables
import torch

from wpnode_ext.baselines.comparison import read_rows
from wpnode_ext.baselines.methods import make_method
from wpnode_ext.baselines.protocol import Job, Protocol
from wpnode_ext.data import Series

NOISE, SYSTEM = 0.05, "lorenz63"
# Epochs of the two short trainings.
SHORT, LONG = 3, 13
TRAINED = ("wp", "weak", "strong", "mp_node", "vf_node")
SOLVED = ("closed_form", "weak_sindy", "wendy", "wkrr", "rafda", "skiprfm", "deepskip")
COLUMNS = ("seconds an epoch", "epochs", "total seconds", "the paper's (A100)")


def seconds(method: str, series: Series, epochs: int | None = None) -> float:
    """Seconds of the processor for one training."""
    options = {} if epochs is None else {"epochs": epochs}
    model = make_method(method, seed=1, system=SYSTEM, options=options)
    began = time.process_time()
    model.fit(series)
    return time.process_time() - began


def usual_epochs() -> dict[str, float]:
    """Mean epochs of finished trainings at this noise."""
    found: dict[str, list[float]] = {}
    rows = read_rows(tables.HERE / f"compare_{SYSTEM}" / "runs.csv")
    rows += tables.read_results(tables.HERE / "results" / f"{SYSTEM}.csv", ("method",))
    for row in rows:
        if row["noise"] == NOISE:
            found.setdefault(row["method"], []).append(float(row["epochs"]))
    return {method: statistics.fmean(values) for method, values in found.items()}


def measure(series: Series, repeats: int) -> dict[str, float]:
    """Seconds an epoch, or of a whole fit."""
    taken: dict[str, list[float]] = {}
    for _ in range(repeats):
        for method in TRAINED:
            extra = seconds(method, series, LONG) - seconds(method, series, SHORT)
            taken.setdefault(method, []).append(extra / (LONG - SHORT))
        for method in SOLVED:
            taken.setdefault(method, []).append(seconds(method, series))
        print(
            {name: round(values[-1], 4) for name, values in taken.items()}, flush=True
        )
    return {method: statistics.median(values) for method, values in taken.items()}


def table(taken: dict[str, float]) -> str:
    """A page: a method a row."""
    usual, rows = usual_epochs(), []
    for method, value in taken.items():
        epoch, epochs, total, printed = "", "", f"{value:.3g}", ""
        if method in TRAINED:
            epoch, total = f"{value:.3g}", ""
            if method in usual:
                epochs = f"{usual[method]:.0f}"
                total = f"{usual[method] * value:.0f}"
        if method in paper.COST:
            each, count, whole = paper.COST[method]
            printed = f"{each:g} x {count} = {whole}"
        rows.append((method, [epoch, epochs, total, printed]))
    return tables.page(
        "Cost of training on Lorenz-63",
        f"10^4 samples, {100 * NOISE:g} % noise, one thread. Seconds of the processor, "
        "medians of one run in which the methods took turns; epochs are those of "
        "trainings to the end, and empty where there was none.",
        tables.grid("method", COLUMNS, rows),
    )


def main() -> None:
    parser = tables.parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    series, _ = Protocol(system=SYSTEM).data(Job("cost", NOISE, 0))
    text = table(measure(series, arguments.repeats))
    tables.write_text(arguments.output / f"cost_{SYSTEM}.md", text)
    print(text)


if __name__ == "__main__":
    main()
