"""What the entries of a file must be, beyond being readable."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_NUMBERS = (bool, int, float)


def check_like(given: Any, own: Any, where: str) -> None:
    """Raises ValueError unless `given` has the form of `own`.

    Dictionaries have the same keys, lists the same length, tensors the same shape and
    type; numbers are numbers, whatever their values. Where `own` is None, or an empty
    dictionary or list, any plain value will do.
    """
    if own is None or own == {} or own == []:
        return
    if isinstance(own, Mapping):
        if not isinstance(given, Mapping) or given.keys() != own.keys():
            raise ValueError(f"{where} must have the entries {_names(own)}")
        for name, value in own.items():
            check_like(given[name], value, f"{where}.{name}")
    elif isinstance(own, list | tuple):
        if not isinstance(given, list | tuple) or len(given) != len(own):
            raise ValueError(f"{where} must be a list of {len(own)} entries")
        for number, value in enumerate(own):
            check_like(given[number], value, f"{where}[{number}]")
    elif isinstance(own, Tensor):
        check_tensor(given, where)
        if given.shape != own.shape or given.dtype != own.dtype:
            raise ValueError(
                f"{where} must be {own.dtype} of shape {list(own.shape)}; got "
                f"{given.dtype} of shape {list(given.shape)}"
            )
    elif isinstance(own, _NUMBERS):
        if not isinstance(given, _NUMBERS):
            raise ValueError(f"{where} must be a number; got {type(given).__name__}")
    elif type(given) is not type(own):
        raise ValueError(
            f"{where} must be {type(own).__name__}; got {type(given).__name__}"
        )


def check_tensor(value: Any, where: str) -> None:
    """Raises unless `value` is a plain tensor that holds all the numbers it shows.

    A tensor with strides of zero has more of them than it stores: copies would not fit.
    """
    if type(value) not in (Tensor, torch.nn.Parameter):
        raise ValueError(f"{where} must be a tensor; got {type(value).__name__}")
    plain = value.layout == torch.strided and value.device.type == "cpu"
    size = value.numel() * value.element_size()
    if not plain or size > value.untyped_storage().nbytes():
        raise ValueError(f"{where} must be a dense tensor that holds its numbers")


def check_weights(value: Any, where: str) -> None:
    """Raises unless `value` is a dictionary of tensors."""
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{where} must be a dictionary of tensors; got {type(value).__name__}"
        )
    for name, weight in value.items():
        if not isinstance(name, str):
            raise ValueError(f"{where} must have names as keys; got {name!r}")
        check_tensor(weight, f"{where}.{name}")


def _names(own: Mapping[Any, Any]) -> str:
    return ", ".join(map(str, own))
