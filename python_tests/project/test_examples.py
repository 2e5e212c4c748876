"""Every example runs with ``--fast`` and writes its figure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The module that the examples share is none itself.
EXAMPLES = [
    path
    for path in sorted((ROOT / "examples").glob("*.py"))
    if path.stem != "command_line"
]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_fast(path, tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, str(path), "--fast"],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    if done.stdout.startswith("skipped:"):
        pytest.skip(done.stdout.strip())
    assert list((tmp_path / "figures").glob("*.png")), done.stdout


def test_table_lists_every_example() -> None:
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert [p.name for p in EXAMPLES if f"`{p.name}`" not in text] == []
