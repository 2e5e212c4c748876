"""Vector fields: callables ``field(t, u)``, batched over the leading axes of `u`.

`u` is ``[*batch, *state]``. `t` is a number or a tensor that broadcasts against `u`
(``[*batch, 1, ...]``), so that ``torch.sin(t) * u`` means the same in both cases. Any
function or ``nn.Module`` of this form is a field; the classes here are the usual ones.
"""

from .base import AutonomousField, Field, FunctionField, as_field
from .conv import ConvField
from .equivariant import EquivariantField
from .factory import FIELDS, FieldConfig, FieldKind, make_field
from .forcing import Forcing
from .hidden_units import hit_and_run
from .library import LibraryField
from .linear import LinearField
from .mlp import MLPField
from .random_features import RandomFeatureField
from .restricted import RestrictedField
from .ring import RingField
from .sparse import SparseField

__all__ = [
    "FIELDS",
    "AutonomousField",
    "ConvField",
    "EquivariantField",
    "Field",
    "FieldConfig",
    "FieldKind",
    "Forcing",
    "FunctionField",
    "LibraryField",
    "LinearField",
    "MLPField",
    "RandomFeatureField",
    "RestrictedField",
    "RingField",
    "SparseField",
    "as_field",
    "hit_and_run",
    "make_field",
]
