"""Runs the benchmarks, stores CSV files and renews the tables of benchmarks/README.md.

python benchmarks/speed/run.py                     everything, about ten minutes
python benchmarks/speed/run.py --name weak_loss    or training_step, growth
python benchmarks/speed/run.py --device cuda       on a GPU
python benchmarks/speed/run.py --no-compile        without the torch.compile competitors
"""

import argparse
import math
import re
import sys
from pathlib import Path

import growth
import torch
import training_step
import weak_loss

from wpnode_ext import keep_freed_memory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import ROOT, markdown, provenance, save_csv  # noqa: E402

SUMMARY = {
    "case": "case",
    "shape": "N x D, ell, q",
    "dtype": "dtype",
    "fused ms": "ours, ms",
    "best": "fastest competitor",
    "best ms": "its ms",
    "ratio": "ratio",
    "banded ms": "banded matmul, ms",
    "% of roof": "% of roof",
    "bound": "bound by",
    "extra % of input": "extra memory, % of input",
}


def run_weak_loss(device: torch.device, compiled: bool) -> str:
    rows = weak_loss.measure(device, compiled=compiled)
    save_csv("weak_loss", rows, device)
    summary = weak_loss.summarise(rows)
    mean = math.exp(sum(math.log(row["ratio"]) for row in summary) / len(summary))
    worst = min(row["ratio"] for row in summary)
    note = f"Geometric mean of the ratios {mean:.1f}, smallest {worst:.1f}."
    print(note)
    return f"{markdown(summary, SUMMARY)}\n\n{note}"


def run_training_step(device: torch.device, _: bool) -> str:
    rows = training_step.measure(device)
    save_csv("training_step", rows, device)
    columns = ("step", "ms", "network evaluations", "speed-up")
    table = markdown(rows, {name: name for name in columns})
    print(table)
    return table


def run_growth(device: torch.device, _: bool) -> str:
    rows = growth.measure(device)
    save_csv("growth", rows, device)
    path = growth.draw(rows, device)
    slopes = ", ".join(
        f"{name} {growth.exponent(rows, name):.2f}" for name in growth.SWEEPS
    )
    picture = f"![cost]({path.relative_to(ROOT)})"
    return f"{picture}\n\nExponents over the last decade: {slopes}."


BENCHMARKS = {
    "weak_loss": run_weak_loss,
    "training_step": run_training_step,
    "growth": run_growth,
}


def renew(name: str, device: torch.device, text: str) -> None:
    """Replaces what stands between the markers of one table."""
    path = ROOT / "README.md"
    key = f"{name} {device.type}"
    begin, end = f"<!-- begin {key} -->", f"<!-- end {key} -->"
    block = f"{begin}\n{text}\n\n*{provenance(device)}*\n{end}"
    page = path.read_text()
    if begin in page:
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        page = re.sub(pattern, lambda _: block, page, flags=re.DOTALL)
    else:
        page = f"{page.rstrip()}\n\n## {name}, {device.type}\n\n{block}\n"
    partial = path.with_suffix(".tmp")
    partial.write_text(page)
    partial.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--name", choices=BENCHMARKS, action="append")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--no-compile", action="store_true")
    arguments = parser.parse_args()
    keep_freed_memory()
    print(provenance(arguments.device))
    for name in arguments.name or BENCHMARKS:
        text = BENCHMARKS[name](arguments.device, not arguments.no_compile)
        renew(name, arguments.device, text)


if __name__ == "__main__":
    main()
