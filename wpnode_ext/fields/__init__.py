"""Vector fields: callables ``field(t, u)``, batched over the leading axes of `u`.

`u` is ``[*batch, *state]``. `t` is a number or a tensor that broadcasts against `u`
(``[*batch, 1, ...]``), so that ``torch.sin(t) * u`` means the same in both cases. Any
function or ``nn.Module`` of this form is a field; the classes here are the usual ones.
"""

from .base import AutonomousField, Field, Forcing, FunctionField, as_field
from .conv import ConvField
from .factory import FIELDS, FieldConfig, FieldKind, make_field
from .library import LibraryField
from .linear import LinearField, as_linear
from .mlp import MLPField
from .random_features import RandomFeatureField, hit_and_run
from .restricted import RESTRICTIONS, EquivariantField, RestrictedField, SparseField
from .ring import RingField, RingGroups

__all__ = [
    "FIELDS",
    "RESTRICTIONS",
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
    "RingGroups",
    "SparseField",
    "as_field",
    "as_linear",
    "hit_and_run",
    "make_field",
]
