"""Noisy series and a model that is almost right: the states between the two."""

from .smoother import SmoothedStates, smooth_states

__all__ = ["SmoothedStates", "smooth_states"]
