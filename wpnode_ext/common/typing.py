"""Types of the signatures: fields, and arrays of users."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

# ``field(t, u) -> du/dt``, batched over the leading axes of ``u``. The time may be a
# number, a scalar tensor, or one value a batch element.
Field = Callable[[Any, Tensor], Tensor]

# Arrays of users; integers become float64.
Array = Tensor | NDArray[np.generic]
