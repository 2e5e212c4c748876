"""All methods beside the paper's rows: valid prediction times and costs.

    wpnode compare lorenz63 --methods deepskip,rafda --noise 0,0.01,0.05,0.1,0.2 \
        --draws 3 --substeps 1 -o benchmarks/accuracy/compare_lorenz63
    python benchmarks/accuracy/compare.py benchmarks/accuracy/compare_lorenz63

The command makes the runs, which can be stopped and continued at any time; this script
writes what ``runs.csv`` of a folder holds into its ``paper.md``. Methods missing there
are taken from ``results/<system>.csv``, where they were measured on the same data and
starts. The stored rows were judged with one step of rk4 a sample.
"""

import json
import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import paper
import tables

from wpnode_ext.baselines.comparison import read_rows, summary
from wpnode_ext.systems import NOISE_RATIOS, preset

DENSITIES = (
    "Divergence of the densities of long forecasts from those of the system, mean over "
    "components and over the same draws."
)
COSTS = (
    "Of a fit, means over all levels and draws: seconds of one core, and wall time on "
    "a shared machine, waiting included. A fit without epochs counts as one epoch."
)


def stored_rows(system: str, measured: Collection[str]) -> list[tables.Row]:
    """Rows of methods that another benchmark measured with the same seeds."""
    wanted = ("method", "noise", "vpt", "vpt_time", "seconds", "epochs")
    return [
        {key: row[key] for key in wanted} | {"draw": int(row["draw"])}
        for row in tables.read_results(
            tables.HERE / "results" / f"{system}.csv", ("method",)
        )
        if row["method"] not in measured
    ]


def table(folder: Path, note: str = "") -> str:
    """A page: our rows above the paper's, then densities and costs."""
    protocol = json.loads((folder / "protocol.json").read_text(encoding="utf-8"))
    system = protocol["system"]
    own: list[tables.Row] = read_rows(folder / "runs.csv")
    other: list[tables.Row] = []
    if protocol["samples"] == preset(system).n_samples:
        other = stored_rows(system, {row["method"] for row in own})
    rows = summary([*own, *other])
    elsewhere = sorted({row["method"] for row in other})
    methods = sorted({row["method"] for row in rows})
    found = {(row["method"], row["noise"]): row for row in rows}
    densities = [
        (method, [_kl(found.get((method, level))) for level in NOISE_RATIOS])
        for method in methods
        if method not in elsewhere
    ]
    heads = tables.percent(NOISE_RATIOS)
    return tables.page(
        f"{system}: mean valid prediction time, in Lyapunov times",
        _explanation(protocol, elsewhere),
        tables.grid("method", heads, _times(found, methods, paper.VPT[system])),
        "## Densities",
        DENSITIES,
        tables.grid("method", heads, densities),
        "## Cost",
        COSTS,
        tables.grid(
            "method",
            ["seconds", "wall time", "epochs", "seconds an epoch", "evaluations"],
            _costs(rows, methods),
        ),
        note=note,
    )


def _explanation(protocol: dict[str, Any], elsewhere: Sequence[str]) -> str:
    """Sizes, definitions and settings behind the numbers."""
    system, listed = protocol["system"], preset(protocol["system"])
    text = (
        f"{protocol['samples']} samples (the paper: {listed.n_samples}), "
        f"threshold {listed.threshold:g}, exponent {listed.lyapunov_exponent:g}. Mean "
        f"over the draws in brackets of the means over {protocol['starts']} starts "
        "each, +- standard deviation over draws; >= where starts were still valid at "
        "the horizon; empty cells were not measured."
    )
    given = [
        f"{method}.{key}={value}"
        for method, options in sorted(protocol["options"].items())
        for key, value in options.items()
    ]
    if given:
        text += f" Settings that are not the defaults: {', '.join(given)}."
    if elsewhere:
        text += f" {'; '.join(elsewhere)}: same data and starts, measured by "
        text += f"`{system}.py`, see `results/{system}.md`."
    return text


def _times(
    found: dict[tuple[str, float], tables.Row],
    methods: Sequence[str],
    printed: dict[str, paper.Levels],
) -> Iterator[tuple[str, list[str]]]:
    for method in sorted({*methods, *(label.split(",")[0] for label in printed)}):
        if method in methods:
            yield method, [_vpt(found.get((method, level))) for level in NOISE_RATIOS]
        for label, means in printed.items():
            if label.split(",")[0] == method:
                yield f"{label}, paper", [f"{value:.2f}" for value in means]


def _vpt(row: tables.Row | None) -> str:
    if row is None or not row["draws"]:
        return ""
    spread = "" if math.isnan(row["spread"]) else f" +- {row['spread']:.2f}"
    bound = ">= " if row["censored"] > 0 else ""
    return f"{bound}{row['vpt']:.2f}{spread} ({row['draws']})"


def _kl(row: tables.Row | None) -> str:
    return "" if row is None or math.isnan(row["kl"]) else f"{row['kl']:.2g}"


def _costs(
    rows: Sequence[tables.Row], methods: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    names = ("cpu_seconds", "seconds", "epochs", "evaluations")
    for method in methods:
        mine = [row for row in rows if row["method"] == method and row["draws"]]
        if not mine:
            continue
        busy, wall, epochs, evaluations = (tables.mean_of(mine, name) for name in names)
        each = (wall if math.isnan(busy) else busy) / epochs
        cells = [
            (busy, ".3g"),
            (wall, ".3g"),
            (epochs, ".0f"),
            (each, ".3g"),
            (evaluations, ".2g"),
        ]
        yield method, ["-" if math.isnan(x) else format(x, form) for x, form in cells]


def main() -> None:
    parser = tables.parser_of(__doc__)
    parser.add_argument("folder", type=Path, help="of `wpnode compare`")
    parser.add_argument("--note", default="", help="e.g. on rows of other commits")
    arguments = parser.parse_args()
    text = table(arguments.folder, arguments.note)
    tables.write_text(arguments.folder / "paper.md", text)
    print(text)


if __name__ == "__main__":
    main()
