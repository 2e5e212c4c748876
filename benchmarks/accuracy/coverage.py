"""Share of true values inside intervals of ensembles: Lorenz-63, N = 10^4.

    python benchmarks/accuracy/coverage.py [--draws 5] [--starts 50] [--members 40]

Closed form with refined states. Two kinds of forecasts: from clean states beyond the
training part, where the field alone errs; and from states within it that every member
estimates from the noisy samples (``draw_starts``), where the start errs too. The share
of true values inside a central interval should equal the level of the interval.
Finished runs are kept in ``results/coverage_lorenz63.csv``, the table goes to
``results/coverage_lorenz63.md``.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence

import tables
import torch

from wpnode_ext import WPNODE
from wpnode_ext.data import add_noise
from wpnode_ext.model.ensemble import EnsembleForecast
from wpnode_ext.systems import preset

LISTED = preset("lorenz63")
N, DT, EXPONENT = LISTED.n_samples, LISTED.dt, LISTED.lyapunov_exponent
BEYOND = 10_000
NOISE, FIELDS, LEVELS = (0.01, 0.05, 0.2), ("library", "features"), (0.5, 0.9)
# In Lyapunov times.
LEADS = (0.5, 1.0, 2.0, 3.0)
SEEDS = (5000, 6000, 7000, 8000)
JOB = ("field", "noise", "draw")
COLUMNS = (*JOB, "start", "level", "lead", "inside")
TEXT = ("field", "start")


def run(job: tuple, starts: int, members: int) -> Iterator[tables.Row]:
    """Shares of true values inside the intervals of one model."""
    kind, noise, draw = job
    path, noises, weights, places = (seed + draw for seed in SEEDS)
    clean = LISTED.system.simulate(N + BEYOND, DT, seed=path)
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
        # The start itself is left out.
        found = EnsembleForecast(found.members[:, 1:], found.t[1:])
        truth = clean[begin + torch.tensor(ahead)[:, None]]
        for level in LEVELS:
            low, high = found.interval(level)
            inside = ((low <= truth) & (truth <= high)).double().mean((1, 2))
            for lead, share in zip(LEADS, inside.tolist(), strict=True):
                values = (*job, start, level, lead, share)
                yield dict(zip(COLUMNS, values, strict=True))


def table(rows: Sequence[tables.Row], starts: int, members: int) -> str:
    """A page: shares over the draws, by field, noise, kind of start and level."""
    draws = 1 + max(int(row["draw"]) for row in rows)
    keys = ("field", "noise", "start", "level")
    lines = []
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
        lines.append((kind, [f"{100 * noise:g} %", start, f"{level:g}", *cells]))
    heads = [f"{lead:g} Lyapunov times" for lead in LEADS]
    return tables.page(
        "Lorenz-63: share of true values inside the intervals of ensembles",
        f"N = {N}, dt = {DT:g}, noise of the global RMS, closed form with refined "
        f"states, {members} members, up to {draws} draws x {starts} starts (seeds "
        f"{SEEDS} + draw of trajectory, noise, field, starts), exponent {EXPONENT:g}. "
        "Mean over the draws, in brackets the least and the largest of them.",
        tables.grid("field", ["noise", "start", "level", *heads], lines),
    )


def main() -> None:
    parser = tables.parser_of(__doc__)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--members", type=int, default=40)
    arguments = parser.parse_args()
    path = arguments.output / "coverage_lorenz63.csv"
    jobs = [
        (kind, noise, draw)
        for draw in range(arguments.draws)
        for kind in FIELDS
        for noise in NOISE
    ]
    for job in tables.unfinished(jobs, tables.read_results(path, TEXT), JOB):
        for row in list(run(job, arguments.starts, arguments.members)):
            tables.append(path, COLUMNS, row)
        print(*job, flush=True)
        tables.write_text(path.with_suffix(".md"), _table_of(arguments))
    print(_table_of(arguments))


def _table_of(arguments: argparse.Namespace) -> str:
    rows = tables.read_results(arguments.output / "coverage_lorenz63.csv", TEXT)
    return table(rows, arguments.starts, arguments.members)


if __name__ == "__main__":
    main()
