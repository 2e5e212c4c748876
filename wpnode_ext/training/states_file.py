"""``states.npz`` of a run: refined states, their error bars, the noise, the rounds."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..common.archives import read_npz
from ..common.files import replacing
from .trainer import Row


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
