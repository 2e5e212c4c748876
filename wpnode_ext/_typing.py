"""Vocabulary of the signatures: what a field is, what an array may be."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

# ``field(t, u) -> du/dt`` with ``u`` of shape ``[B, *state]`` and a scalar ``t``.
Field = Callable[[Tensor, Tensor], Tensor]

# What users have in hand; integers are accepted and become float64.
Array = Tensor | NDArray[np.generic]
