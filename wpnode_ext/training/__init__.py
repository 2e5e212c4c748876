"""Training: settings, batches, the loop, checkpoints, run folders."""

from .checkpoint import CheckpointError
from .config import (
    ClosedFormConfig,
    FieldConfig,
    OptimConfig,
    StrongForm,
    TrainConfig,
    ValidationConfig,
    WeakForm,
)
from .loop import Trainer, TrainingDiverged, TrainResult
from .presets import paper_config
from .validation import ForecastValidation

__all__ = [
    "CheckpointError",
    "ClosedFormConfig",
    "FieldConfig",
    "ForecastValidation",
    "OptimConfig",
    "StrongForm",
    "TrainConfig",
    "TrainResult",
    "Trainer",
    "TrainingDiverged",
    "ValidationConfig",
    "WeakForm",
    "paper_config",
]
