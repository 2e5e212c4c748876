"""The table of ``wpnode compare``: cells, and a page that says what they mean."""

import math
from collections.abc import Sequence

from ..baselines.comparison import Row
from ..baselines.protocol import NOISE_MODE, SEEDS, Protocol


def unit_of(protocol: Protocol) -> str:
    """What valid prediction times are told in."""
    return "units of time" if protocol.lyapunov_exponent is None else "Lyapunov times"


def markdown(table: Sequence[Row], name: str, protocol: Protocol) -> str:
    """The table with what it means."""
    rows, header = cells(table)
    lines = [
        f"# Methods on {name}",
        "",
        *(f"- {text}" for text in _meaning(protocol)),
        "",
        f"| {' | '.join(header)} |",
        f"|{' --- |' * len(header)}",
    ]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    failed = failures(table)
    if failed:
        lines += ["", "Runs that failed:", "", *(f"- {text}" for text in failed)]
    return "\n".join([*lines, ""])


def _meaning(protocol: Protocol) -> list[str]:
    exponent, unit = protocol.lyapunov_exponent, unit_of(protocol)
    longest = "as far as the reference goes"
    if protocol.horizon is not None:
        longest = f"{protocol.horizon:g} {unit} at most"
    data = f"Data: {protocol.n_samples} samples"
    drawn = list(SEEDS)
    if protocol.system is None:
        drawn.remove("trajectory")
        if protocol.reference is None:
            data += f", of which the last {100 * protocol.held_back:g} %, filtered, "
            data += "are what forecasts are judged by"
        else:
            data += "; forecasts are judged by a reference"
    seeds = ", ".join(f"{name} {SEEDS[name]} + draw" for name in drawn)
    scale = "" if exponent is None else f", maximal Lyapunov exponent {exponent:g}"
    return [
        f"{data}. Noise (`{NOISE_MODE}`): Gaussian, its standard deviation in percent "
        "of the root mean square of all values. Draws are numbered from 0; "
        f"seeds: {seeds}.",
        f"VPT: valid prediction time in {unit}, and in units of time: until the pooled "
        "error, sqrt(sum_j (u_hat_j - u_j)^2 / sum_j var_j), exceeds "
        f"{protocol.threshold:g}{scale}. Mean over draws of the means over "
        f"{protocol.starts} starts, +- standard deviation over draws; forecasts run "
        f"{longest}, fields with `{protocol.solver}` (steps a sample, where fixed: "
        f"{protocol.substeps}). >=: some were still valid at their end.",
        "KL: mean over components of the divergence of densities of long forecasts.",
        "Seconds of the fit, which has one core: by the clock, and the core's own.",
        "Evaluations: states at which the fit, its choice of settings included, "
        "computed a field or map, its features or its derivative.",
    ]


def failures(table: Sequence[Row]) -> list[str]:
    """Where runs failed, and why."""
    return [
        f"{row['method']} at {100 * row['noise']:g} %: {row['failure']}"
        for row in table
        if row["failure"]
    ]


def cells(table: Sequence[Row]) -> tuple[list[list[str]], list[str]]:
    """Rows of text, and the header."""
    header = [
        "method",
        "noise",
        "draws",
        "VPT",
        "VPT (time)",
        "KL",
        "seconds",
        "of the core",
        "epochs",
        "evaluations",
    ]
    texts = []
    for row in table:
        # Means with starts still valid at the horizon are lower bounds.
        bound = ">= " if row["censored"] > 0 else ""
        vpt = bound + number(row["vpt"], ".2f")
        if not math.isnan(row["spread"]):
            vpt += f" +- {row['spread']:.2f}"
        texts.append(
            [
                row["method"],
                f"{100 * row['noise']:g} %",
                str(row["draws"]),
                vpt,
                bound + number(row["vpt_time"], ".3g"),
                number(row["kl"], ".3g"),
                number(row["seconds"], ".3g"),
                number(row["cpu_seconds"], ".3g"),
                number(row["epochs"], ".0f"),
                number(row["evaluations"], ".2g"),
            ]
        )
    return texts, header


def number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else format(value, form)
