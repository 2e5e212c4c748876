"""Settings of a fit: typed, read from text, the paper's values by name."""

from .config import (
    ClosedFormConfig,
    FieldConfig,
    OptimConfig,
    StrongForm,
    TrainConfig,
    ValidationConfig,
    WeakForm,
)
from .presets import paper_config

__all__ = [
    "ClosedFormConfig",
    "FieldConfig",
    "OptimConfig",
    "StrongForm",
    "TrainConfig",
    "ValidationConfig",
    "WeakForm",
    "paper_config",
]
