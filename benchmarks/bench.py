"""Fair timing: candidates take turns, medians are compared, roofs are measured too.

Absolute times on a shared machine mean little; ratios of medians from interleaved
repeats hold. Every table is stored with the machine, the versions and the commit.
"""

import argparse
import csv
import ctypes
import gc
import io
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from wpnode_ext import build_info

ROOT = Path(__file__).resolve().parent
RESULTS = ROOT / "speed" / "results"


@dataclass(frozen=True)
class Timing:
    """Seconds of one candidate: median and quartiles of its repeats."""

    median: float
    low: float
    high: float
    repeats: int


def interleave(
    candidates: Mapping[str, Callable[[], object]],
    *,
    device: torch.device,
    seconds: float = 0.7,
    turn: float = 2e-2,
) -> dict[str, Timing]:
    """Times each candidate about `seconds`, in turns with the others.

    A turn is as many calls as fit into `turn` seconds, at least one; their mean counts
    as one repeat. A candidate drops out once it has used its time, after five turns at
    least.
    """
    turns = {}
    for name, call in candidates.items():
        call()
        calls = max(1, int(turn / _seconds_of(call, 1, device)))
        turns[name] = calls
    times: dict[str, list[float]] = {name: [] for name in candidates}
    gc.collect()
    gc.disable()
    try:
        waiting = dict(candidates)
        while waiting:
            for name, call in list(waiting.items()):
                times[name].append(_seconds_of(call, turns[name], device))
                spent = sum(times[name]) * turns[name]
                if len(times[name]) >= 5 and spent >= seconds:
                    del waiting[name]
    finally:
        gc.enable()
    return {name: _summary(values) for name, values in times.items()}


def _seconds_of(call: Callable[[], object], calls: int, device: torch.device) -> float:
    """Mean seconds of a call over `calls` calls."""
    if device.type != "cuda":
        began = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - began) / calls
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(calls):
        call()
    last.record()
    torch.cuda.synchronize(device)
    return first.elapsed_time(last) / 1000.0 / calls


def _summary(values: list[float]) -> Timing:
    low, median, high = statistics.quantiles(values, n=4)
    return Timing(median, low, high, len(values))


def peak_extra_bytes(
    call: Callable[[], object], device: torch.device, *, warm_up: bool = True
) -> int:
    """Peak memory of a call beyond what was allocated before it."""
    if warm_up:
        call()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        kept = call()
        del kept
        return torch.cuda.max_memory_allocated(device) - before
    _return_free_memory()
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = _status_bytes("VmRSS")
    kept = call()
    peak = _status_bytes("VmHWM")
    del kept
    return peak - before


def _return_free_memory() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {name}.")


def roofs(device: torch.device) -> dict[str, float]:
    """Bytes/s of a triad and flops/s of a GEMM, measured now."""
    n = 1 << 25
    a, b, c = (torch.ones(n, device=device) for _ in range(3))
    measured = {}
    triad = {"triad": lambda: torch.add(b, c, alpha=2.0, out=a)}
    best = interleave(triad, device=device, seconds=0.5)["triad"].low
    measured["bytes"] = 3 * 4 * n / best
    for dtype in (torch.float32, torch.float64):
        size = 1024
        x, y = (torch.ones(size, size, dtype=dtype, device=device) for _ in range(2))
        gemm = {"gemm": lambda x=x, y=y: torch.mm(x, y)}
        best = interleave(gemm, device=device, seconds=0.5)["gemm"].low
        measured[f"flops {dtype}"] = 2 * size**3 / best
    return measured


def write_text(path: Path, text: str) -> None:
    """Writes a file as a whole or not at all."""
    temporary = path.with_suffix(f"{path.suffix}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def _commit() -> str:
    try:
        return subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


# Read once: a commit made during a run must not be named for it.
_COMMIT = _commit()


def commit() -> str:
    """Short hash of the commit."""
    return _COMMIT


def provenance(device: torch.device, commits: Iterable[str] = ()) -> str:
    """One line: machine, versions, commit.

    Args:
        device: where it was measured.
        commits: versions of the code behind the rows; by default the current one.
    """
    names = sorted(set(commits)) or [commit()]
    info = build_info()
    if device.type == "cuda":
        machine = torch.cuda.get_device_name(device)
    else:
        machine = (
            f"{_processor()}, {torch.get_num_threads()} threads, "
            + info["cpu_capability"]
        )
    return (
        f"{machine}; torch {torch.__version__}, {info['compiler']}, "
        f"Python {platform.python_version()}; commit {', '.join(names)}; "
        + time.strftime("%F")
    )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def save_csv(path: Path, rows: list[dict], device: torch.device) -> None:
    """Writes rows to a CSV file, provenance in the first line."""
    text = io.StringIO()
    text.write(f"# {provenance(device)}\n")
    writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text.getvalue())


def markdown(rows: list[dict], columns: Mapping[str, str]) -> str:
    """A Markdown table of the named columns; values are printed as they are."""
    lines = ["| " + " | ".join(columns.values()) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(str(row[c]) for c in columns) + " |" for row in rows]
    return "\n".join(lines)


def described_parser(description: str | None, output: Path) -> argparse.ArgumentParser:
    """A parser that shows a script's docstring as it stands, with ``--output``."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=output, help="folder")
    return parser


def page(
    *parts: str,
    note: str = "",
    commits: Iterable[str] = (),
    device: torch.device | str = "cpu",
) -> str:
    """A Markdown page: a title, paragraphs, tables; last the machine and the commit.

    Args:
        parts: paragraphs, the title first.
        note: appended to the last line, e.g. about rows of another machine.
        commits: versions of the code that made the rows; by default the current one.
        device: where they were measured.
    """
    made = provenance(torch.device(device), commits)
    last = f"*{made}{'; ' if note else ''}{note}*"
    return "\n\n".join([f"# {parts[0]}", *parts[1:], last]) + "\n"
