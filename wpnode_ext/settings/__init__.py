"""Settings of a fit: typed, read from text, the paper's values by name."""

from .config import (
    ClosedFormConfig,
    FieldConfig,
    JointConfig,
    OptimConfig,
    StrongForm,
    TrainConfig,
    ValidationConfig,
    WeakForm,
    paper_config,
)

__all__ = [
    "ClosedFormConfig",
    "FieldConfig",
    "JointConfig",
    "OptimConfig",
    "StrongForm",
    "TrainConfig",
    "ValidationConfig",
    "WeakForm",
    "paper_config",
]
