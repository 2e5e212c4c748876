"""Growth of the cost of the fused loss with N, D, ell and q."""

import math
import sys
from pathlib import Path

import torch
from weak_loss import Case, problem, step

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import interleave  # noqa: E402

BASE = {"n_samples": 50_000, "state": 16, "ell": 50, "q": 2}
SWEEPS = {
    "n_samples": [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000],
    "state": [1, 3, 10, 30, 100, 300, 1000],
    "ell": [4, 10, 30, 100, 300, 1000],
    "q": [1, 3, 10, 30, 100, 300],
}


def measure(device: torch.device) -> list[dict]:
    rows = []
    for name, values in SWEEPS.items():
        steps = {}
        for value in values:
            case = Case(f"{name}={value}", **{**BASE, name: value})
            given = problem(case, torch.float32, device)
            steps[value] = step(given.plan.loss, given.f)
        times = interleave(steps, device=device, seconds=0.7)
        rows += [
            {"varied": name, "value": value, "ms": round(timing.median * 1e3, 4)}
            for value, timing in times.items()
        ]
        print(f"{name}: exponent {exponent(rows, name):.2f} over the last decade")
    return rows


def exponent(rows: list[dict], name: str) -> float:
    """Slope of log time over log value, last three points."""
    last = [row for row in rows if row["varied"] == name][-3:]
    ratio = math.log(last[-1]["ms"] / last[0]["ms"])
    return ratio / math.log(last[-1]["value"] / last[0]["value"])


def draw(rows: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        1, 4, figsize=(14, 3.4), layout="constrained", sharey=True
    )
    for axis, (name, values) in zip(axes, SWEEPS.items(), strict=True):
        points = [row for row in rows if row["varied"] == name]
        axis.loglog(values, [row["ms"] for row in points], "o-")
        if name != "q":
            last = points[-1]
            line = [last["ms"] * value / last["value"] for value in values]
            axis.loglog(values, line, "--", color="0.6", label="linear")
            axis.legend()
        axis.set_xlabel(name)
    axes[0].set_ylabel("forward + backward, ms")
    figure.savefig(path, dpi=110)
    plt.close(figure)
