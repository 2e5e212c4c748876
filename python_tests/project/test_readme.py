"""The README: its Python runs, its table is that of stored results."""

import csv
import re
import runpy
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ACCURACY = ROOT / "benchmarks" / "accuracy"
LEVELS = (0.0, 0.01, 0.05, 0.1, 0.2)
NAMES = {
    "Lorenz-63": "lorenz63",
    "Lorenz-96": "lorenz96",
    "Kuramoto-Sivashinsky": "kuramoto_sivashinsky",
}
# File, column and value of the rows behind each line of the table, system by system.
SOURCES = {
    "Lorenz-63": {
        "closed form, random features": (
            "results/closed_form_lorenz63.csv",
            "variant",
            "features",
        ),
        "closed form, library": (
            "results/closed_form_lorenz63.csv",
            "variant",
            "library",
        ),
        "our WP network": ("results/lorenz63.csv", "method", "wp"),
    },
    "Lorenz-96": {
        "closed form, random features": (
            "results/closed_form_lorenz96.csv",
            "variant",
            "features, one map for all sites",
        ),
        "closed form, library": (
            "results/closed_form_lorenz96.csv",
            "variant",
            "library, needed terms",
        ),
        "our WP network, one draw": ("compare_lorenz96/runs.csv", "method", "wp"),
    },
    "Kuramoto-Sivashinsky": {
        "closed form, random features": (
            "results/closed_form_ks.csv",
            "variant",
            "features, symmetry",
        ),
        "closed form, library": ("results/closed_form_ks.csv", "variant", "library"),
    },
}


def stored_cells(file: str, column: str, value: str) -> list[str]:
    """Means over the draws as the table writes them, empty where none is stored."""
    with (ACCURACY / file).open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row[column] == value]
    cells = []
    for level in LEVELS:
        found = [row for row in rows if float(row["noise"]) == level]
        text = ""
        if found:
            bound = any(float(row["censored"]) > 0 for row in found)
            mean = statistics.fmean(float(row["vpt"]) for row in found)
            text = f"{'≥ ' if bound else ''}{mean:.2f}"
        cells.append(text)
    return cells


def table_lines() -> dict[str, dict[str, list[str]]]:
    """Cells of the README's table by system and label."""
    found: dict[str, dict[str, list[str]]] = {}
    for line in README.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 2 + len(LEVELS):
            continue
        system = re.match(r"\*\*(.+?)\*\*.*: (.*)", cells[0])
        if system:
            found[system.group(1)] = {system.group(2): cells[2:]}
        elif found:
            list(found.values())[-1][cells[0]] = cells[2:]
    return found


@pytest.mark.parametrize("system", SOURCES)
def test_table_shows_stored_results(system) -> None:
    paper = runpy.run_path(str(ACCURACY / "paper.py"))
    best = paper["best"](NAMES[system])
    expected = {"the paper's best": [f"{value:.2f}" for value in best]}
    for label, source in SOURCES[system].items():
        expected[label] = stored_cells(*source)
    assert table_lines()[system] == expected


def test_python_runs_as_it_stands(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert (tmp_path / "lorenz.pt").exists()
    assert "valid prediction time" in capsys.readouterr().out


def test_make_has_the_targets_that_the_pages_name() -> None:
    pages = (README, (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    named = {
        target
        for page in pages
        for words in re.findall(r"(?:`|^)make ([a-z \-]+?)(?:`|  )", page, re.MULTILINE)
        for target in words.split()
    }
    makefiles = "".join((ROOT / name).read_text() for name in ("Makefile", "cuda.mk"))
    targets = set(re.findall(r"^([a-z-]+):", makefiles, re.MULTILINE))
    assert {"demo", "test"} <= named
    assert named - targets == set()


def test_pictures_are_small() -> None:
    for path in re.findall(r"!\[.*?\]\((.+?)\)", README):
        assert (ROOT / path).stat().st_size < 150_000, path


DOCS = ["README.md", "CONTRIBUTING.md", "docs/tree.md", "benchmarks/README.md"]
DOCS += [str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "notes").glob("*.md")]


@pytest.mark.parametrize("page", DOCS)
def test_files_that_a_page_names_exist(page) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    tops = [(ROOT / page).parent, ROOT, ROOT / "wpnode_ext", ROOT / "csrc" / "cuda"]
    named = re.findall(r"`([\w/.]+\.(?:py|cpp|cuh?|h|md|csv|svg))`", text)
    missing = [
        name
        for name in named
        if "*" not in name and not any((top / name).exists() for top in tops)
    ]
    assert missing == []
