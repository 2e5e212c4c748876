"""What the entries of a model file must be, checked before anything is made of them."""

import math
from typing import Any

from torch import Tensor

from ..common.schema import check_tensor, check_weights
from ..coordinates.scaling import LinearScaler
from ..fields.factory import FieldConfig, count_weights

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
    _check_scaler(state["scaler"], "scaler", shape)
    if (state["forcing_scaler"] is None) != (state["forcing_dim"] == 0):
        raise ValueError("forcing_scaler must be there where forcing_dim is not 0")
    if state["forcing_scaler"] is not None:
        inputs = [state["forcing_dim"]]
        _check_scaler(state["forcing_scaler"], "forcing_scaler", inputs)
    if state["verdict"] is not None:
        _check_verdict(state["verdict"])


def check_field_size(
    config: FieldConfig, shape: tuple[int, ...], forcing_dim: int, stored: int
) -> None:
    """Raises ValueError if a field would have far more numbers than a file has.

    Args:
        config: what the field is made from.
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


def _check_scaler(scaler: dict[str, Any], name: str, shape: list[int]) -> None:
    for entry in ("shift", "scale"):
        value = scaler[entry]
        check_tensor(value, f"{name}.{entry}")
        if not value.is_floating_point() or not value.isfinite().all():
            raise ValueError(f"{name}.{entry} must hold finite numbers")
        own = list(value.shape)
        # One for all entries, one a channel, or one an entry.
        whole = [1] * (len(shape) - len(own)) + own
        if len(own) > len(shape) or any(
            n not in (1, m) for n, m in zip(whole, shape, strict=True)
        ):
            raise ValueError(
                f"{name}.{entry} must fit states of shape {shape}; got {own}"
            )
    if scaler["kind"] == LinearScaler.kind:
        encode, decode = scaler["encode"], scaler["decode"]
        _check_matrix(encode, f"{name}.encode")
        _check_matrix(decode, f"{name}.decode")
        if not len(encode) or [*encode.T.shape, *shape] != [*decode.shape, len(decode)]:
            raise ValueError(f"{name} must have coordinates of states of shape {shape}")
    completion = scaler.get("completion")
    if completion is not None:
        for entry in ("directions", "coefficients"):
            _check_matrix(completion[entry], f"{name}.completion.{entry}")
        _check_completion(completion, scaler["encode"], f"{name}.completion")


def _check_completion(completion: dict[str, Any], encode: Tensor, name: str) -> None:
    directions, law = completion["directions"], completion["coefficients"]
    if directions.shape[0] != encode.shape[1] or law.shape[1] != directions.shape[1]:
        raise ValueError(f"{name} must fit the coordinates")
    if type(completion["rate"]) not in (int, float):
        raise ValueError(f"{name}.rate must be a number")


def _check_matrix(value: Any, where: str) -> None:
    check_tensor(value, where)
    if value.dim() != 2 or not value.is_floating_point():
        raise ValueError(f"{where} must be a matrix; got {list(value.shape)}")


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
