"""All methods by name, those of the package and those they are compared with."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..model.estimator import WPNODE
from ..model.forecaster import Forecaster
from ..settings.presets import paper_config
from ..systems import preset
from .base import Baseline
from .mp_node import MPNODE

# Methods of the estimator; the first three with the paper's settings where it has some.
OWN: tuple[str, ...] = ("wp", "weak", "strong", "closed_form")
# Settings of systems that are rings of alike sites.
RINGS: dict[str, dict[str, Any]] = {
    "lorenz96": {"group": 2, "reach": 2},
    "kuramoto_sivashinsky": {"group": 8, "reach": 1, "jitter": 1e-3},
}
# The same knowledge for the closed form, with the paper's weak forms: one map for all
# sites; waves, and what shifts and mirrors of a ring leave of their products.
CLOSED_FORM: dict[str, dict[str, Any]] = {
    "lorenz96": {"field": "ring", "p": 8, "ell": 80, "q": 2},
    "kuramoto_sivashinsky": {
        "field": "library",
        "coordinates": "fourier",
        "symmetry": "shifts + odd_mirror",
        "p": 16,
        "ell": 60,
        "q": 2,
    },
}


def method_names() -> list[str]:
    """Every name :func:`make_method` knows."""
    return [*OWN, *sorted(Baseline._methods), "mp_node_persistent"]


def make_method(
    name: str,
    *,
    seed: int = 0,
    system: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Forecaster:
    """An unfitted model.

    Args:
        name: one of :func:`method_names`.
        seed: of everything it draws.
        system: name of one of the paper's systems, whose settings are then used.
        options: arguments of the class, which replace those.
    """
    given = dict(options or {})
    if name in OWN:
        return _own(name, seed, system, given)
    kind: type[Baseline]
    if name == "mp_node_persistent":
        kind, given = MPNODE, {"states": "persistent"} | given
    elif name in Baseline._methods:
        kind = Baseline._methods[name]
    else:
        raise ValueError(
            f"`methods` must be among {', '.join(method_names())}; got {name!r}."
        )
    known = {entry.name for entry in fields(kind)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise ValueError(
            f"{name} has no setting {unknown[0]!r}; it has {', '.join(sorted(known))}."
        )
    hints = RINGS.get(system or "", {})
    if "hidden" in known and system is not None:
        hints = hints | {"hidden": tuple(preset(system).hidden)}
    if name == "rafda":
        hints = {key: value for key, value in hints.items() if key != "jitter"}
    ours = {key: value for key, value in hints.items() if key in known}
    arguments: dict[str, Any] = {"seed": seed} | ours | given
    return kind(**arguments)


def _own(name: str, seed: int, system: str | None, given: dict[str, Any]) -> Forecaster:
    if name == "closed_form" or system is None:
        hints = CLOSED_FORM.get(system or "", {})
        chosen: dict[str, Any] = {"method": name, "seed": seed} | hints | given
        return WPNODE(**chosen)
    config = paper_config(system, name)  # type: ignore[arg-type]
    # With one step a sample its losses agree with those of dopri5 to eight digits.
    config.strong.solver = "rk4"
    listed: dict[str, Any] = {"config": config, "seed": seed} | given
    return WPNODE(**listed)
