"""Optimisers by name, and the learning rate that falls on plateaus of the loss.

A new optimiser is one entry of :data:`OPTIMISERS`. Code outside the package adds one in
the same way::

    def build(groups, config):
        return torch.optim.SGD(groups, lr=config.lr, **config.options)

    OPTIMISERS.add("sgd", build)
    model = WPNODE(config={"optim": {"name": "sgd", "options": {"momentum": 0.9}}})

A run resumes to the same bits if ``state_dict`` of the optimiser holds all that its
later steps depend on.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from ..common.registry import Registry
from ..settings.config import OptimConfig

# Parameters with options of their own, as optimisers of torch take them.
Groups = list[dict[str, Any]]
Build = Callable[[Groups, OptimConfig], Optimizer]

OPTIMISERS: Registry[Build] = Registry("optim.name", "optimisers")


@OPTIMISERS.register("adam")
def adam(groups: Groups, config: OptimConfig) -> Optimizer:
    """Adam; `weight_decay` adds to the gradients."""
    return torch.optim.Adam(groups, **_common(config))


@OPTIMISERS.register("adamw")
def adamw(groups: Groups, config: OptimConfig) -> Optimizer:
    """AdamW; `weight_decay` shrinks the weights."""
    return torch.optim.AdamW(groups, **_common(config))


def make_optimiser(groups: Groups, config: OptimConfig) -> Optimizer:
    """The optimiser that settings describe, for groups of parameters."""
    return OPTIMISERS.find(config.name)(groups, config)


def on_plateaus(optimiser: Optimizer, config: OptimConfig) -> ReduceLROnPlateau:
    """Lowers the rates of an optimiser where the loss no longer falls."""
    return ReduceLROnPlateau(
        optimiser,
        factor=config.plateau_factor,
        patience=config.plateau_patience or 1,
        threshold=config.plateau_threshold,
        min_lr=config.min_lr,
    )


def _common(config: OptimConfig) -> dict[str, Any]:
    return {"lr": config.lr, "weight_decay": config.weight_decay, **config.options}
