"""``states.npz`` of a run: refined states, their error bars, the noise, the rounds."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from .loop import Row


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
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    os.replace(temporary, path)


def read_states(path: Path) -> RefinedStates:
    """The file of a run folder."""
    with np.load(path) as arrays:
        names = arrays["round_names"].tolist()
        rounds = [
            dict(zip(names, row, strict=True)) for row in arrays["rounds"].tolist()
        ]
        states, std, sigma = (
            torch.from_numpy(arrays[key]) for key in ("states", "std", "sigma")
        )
    return RefinedStates(states, std, sigma, rounds)
