"""The table of :mod:`closed_form`: means over draws beside the bars and the paper."""

import math
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from closed_form_systems import NOISE, SEEDS, SYSTEMS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench import provenance  # noqa: E402

# Quantile of Student's t for 95 %, by degrees of freedom.
STUDENT = {1: 12.7, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 9: 2.26}


def table(name: str, rows: list[dict[str, Any]], starts: int, note: str = "") -> str:
    """Markdown: mean over draws with its 95 % interval, and what goes with it."""
    setting = SYSTEMS[name]
    draws = 1 + max(int(row["draw"]) for row in rows)
    made_with = provenance(torch.device("cpu"), [row["commit"] for row in rows])
    lines = [
        f"# {name}: valid prediction time in Lyapunov times, closed form",
        "",
        f"N = {setting.n}, dt = {setting.dt:g}, noise of the global RMS, unknown to "
        f"the method. VPT: pooled error <= {setting.threshold:g}, exponent "
        f"{setting.exponent:g}, up to {draws} draws x {starts} clean starts beyond the "
        f"training part, horizon {setting.horizon[1]:g}, without noise "
        f"{setting.horizon[0]:g} (seeds {SEEDS[False]} + draw of "
        "trajectory, noise, field, starts). Mean over the draws and its 95 % interval "
        f"(Student's t over draws){_censored(rows, starts)}. "
        "KL: mean over the draws, in brackets that of two halves of the true "
        "trajectory. State error: root mean square over the noise, first states then "
        "refined ones. Seconds of the fit: of the processor, one thread; in brackets "
        "those that passed on a busy machine.",
        "",
        "| | " + " | ".join(f"{100 * level:g} %" for level in NOISE) + " |",
        "| --- |" + " --- |" * len(NOISE),
        _line("the paper's best", [f"{x:.2f}" for x in setting.paper]),
        _line("bar", [f">= {x:g}" for x in setting.bars]),
        _line("the paper's least KL", [f"{x:g}" for x in setting.paper_kl]),
    ]
    for variant in setting.variants:
        cells = [_cell(rows, variant, level) for level in NOISE]
        for label, key in (
            (f"**{variant}**", "vpt"),
            ("- each draw", "draws"),
            ("- in units of time", "time"),
            ("- KL", "kl"),
            ("- state error", "states"),
            ("- seconds", "seconds"),
        ):
            lines.append(_line(label, [cell.get(key, "") for cell in cells]))
    return "\n".join([*lines, "", f"*{made_with}{note and '; ' + note}*", ""])


def _cell(rows: list[dict[str, Any]], variant: str, level: float) -> dict[str, str]:
    found = [r for r in rows if (r["variant"], r["noise"]) == (variant, level)]
    if not found:
        return {}

    def mean(key: str) -> float:
        return statistics.fmean(row[key] for row in found)

    means = [row["vpt"] for row in found]
    bound = ">= " if any(row["censored"] > 0 for row in found) else ""
    text = f"{bound}{mean('vpt'):.2f}"
    if len(means) > 1:
        free = len(means) - 1
        half = STUDENT.get(free, 2.2) * statistics.stdev(means) / math.sqrt(len(means))
        text += f" ± {half:.2f}"
    lost = sum(row["bounded"] < 1 for row in found)
    return {
        "vpt": text,
        "draws": ", ".join(
            f"{'>= ' if row['censored'] > 0 else ''}{row['vpt']:.2f}" for row in found
        ),
        "time": f"{bound}{mean('vpt_time'):.2f}",
        "kl": f"{mean('kl'):.4f} ({mean('kl_truth'):.4f})"
        + (f", {lost} of {len(found)} with unbounded members" if lost else ""),
        # Data without noise leave nothing to refine.
        "states": ""
        if math.isnan(mean("state_error"))
        else f"{mean('first_error'):.2f}, {mean('state_error'):.3f}",
        "seconds": f"{mean('processor_seconds'):.0f} ({mean('fit_seconds'):.0f})",
    }


def _censored(rows: list[dict[str, Any]], starts: int) -> str:
    """How many forecasts ended before they failed; nothing where none did."""
    valid = int(sum(row["censored"] for row in rows))
    if valid == 0:
        return ""
    return (
        f"; >= where starts were still valid at the horizon, {valid} of "
        f"{len(rows) * starts} in all"
    )


def _line(label: str, cells: list[str]) -> str:
    return f"| {label} | {' | '.join(cells)} |"
