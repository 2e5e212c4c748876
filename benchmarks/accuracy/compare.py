"""All methods beside the paper's rows: valid prediction times and costs.

    wpnode compare lorenz63 --methods deepskip,rafda --noise 0,0.01,0.05,0.1,0.2 \
        --draws 3 --substeps 1 -o benchmarks/accuracy/compare_lorenz63
    python benchmarks/accuracy/compare.py benchmarks/accuracy/compare_lorenz63

The command makes the runs, which can be stopped and continued at any time; this script
puts what ``runs.csv`` of a folder holds into its ``paper.md``. Methods that are not
there are taken from ``results/<system>.csv``, where they were measured on the same data
and starts. The stored rows were judged with one step of rk4 a sample.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from finished import read_results

from wpnode_ext.baselines.comparison import Row, read_rows, summary
from wpnode_ext.systems import preset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import provenance  # noqa: E402

NOISE = (0.0, 0.01, 0.05, 0.1, 0.2)
HERE = Path(__file__).parent
# Mean valid prediction times the paper prints, in its Lyapunov times; what follows a
# comma tells rows of one method apart.
PAPER: dict[str, dict[str, tuple[float, ...]]] = {
    "lorenz63": {
        "wp": (2.70, 2.77, 2.90, 2.23, 0.96),
        "strong": (2.55, 1.88, 1.39, 0.80, 0.36),
        "weak": (3.19, 3.29, 2.77, 1.60, 0.76),
        "mp_node": (1.20, 1.10, 0.86, 0.45, 0.20),
        "vf_node": (2.25, 2.30, 0.86, 0.57, 0.25),
        "deepskip": (4.47, 1.54, 0.56, 0.34, 0.11),
        "rafda": (1.51, 3.13, 2.62, 1.91, 1.16),
    },
    "lorenz96": {
        "wp": (3.65, 3.72, 3.24, 2.75, 2.08),
        "strong": (2.80, 2.74, 2.57, 1.94, 1.23),
        "weak": (3.66, 3.80, 3.19, 2.71, 1.99),
        "mp_node": (1.46, 1.48, 1.35, 1.29, 0.93),
        "vf_node": (0.20, 0.21, 0.20, 0.20, 0.21),
        "deepskip": (6.06, 4.26, 1.64, 1.78, 0.63),
    },
    "kuramoto_sivashinsky": {
        "wp": (3.38, 3.71, 3.31, 2.87, 1.53),
        "strong, T = 50": (2.78, 2.67, 2.89, 2.12, 1.27),
        "strong, T = 25": (2.61, 2.49, 2.45, 1.88, 1.32),
        "weak": (3.49, 3.82, 1.97, 2.42, 0.44),
        "mp_node": (1.63, 2.13, 2.37, 1.57, 1.14),
        "deepskip": (4.26, 2.51, 1.16, 0.76, 0.45),
    },
}


def stored_rows(system: str, measured: set[str]) -> list[Row]:
    """Rows of methods that another benchmark measured with the same seeds."""
    found = read_results(HERE / "results" / f"{system}.csv", ("method",))
    wanted = ("method", "noise", "vpt", "vpt_time", "seconds", "epochs")
    return [
        {key: row[key] for key in wanted} | {"draw": int(row["draw"])}
        for row in found
        if row["method"] not in measured
    ]


def table(folder: Path, note: str = "") -> str:
    """Markdown: ours above the paper's, then the costs."""
    protocol = json.loads((folder / "protocol.json").read_text(encoding="utf-8"))
    system, samples = protocol["system"], protocol["samples"]
    own, other = read_rows(folder / "runs.csv"), []
    if samples == preset(system).n_samples:
        other = stored_rows(system, {row["method"] for row in own})
    rows = summary([*own, *other])
    elsewhere = sorted({row["method"] for row in other})
    found = {(row["method"], row["noise"]): row for row in rows}
    methods = sorted({row["method"] for row in rows})
    head = " | ".join(f"{100 * level:g} %" for level in NOISE)
    listed = preset(system)
    told = (
        f"{samples} samples (the paper: {listed.n_samples}), "
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
        told += f" Settings that are not the defaults: {', '.join(given)}."
    if elsewhere:
        told += f" {' and '.join(elsewhere)}: same data and starts, measured by "
        told += f"`{system}.py`, see `results/{system}.md`."
    lines = [
        f"# {system}: mean valid prediction time, in Lyapunov times",
        "",
        told,
        "",
        f"| method | {head} |",
        "| --- |" + " --- |" * len(NOISE),
    ]
    paper = PAPER[system]
    for method in sorted({*methods, *(label.split(",")[0] for label in paper)}):
        if method in methods:
            cells = [_vpt(found.get((method, level))) for level in NOISE]
            lines.append(f"| {method} | {' | '.join(cells)} |")
        for label, means in paper.items():
            if label.split(",")[0] == method:
                values = " | ".join(f"{value:.2f}" for value in means)
                lines.append(f"| {label}, paper | {values} |")
    lines += [
        "",
        "## Densities",
        "",
        "Divergence of the densities of long forecasts from those of the system, mean "
        "over components and over the same draws.",
        "",
        f"| method | {head} |",
        "| --- |" + " --- |" * len(NOISE),
    ]
    for method in methods:
        if method not in elsewhere:
            cells = [_kl(found.get((method, level))) for level in NOISE]
            lines.append(f"| {method} | {' | '.join(cells)} |")
    lines += [
        "",
        "## Cost",
        "",
        "Of a fit, means over all levels and draws: the processor's time of one core, "
        "and by the clock of a shared machine, waiting included. A fit without epochs "
        "is one.",
        "",
        "| method | seconds | by the clock | epochs | seconds an epoch | evaluations |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for method in methods:
        mine = [row for row in rows if row["method"] == method and row["draws"]]
        if mine:
            lines.append(_cost(method, mine))
    made = provenance(torch.device("cpu"))
    return "\n".join([*lines, "", f"*{made}{note and '; ' + note}*", ""])


def _vpt(row: dict[str, Any] | None) -> str:
    if row is None or not row["draws"]:
        return ""
    spread = "" if math.isnan(row["spread"]) else f" +- {row['spread']:.2f}"
    bound = ">= " if row["censored"] > 0 else ""
    return f"{bound}{row['vpt']:.2f}{spread} ({row['draws']})"


def _kl(row: dict[str, Any] | None) -> str:
    return "" if row is None or math.isnan(row["kl"]) else f"{row['kl']:.2g}"


def _cost(method: str, rows: list[dict[str, Any]]) -> str:
    def mean(name: str) -> float:
        return sum(row[name] for row in rows) / len(rows)

    busy, clock, epochs = mean("cpu_seconds"), mean("seconds"), mean("epochs")
    each = (clock if math.isnan(busy) else busy) / epochs
    cells = [busy, clock, epochs, each, mean("evaluations")]
    shown = (".3g", ".3g", ".0f", ".3g", ".2g")
    texts = [
        "-" if math.isnan(value) else format(value, form)
        for value, form in zip(cells, shown, strict=True)
    ]
    return f"| {method} | {' | '.join(texts)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="of `wpnode compare`")
    parser.add_argument("--note", default="", help="on rows of other commits, say")
    arguments = parser.parse_args()
    text = table(arguments.folder, arguments.note)
    (arguments.folder / "paper.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
