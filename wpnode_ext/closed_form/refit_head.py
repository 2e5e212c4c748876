"""Closed-form fit of the last linear layer of a network."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from ..coordinates.symmetry import Symmetry
from ..data import Series
from ..fields.base import call_field
from ..weak.plan import WeakForm
from .fit import ClosedFormFit, SolveSettings, solve_weak


def refit_head(
    module: nn.Module,
    data: Series,
    *,
    p: int = 8,
    ell: int = 50,
    q: int = 2,
    symmetry: Symmetry | None = None,
    **settings: Any,
) -> ClosedFormFit:
    """Sets the last layer of a field to the one of least squared weak residual.

    The layers before it serve as features. The result is a start that gradient
    training reaches late, or a step that training takes now and then. A ridge of at
    least the square of the epsilon of the module's precision keeps the coefficients
    small, because rounding large ones would make the field worse.

    Args:
        module: a field ``module(t, u)`` whose value is that of its last ``nn.Linear``;
            changed in place.
        data: observations in the coordinates of the field.
        p, ell, q, symmetry, **settings: as in :func:`~wpnode_ext.fit_closed_form`.

    Raises:
        ValueError: the value of the module is not that of its last linear layer.
    """
    exact = copy.deepcopy(module).to(torch.float64)
    head, calls = _last_linear(exact), []
    record = data.to(torch.float64, head.weight.device)
    maps = None if symmetry is None else symmetry.matrices.to(record.v)
    handle = head.register_forward_hook(
        lambda _, given, out: calls.append((given, out))
    )

    def features(samples: slice) -> Tensor:
        calls.clear()
        t, u = record.clock[samples], record.v[samples]
        if maps is not None:
            t, u = t[:, None], torch.einsum("gij,nj->ngi", maps, u)
        value = call_field(exact, t, u)
        if len(calls) != 1 or not torch.equal(calls[0][1], value):
            raise ValueError(
                f"`module` must return the value of its last nn.Linear, {head}; it "
                "returns another value."
            )
        hidden = calls[0][0][0]
        if head.bias is None:
            return hidden.flatten(1)
        return torch.cat([hidden, torch.ones_like(hidden[..., :1])], -1).flatten(1)

    rows = head.in_features + (head.bias is not None)
    target = _last_linear(module)
    least: dict[str, Any] = {"least_ridge": torch.finfo(target.weight.dtype).eps ** 2}
    solution = solve_weak(
        record,
        features,
        (rows, head.out_features),
        WeakForm(p, ell, q),
        SolveSettings(**(least | settings)),
        maps=maps,
    )
    handle.remove()
    with torch.no_grad():
        target.weight.copy_(solution.coefficients[: head.in_features].T)
        if target.bias is not None:
            target.bias.copy_(solution.coefficients[-1])
    return solution


def _last_linear(module: nn.Module) -> nn.Linear:
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    if not layers:
        raise ValueError(
            f"`module` must end in an nn.Linear; {type(module).__name__} has none."
        )
    return layers[-1]
