"""What ``wpnode compare`` is asked for, checked before anything is fitted."""

import argparse
import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..baselines.protocol import Protocol
from ..baselines.scaled import same_distance
from ..data import Series
from ..systems import preset
from ..systems.presets import PRESETS
from .common import substeps_of
from .data import DataConfig, read_series

# Systems whose fields explode under Runge-Kutta steps from sample to sample.
STIFF = {"kuramoto_sivashinsky"}
# Steps a sample of rk4: with one, forecasts by the true field of Lorenz-63 hold for
# 10.7 Lyapunov times of 12.
RUNGE_KUTTA_STEPS = 4


def protocol_of(arguments: argparse.Namespace) -> Protocol:
    """What the arguments ask for, the same for every method."""
    options, stiff = settings(arguments.set), arguments.data in STIFF
    for method in options:
        if method not in arguments.methods:
            raise ValueError(
                f"`--set` must be for one of the methods {', '.join(arguments.methods)}"
                f"; got {method!r}. Add it to --methods, or leave the setting out."
            )
    solver = arguments.solver or ("etdrk4" if stiff else "rk4")
    fewest = RUNGE_KUTTA_STEPS if solver in ("rk4", "rk4_classic") else 1
    steps = substeps_of(arguments.substeps, solver, fewest)
    known = arguments.data in PRESETS
    _refuse(arguments, ("dt", "time", "reference") if known else ("samples",), known)
    if known:
        listed = preset(arguments.data)
        return Protocol(
            system=listed.name,
            samples=arguments.samples,
            lyapunov_exponent=arguments.lyapunov or listed.lyapunov_exponent,
            threshold=arguments.threshold or listed.threshold,
            starts=arguments.starts,
            horizon=arguments.horizon or 12.0,
            solver=solver,
            substeps=steps,
            options=options,
        )
    if not Path(arguments.data).exists():
        raise FileNotFoundError(
            f"`data` must be one of {', '.join(PRESETS)} or a file; there is no "
            f"{arguments.data}."
        )
    where = {"dt": arguments.dt, "time": arguments.time}
    series = read_series(DataConfig(path=arguments.data, **where))
    if series.dt is None:
        raise ValueError("`data` must have samples at equal distances to be compared.")
    reference = None
    if arguments.reference:
        reference = read_series(DataConfig(path=arguments.reference, **where))
        _check_reference(reference, series)
    return Protocol(
        series=series,
        reference=reference,
        lyapunov_exponent=arguments.lyapunov,
        threshold=arguments.threshold or 0.3,
        starts=arguments.starts,
        horizon=arguments.horizon,
        solver=solver,
        substeps=steps,
        options=options,
    )


def settings(entries: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``method.key=value`` by method; values are Python literals, or words."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        left, equals, text = entry.partition("=")
        method, dot, key = left.partition(".")
        if not (equals and dot and key):
            raise ValueError(f"`--set` must read METHOD.KEY=VALUE; got {entry!r}.")
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
        found.setdefault(method, {})[key] = value
    return found


def _refuse(arguments: argparse.Namespace, names: Sequence[str], system: bool) -> None:
    """Options that would be without effect."""
    for name in names:
        if getattr(arguments, name) is not None:
            kind, other = ("a system", "a file") if system else ("a file", "a system")
            raise ValueError(
                f"`--{name}` is for {other}; {arguments.data} is {kind}. Leave it out."
            )


def _check_reference(reference: Series, series: Series) -> None:
    if reference.dt is None:
        raise ValueError("`--reference` must have samples at equal distances.")
    if not same_distance(reference.dt, series.dt):
        raise ValueError(
            f"`--reference` must have samples {series.dt:g} apart, as the data have; "
            f"got {reference.dt:g}. Take it at the times of the data."
        )
    if reference.state_shape != series.state_shape:
        raise ValueError(
            f"`--reference` must have states of shape {list(series.state_shape)}, as "
            f"the data have; got {list(reference.state_shape)}."
        )
