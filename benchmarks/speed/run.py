"""Runs the benchmarks of ``make bench``; results go to ``speed/results``.

python benchmarks/speed/run.py                     everything, about ten minutes
python benchmarks/speed/run.py --name weak_loss    or training_step, growth
python benchmarks/speed/run.py --device cuda       on a GPU
python benchmarks/speed/run.py --no-compile        without the torch.compile competitors
"""

import math
import sys
from pathlib import Path

import growth
import torch
import training_step
import weak_loss

from wpnode_ext import keep_freed_memory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import (  # noqa: E402
    RESULTS,
    described_parser,
    markdown,
    page,
    provenance,
    save_csv,
    write_text,
)

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


def run_weak_loss(stem: Path, device: torch.device, compiled: bool) -> str:
    rows = weak_loss.measure(device, compiled=compiled)
    save_csv(stem.with_suffix(".csv"), rows, device)
    summary = weak_loss.summarise(rows)
    mean = math.exp(sum(math.log(row["ratio"]) for row in summary) / len(summary))
    worst = min(row["ratio"] for row in summary)
    note = f"Geometric mean of the ratios {mean:.1f}, smallest {worst:.1f}."
    print(note)
    return f"{markdown(summary, SUMMARY)}\n\n{note}"


def run_training_step(stem: Path, device: torch.device, _: bool) -> str:
    rows = training_step.measure(device)
    save_csv(stem.with_suffix(".csv"), rows, device)
    columns = ("step", "ms", "network evaluations", "speed-up")
    table = markdown(rows, {name: name for name in columns})
    print(table)
    return table


def run_growth(stem: Path, device: torch.device, _: bool) -> str:
    rows = growth.measure(device)
    save_csv(stem.with_suffix(".csv"), rows, device)
    picture = stem.with_suffix(".png")
    growth.draw(rows, picture)
    slopes = ", ".join(
        f"{name} {growth.exponent(rows, name):.2f}" for name in growth.SWEEPS
    )
    return f"![cost]({picture.name})\n\nExponents over the last decade: {slopes}."


BENCHMARKS = {
    "weak_loss": run_weak_loss,
    "training_step": run_training_step,
    "growth": run_growth,
}
# Title and introduction of each page.
PAGES = {
    "weak_loss": (
        "Fused weak loss",
        'Forward and backward. "Roof" is the larger of two times, both measured in the '
        "same run: the multiplications and additions at the speed of torch's own GEMM, "
        "or the compulsory bytes (field and left-hand side read, gradient written) at "
        "the speed of a triad. Extra memory is the resident high-water mark of a call "
        "beyond inputs and gradient; the kernels also keep about 0.3 MB of scratch a "
        'thread between calls, which it does not show. "Banded matmul" writes the '
        "correlation as one dense K x N product, which only a short series allows; it "
        "is no competitor.",
    ),
    "training_step": (
        "Training step",
        "Lorenz-63 settings of the paper: MLP 3-200-200-3, 2048 segments, ell = 50, "
        "q = 2. The paper's way evaluates the network at every node of every "
        "segment, wpnode_ext once a sample.",
    ),
    "growth": ("Cost of the weak loss over N, D, ell and q", "One size varies."),
}


def main() -> None:
    parser = described_parser(__doc__, RESULTS)
    parser.add_argument("--name", choices=BENCHMARKS, action="append")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--no-compile", action="store_true")
    arguments = parser.parse_args()
    keep_freed_memory()
    device = arguments.device
    print(provenance(device))
    for name in arguments.name or BENCHMARKS:
        title, text = PAGES[name]
        stem = arguments.output / f"{name}_{device.type}"
        found = BENCHMARKS[name](stem, device, not arguments.no_compile)
        made = page(f"{title}, {device.type}", text, found, device=device)
        write_text(stem.with_suffix(".md"), made)


if __name__ == "__main__":
    main()
