"""One file a model: weights, scalers, settings, versions; tensors and builtins only."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from ..coordinates.scaling import Scaler, scaler_from_state_dict
from ..fields import (
    EquivariantField,
    Field,
    LinearField,
    RestrictedField,
    SparseField,
    make_field,
)
from ..settings.config import TrainConfig, from_settings, to_dict
from ..training import checkpoint
from .schema import check_field_size, check_model
from .verdict import Verdict, verdict_from

# States at which a field and the one its settings describe are compared.
PROBES = 16
# Fields made of another one, and the tensor of theirs that says how.
RESTRICTIONS: dict[
    str, tuple[Callable[[LinearField, Tensor], RestrictedField], str]
] = {
    EquivariantField.__name__: (EquivariantField, "basis"),
    SparseField.__name__: (SparseField, "support"),
}


class _Model(Protocol):
    """What is written; see :class:`wpnode_ext.model.forecaster.Forecaster`."""

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


def write_model(model: _Model, path: str | Path) -> None:
    """Writes a fitted model, atomically."""
    field, inputs = model.field_, model.forcing_scaler_
    state = {
        "config": to_dict(model.config_),
        "model": checkpoint.weights_of(field),
        "field_class": type(field).__name__,
        "own_field": not _can_rebuild(model),
        "forcing_dim": field.forcing_dim if isinstance(field, Field) else 0,
        "scaler": model.scaler_.state_dict(),
        "forcing_scaler": None if inputs is None else inputs.state_dict(),
        "state_shape": list(model.state_shape_),
        "dt": model.dt_,
        "names": None if model.names_ is None else list(model.names_),
        "members": [checkpoint.weights_of(member) for member in model.members_],
        "process_noise": model.process_noise_,
        "why": model.why_,
        "verdict": None if model.verdict_ is None else model.verdict_.summary(),
        "versions": {name: version(name) for name in ("wpnode_ext", "torch")},
    }
    checkpoint.save(path, "model", state)


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
        if state["field_class"] in RESTRICTIONS:
            assert isinstance(field, LinearField)
            restrict, name = RESTRICTIONS[state["field_class"]]
            field = restrict(field, weights[name])
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
    model.state_shape_ = tuple(state["state_shape"])
    model.why_ = state["why"]
    model.process_noise_ = state["process_noise"]
    model.verdict_ = verdict_from(state["verdict"])
    model.members_ = []
    for member in state["members"]:
        model.members_.append(deepcopy(field))
        _load_weights(model.members_[-1], member, path)
    model.dt_ = state["dt"]
    model.names_ = None if state["names"] is None else tuple(state["names"])
    return model


def _can_rebuild(model: _Model) -> bool:
    """Whether the settings and the weights alone give the same function."""
    field = model.field_
    if isinstance(field, RestrictedField):
        # What restricts it is in the file; what is restricted the settings must tell.
        field = field.base
    shape = model.scaler_.scaled_shape(model.state_shape_)
    generator = torch.Generator().manual_seed(0)
    inputs = field.forcing_dim if isinstance(field, Field) else 0
    try:
        twin = make_field(model.config_.field, shape, inputs, generator)
    except ValueError:
        return False
    parts = [[type(part) for part in module.modules()] for module in (field, twin)]
    if parts[0] != parts[1]:
        return False
    assert isinstance(field, Field)
    try:
        twin.double().load_state_dict(checkpoint.weights_of(field))
    except RuntimeError:
        return False
    # What else a constructor was given shows in the values alone.
    u = torch.randn(PROBES, *shape, generator=generator)
    x = torch.randn(PROBES, inputs, generator=generator) if inputs else None
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
