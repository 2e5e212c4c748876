"""Training by gradients: batches, objective, the loop, checkpoints, run folders."""

from .checkpoint import CheckpointError
from .optimisers import OPTIMISERS
from .trainer import Session, Trainer, TrainingDiverged, TrainResult
from .validation import ForecastValidation

__all__ = [
    "OPTIMISERS",
    "CheckpointError",
    "ForecastValidation",
    "Session",
    "TrainResult",
    "Trainer",
    "TrainingDiverged",
]
