"""How often intervals of ensembles hold the truth: Lorenz-63, N = 10^4.

    python benchmarks/accuracy/coverage.py [--draws 5] [--starts 50] [--members 40]

Closed form with refined states. Two kinds of forecasts: from clean states beyond the
training part, where the field alone errs; and from states within it that every member
estimates from the noisy samples (``draw_starts``), where the start errs too. The share
of true values inside the central interval is to be compared with the level of the
interval. Finished runs are kept in ``results/coverage_lorenz63.csv``, the table goes to
``results/coverage_lorenz63.md``.
"""

import argparse
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from finished import append, read_results

from wpnode_ext.data import add_noise
from wpnode_ext.model.ensemble import EnsembleForecast
from wpnode_ext.model.estimator import WPNODE
from wpnode_ext.systems import Lorenz63

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from bench import provenance, write_text  # noqa: E402

N, DT, BEYOND, EXPONENT = 10_000, 0.01, 10_000, 0.91
NOISE, FIELDS, LEVELS = (0.01, 0.05, 0.2), ("library", "features"), (0.5, 0.9)
# In Lyapunov times.
LEADS = (0.5, 1.0, 2.0, 3.0)
SEEDS = (5000, 6000, 7000, 8000)
COLUMNS = ("field", "noise", "draw", "start", "level", "lead", "inside")
TEXT = ("field", "start")


def run(
    kind: str, noise: float, draw: int, starts: int, members: int
) -> Iterator[dict[str, Any]]:
    """Shares of true values inside the intervals of one model."""
    path, noises, weights, places = (seed + draw for seed in SEEDS)
    clean = Lorenz63().simulate(N + BEYOND, DT, seed=path)
    noisy, _ = add_noise(clean[:N], noise, mode="global_rms", seed=noises)
    model = WPNODE(field=kind, ensemble=members, seed=weights).fit(noisy, DT)
    ahead = [round(lead / EXPONENT / DT) for lead in LEADS]
    t = DT * torch.tensor([0, *ahead], dtype=torch.float64)
    generator = torch.Generator().manual_seed(places)
    room = torch.rand(starts, generator=generator)
    for start, first, last in (("clean", N, N + BEYOND), ("estimated", N // 10, N)):
        begin = first + (room * (last - first - ahead[-1])).long()
        u0 = clean[begin]
        if start == "estimated":
            u0 = model.draw_starts(noisy, DT, at=begin, seed=places)
        found = model.forecast_ensemble(u0, t, method="rk4_classic", step=DT)
        # Those of the start itself are left out.
        found = EnsembleForecast(found.members[:, 1:], found.t[1:])
        truth = clean[begin + torch.tensor(ahead)[:, None]]
        for level in LEVELS:
            low, high = found.interval(level)
            inside = ((low <= truth) & (truth <= high)).double().mean((1, 2))
            for lead, share in zip(LEADS, inside.tolist(), strict=True):
                values = (kind, noise, draw, start, level, lead, share)
                yield dict(zip(COLUMNS, values, strict=True))


def table(rows: list[dict[str, Any]], starts: int, members: int) -> str:
    """Markdown: shares over the draws, by field, noise and kind of start."""
    draws = 1 + max(int(row["draw"]) for row in rows)
    lines = [
        "# Lorenz-63: share of true values inside the intervals of ensembles",
        "",
        f"N = {N}, dt = {DT:g}, noise of the global RMS, closed form with refined "
        f"states, {members} members, up to {draws} draws x {starts} starts (seeds "
        f"{SEEDS} + draw of trajectory, noise, field, starts), exponent {EXPONENT:g}. "
        "Mean over the draws, in brackets the least and the largest of them.",
        "",
        "| field | noise | start | level | "
        + " | ".join(f"{lead:g} Lyapunov times" for lead in LEADS)
        + " |",
        "| --- |" + " --- |" * (3 + len(LEADS)),
    ]
    keys = ("field", "noise", "start", "level")
    for key in sorted({tuple(row[k] for k in keys) for row in rows}):
        cells = []
        for lead in LEADS:
            found = [
                row["inside"]
                for row in rows
                if (*(row[k] for k in keys), row["lead"]) == (*key, lead)
            ]
            cells.append(
                f"{statistics.fmean(found):.2f} ({min(found):.2f}-{max(found):.2f})"
            )
        kind, noise, start, level = key
        head = f"| {kind} | {100 * noise:g} % | {start} | {level:g} | "
        lines.append(head + " | ".join(cells) + " |")
    return "\n".join([*lines, "", f"*{provenance(torch.device('cpu'))}*", ""])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--members", type=int, default=40)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    stem = arguments.output / "coverage_lorenz63"
    path = stem.with_suffix(".csv")
    done = {
        (row["field"], row["noise"], int(row["draw"]))
        for row in read_results(path, TEXT)
    }
    for draw in range(arguments.draws):
        for kind in FIELDS:
            for noise in NOISE:
                if (kind, noise, draw) in done:
                    continue
                found = run(kind, noise, draw, arguments.starts, arguments.members)
                for row in list(found):
                    append(path, COLUMNS, row)
                print(kind, noise, draw, flush=True)
                rows = read_results(path, TEXT)
                text = table(rows, arguments.starts, arguments.members)
                write_text(stem.with_suffix(".md"), text)
    print(stem.with_suffix(".md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
