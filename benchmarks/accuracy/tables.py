"""Finished runs in CSV files, so that none is repeated, and pages of tables from them.

Scripts of this folder take the rest of what they share, ``bench.py`` one folder up,
from here.
"""

import argparse
import csv
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from bench import commit, described_parser, page, write_text  # noqa: E402

__all__ = [
    "HERE",
    "Row",
    "append",
    "commit",
    "grid",
    "mean_of",
    "page",
    "parser_of",
    "percent",
    "read_results",
    "unfinished",
    "write_text",
]

Row = dict[str, Any]


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser with the folder of results as ``--output``."""
    return described_parser(description, HERE / "results")


def read_results(path: Path, text: Collection[str] = ()) -> list[Row]:
    """Rows of a file, none if it is missing; columns not in `text` are numbers."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            {k: v if k in text else float(v) for k, v in row.items()}
            for row in csv.DictReader(file)
        ]


def append(path: Path, columns: Sequence[str], row: Row) -> None:
    """Adds a row; a new file gets a line of column names first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns)
        if new:
            writer.writeheader()
        writer.writerow(row)


def unfinished(
    jobs: Iterable[tuple], rows: Iterable[Row], keys: Sequence[str]
) -> list[tuple]:
    """Jobs that have no row yet, in their order.

    Args:
        jobs: tuples of values of `keys`.
        rows: finished ones.
        keys: columns that identify a job.
    """
    finished = {tuple(row[key] for key in keys) for row in rows}
    return [job for job in jobs if job not in finished]


def mean_of(rows: Sequence[Row], key: str) -> float:
    """Mean of one column."""
    return sum(row[key] for row in rows) / len(rows)


def percent(levels: Iterable[float]) -> list[str]:
    """Levels of noise as the heads of columns."""
    return [f"{100 * level:g} %" for level in levels]


def grid(
    corner: str, head: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]
) -> str:
    """A Markdown table: every row has a label and a cell for every column."""
    lines = [f"| {corner} | {' | '.join(head)} |", "| --- |" + " --- |" * len(head)]
    lines += [f"| {label} | {' | '.join(cells)} |" for label, cells in rows]
    return "\n".join(lines)
