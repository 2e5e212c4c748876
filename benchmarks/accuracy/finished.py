"""Finished runs of a table, kept in a CSV file so that none is repeated."""

import csv
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any


def read_results(path: Path, text: Collection[str]) -> list[dict[str, Any]]:
    """The rows so far; columns that are not in `text` are numbers."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            {k: v if k in text else float(v) for k, v in row.items()}
            for row in csv.DictReader(file)
        ]


def append(path: Path, columns: Sequence[str], row: dict[str, Any]) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns)
        if new:
            writer.writeheader()
        writer.writerow(row)
