"""Training by gradients: batches, objective, the loop, checkpoints, run folders."""

from .checkpoint import CheckpointError
from .trainer import Trainer, TrainingDiverged, TrainResult
from .validation import ForecastValidation

__all__ = [
    "CheckpointError",
    "ForecastValidation",
    "TrainResult",
    "Trainer",
    "TrainingDiverged",
]
