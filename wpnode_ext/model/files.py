"""Files: a model with its weights, scalers and settings; refined states."""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..common.archives import read_npz
from ..common.files import check_weights, replacing
from ..coordinates.scaling import Scaler, check_scaler, scaler_from_state_dict
from ..fields import RESTRICTIONS, Field, as_linear, make_field
from ..fields.base import as_package_field, forcing_dim_of
from ..fields.factory import FieldConfig, count_weights
from ..settings.config import TrainConfig
from ..settings.text import from_settings, to_dict
from ..training import checkpoint
from ..training.trainer import Row
from .verdict import Verdict, verdict_from


class _Model(Protocol):
    """Attributes of a model that its file holds."""

    field_: nn.Module
    scaler_: Scaler
    forcing_scaler_: Scaler | None
    config_: TrainConfig
    state_shape_: tuple[int, ...]
    dt_: float | None
    names_: tuple[str, ...] | None
    members_: Sequence[nn.Module]
    process_noise_: float | None
    why_: str
    verdict_: Verdict | None


Model = TypeVar("Model")


class _OfData(Protocol):
    """The attributes that :func:`data_entries` writes."""

    scaler_: Scaler
    state_shape_: tuple[int, ...]
    dt_: float | None
    names_: tuple[str, ...] | None


def data_entries(model: _OfData) -> dict[str, Any]:
    """Entries of every file of a model: its scaler, its data's shape, versions."""
    return {
        "scaler": model.scaler_.state_dict(),
        "state_shape": list(model.state_shape_),
        "dt": model.dt_,
        "names": None if model.names_ is None else list(model.names_),
        "versions": {name: version(name) for name in ("wpnode_ext", "torch")},
    }


def restore_data(model: _OfData, state: dict[str, Any]) -> Scaler:
    """Sets the attributes of :func:`data_entries`; returns the scaler of the state."""
    model.state_shape_ = tuple(state["state_shape"])
    model.dt_ = state["dt"]
    model.names_ = None if state["names"] is None else tuple(state["names"])
    return scaler_from_state_dict(state["scaler"])


def write_model(model: _Model, path: str | Path) -> None:
    """Writes a fitted model, atomically."""
    field, inputs = model.field_, model.forcing_scaler_
    state = {
        "config": to_dict(model.config_),
        "model": checkpoint.weights_of(field),
        "field_class": type(field).__name__,
        "own_field": not _can_rebuild(model),
        "forcing_dim": forcing_dim_of(field),
        "forcing_scaler": None if inputs is None else inputs.state_dict(),
        "members": [checkpoint.weights_of(member) for member in model.members_],
        "process_noise": model.process_noise_,
        "why": model.why_,
        "verdict": None if model.verdict_ is None else model.verdict_.summary(),
    }
    checkpoint.save(path, "model", state | data_entries(model))


def read_model(path: str | Path, kind: type[Model], field: nn.Module | None) -> Model:
    """The model in a file, as an object of class `kind`."""
    state = checkpoint.load(path, "model")
    with checkpoint.whole_file(path, "model"):
        check_model(state)
        own = state["own_field"]
    if own and field is None:
        raise ValueError(
            f"{path} holds the weights of a {state['field_class']} of your own; give "
            "the module as `field=`."
        )
    with checkpoint.whole_file(path, "model"):
        return _made(state, kind, field, path)


def _made(
    state: dict[str, Any], kind: type[Model], field: nn.Module | None, path: str | Path
) -> Model:
    """The model that checked entries describe."""
    config = from_settings(TrainConfig, state["config"])
    scaler, weights = scaler_from_state_dict(state["scaler"]), state["model"]
    if field is None:
        shape = scaler.scaled_shape(tuple(state["state_shape"]))
        stored = sum(weight.numel() for weight in weights.values())
        check_field_size(config.field, shape, state["forcing_dim"], stored)
        generator = torch.Generator().manual_seed(0)
        field = make_field(config.field, shape, state["forcing_dim"], generator)
        linear = as_linear(field)
        if linear is not None and state["field_class"] in RESTRICTIONS:
            field = RESTRICTIONS.find(state["field_class"])(linear, weights)
    first = next((w for w in weights.values() if w.is_floating_point()), None)
    field = field.to(torch.float32 if first is None else first.dtype)
    _load_weights(field, weights, path)
    inputs = state["forcing_scaler"]
    model: Any = kind(config=config)  # type: ignore[call-arg]
    model._set_model(
        field,
        scaler,
        None if inputs is None else scaler_from_state_dict(inputs),
        config,
    )
    restore_data(model, state)
    model.why_ = state["why"]
    model.process_noise_ = state["process_noise"]
    model.verdict_ = verdict_from(state["verdict"])
    model.members_ = []
    for member in state["members"]:
        model.members_.append(deepcopy(field))
        _load_weights(model.members_[-1], member, path)
    return model


def _can_rebuild(model: _Model, probes: int = 16) -> bool:
    """True if the settings and the weights alone give the same function.

    The field and the one that the settings describe are compared at `probes` states.
    """
    field = as_package_field(model.field_)
    if field is None:
        return False
    # The file holds what restricts a field; the settings must describe the rest.
    field = field.described
    shape = model.scaler_.scaled_shape(model.state_shape_)
    generator = torch.Generator().manual_seed(0)
    inputs = field.forcing_dim
    try:
        twin = make_field(model.config_.field, shape, inputs, generator)
    except ValueError:
        return False
    parts = [[type(part) for part in module.modules()] for module in (field, twin)]
    if parts[0] != parts[1]:
        return False
    try:
        twin.double().load_state_dict(checkpoint.weights_of(field))
    except RuntimeError:
        return False
    # Further arguments of a constructor show in the values alone.
    u = torch.randn(probes, *shape, generator=generator)
    x = torch.randn(probes, inputs, generator=generator) if inputs else None
    return torch.allclose(_values(field, u, x), _values(twin, u, x), equal_nan=True)


@torch.no_grad()
def _values(field: Field, u: Tensor, x: Tensor | None) -> Tensor:
    """The field at `u` and `x` in float64, whatever its device and precision."""
    there = deepcopy(field).to("cpu", torch.float64)
    return there.at(u.double(), None if x is None else x.double())


def _load_weights(field: nn.Module, weights: dict[str, Any], path: str | Path) -> None:
    try:
        field.load_state_dict(weights)
    except RuntimeError as error:
        raise checkpoint.CheckpointError(
            f"the weights in {path} do not fit {type(field).__name__}: {error}"
        ) from error


_TYPES: dict[str, tuple[type, ...]] = {
    "config": (dict,),
    "model": (dict,),
    "field_class": (str,),
    "own_field": (bool,),
    "forcing_dim": (int,),
    "scaler": (dict,),
    "forcing_scaler": (dict, type(None)),
    "state_shape": (list,),
    "dt": (float, int, type(None)),
    "names": (list, type(None)),
    "members": (list,),
    "process_noise": (float, type(None)),
    "why": (str,),
    "verdict": (dict, type(None)),
    "versions": (dict,),
}
# Numbers of a verdict; its other entries are texts and one truth value.
_VERDICT = {"grade": str, "reason": str, "held_out": bool}


def check_model(state: dict[str, Any]) -> None:
    """Raises ValueError unless every entry is there and of its type."""
    for name, types in _TYPES.items():
        if type(state[name]) not in types and not isinstance(state[name], types):
            raise ValueError(
                f"{name} must be {_words(types)}; got {type(state[name]).__name__}"
            )
    shape = state["state_shape"]
    if not shape or not all(type(n) is int and n > 0 for n in shape):
        raise ValueError(f"state_shape must hold positive numbers; got {shape}")
    if type(state["forcing_dim"]) is not int or state["forcing_dim"] < 0:
        raise ValueError(f"forcing_dim must be >= 0; got {state['forcing_dim']}")
    for name in ("dt", "process_noise"):
        value = state[name]
        if value is not None and not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be positive; got {value}")
    if state["dt"] == 0:
        raise ValueError("dt must be positive; got 0")
    size = math.prod(shape)
    names = state["names"]
    if names is not None and not (
        len(names) == size and all(isinstance(name, str) for name in names)
    ):
        raise ValueError(f"names must be {size} texts, one an entry of the state")
    check_weights(state["model"], "model")
    for number, member in enumerate(state["members"]):
        check_weights(member, f"members[{number}]")
    check_scaler(state["scaler"], "scaler", shape)
    if (state["forcing_scaler"] is None) != (state["forcing_dim"] == 0):
        raise ValueError("forcing_scaler must be there where forcing_dim is not 0")
    if state["forcing_scaler"] is not None:
        inputs = [state["forcing_dim"]]
        check_scaler(state["forcing_scaler"], "forcing_scaler", inputs)
    if state["verdict"] is not None:
        _check_verdict(state["verdict"])


def check_field_size(
    config: FieldConfig, shape: tuple[int, ...], forcing_dim: int, stored: int
) -> None:
    """Raises ValueError if a field would have far more numbers than a file has.

    Args:
        config: settings of the field.
        shape: of its states.
        forcing_dim: inputs.
        stored: numbers in the file.
    """
    size = count_weights(config, shape, forcing_dim)
    # Some kinds have a few entries beside those that are counted here.
    if size > 2 * stored + 100:
        raise ValueError(
            f"its settings describe a field of {size} numbers, and it holds {stored}"
        )


def _check_verdict(verdict: dict[str, Any]) -> None:
    for name, value in verdict.items():
        kind = _VERDICT.get(name)
        right = (
            value is None or type(value) in (int, float)
            if kind is None
            else type(value) is kind
        )
        if not right:
            raise ValueError(f"verdict.{name} must not be {type(value).__name__}")
    if verdict["grade"] not in ("good", "usable", "do not use"):
        raise ValueError(f"verdict.grade must be known; got {verdict['grade']!r}")


def _words(types: tuple[type, ...]) -> str:
    names = ["None" if kind is type(None) else kind.__name__ for kind in types]
    return " or ".join(names)


@dataclass(frozen=True)
class RefinedStates:
    """States a field was refined with.

    Attributes:
        states, std: at the samples, in the units of the data, ``[N, *state]``.
        sigma: noise, ``[*state]``.
        rounds: one entry a round of refinement.
        process_noise: error of the field from sample to sample that was allowed for, in
            units of the noise; None where none was.
    """

    states: Float[Tensor, "N ..."]
    std: Float[Tensor, "N ..."]
    sigma: Float[Tensor, "..."]
    rounds: list[Row]
    process_noise: float | None = None


def write_states(path: Path, found: RefinedStates) -> None:
    """Writes under a temporary name and renames: never half a file."""
    rounds = found.rounds
    names = sorted({name for row in rounds for name in row})
    table = [[row.get(name, np.nan) for name in names] for row in rounds]
    arrays = {
        "states": found.states.numpy(),
        "std": found.std.numpy(),
        "sigma": found.sigma.numpy(),
        "round_names": np.array(names, dtype=str),
        "rounds": np.array(table, dtype=float).reshape(len(rounds), len(names)),
    }
    with replacing(path, "wb") as file:
        np.savez_compressed(file, **arrays)


def read_states(path: Path) -> RefinedStates:
    """The file of a run folder.

    Raises:
        ValueError: it is damaged, or another kind of file.
    """
    try:
        arrays = read_npz(path)
        names = [str(name) for name in arrays["round_names"].tolist()]
        rounds = [
            {name: float(value) for name, value in zip(names, row, strict=True)}
            for row in arrays["rounds"].tolist()
        ]
        states, std, sigma = (
            torch.from_numpy(arrays[key].astype(np.float64))
            for key in ("states", "std", "sigma")
        )
    except FileNotFoundError:
        raise
    except Exception as error:  # readers of damaged bytes fail in any way
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{path} cannot be read as refined states ({reason}). Remove it, or train "
            "again."
        ) from error
    return RefinedStates(states, std, sigma, rounds)
